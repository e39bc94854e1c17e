"""Ranks with streams of unknown lengths end with the shortest, with ranks that are played.

Two real ranks do the same in test_ranks.py, `end_together`.
"""

import logging

import numpy as np
import pytest
import rules_lib
import tensorflow as tf

import het_tf
from het_tf.ext.workers.python import shortest

keras = tf.keras


def dataset(batches, known=False):
    """Batches of 4; a filter hides their number."""
    ids, y = rules_lib.data(4 * batches)
    made = tf.data.Dataset.from_tensor_slices((ids, y)).batch(4)
    return made if known else made.filter(lambda *_: True)


@pytest.fixture
def other(played, monkeypatch):
    """Plays another rank that has seen the end of its data after a number of batches."""
    monkeypatch.setattr(shortest, "_told", set())

    def has(batches):
        played.gives = lambda mine: tf.fill(tf.shape(mine), tf.constant(batches, mine.dtype))

    yield has
    shortest._Pass.current().active.assign(False)


def model(**compile):
    made = het_tf.workers.distribute(rules_lib.make_model())
    made.compile("sgd", "mse", **compile)
    return made


def of_unknown_length(mine):
    return [("unknown", *mine[1:])] if isinstance(mine, tuple) else [mine]


STREAMS = [
    # A rank that went on would wait for ever in the reduction of its next step; it warns once.
    (dataset(5), 3, {"epochs": 3, "validation_data": dataset(4)}, [3, 3, 3], True),
    # The other rank sees its end when this one does: nothing is said.
    (dataset(5), None, {}, [5], False),
    # If an epoch forgot the end at its begin, this rank would go on without the others.
    (dataset(20), 7, {"epochs": 2, "steps_per_epoch": 3}, [3, 3], True),
    # Comparing would cost, and cut, where shard has made equal parts.
    (dataset(5, known=True), 3, {}, [5], False),
]


@pytest.mark.parametrize(("mine", "others", "options", "steps", "warns"), STREAMS)
@pytest.mark.parametrize("eager", [False, True])
def test_fit_ends_epochs_with_shortest_stream(other, caplog, mine, others, options, steps, warns, eager):
    if others:
        other(others)
    ends = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: ends.append(0),
        on_train_batch_end=lambda batch, logs: ends.append(ends.pop() + 1),
    )
    with caplog.at_level(logging.WARNING, "het_tf"):
        model(run_eagerly=eager).fit(mine, verbose=0, callbacks=[count], **options)
    assert ends == steps
    said = [one.getMessage() for one in caplog.records if one.name == "het_tf"]
    assert len(said) == warns
    assert not said or f"the data of rank 1 ended first, after {others} batches: all 2 ranks end" in said[0]


def test_one_rank_with_an_unknown_length_is_enough(played, other):
    other(3)
    played.others = of_unknown_length
    model().fit(dataset(5, known=True), verbose=0)
    assert int(shortest._Pass.current().steps) == 3


def test_what_cannot_end_together_is_refused(played, other):
    made = model()
    batch = tuple(array[:4] for array in rules_lib.data(4))
    with pytest.raises(ValueError, match=r"x is a generator, .*; give steps_per_epoch, or a tf\.data"):
        made.fit((batch for _ in range(3)), verbose=0)
    made.fit((batch for _ in range(3)), steps_per_epoch=2, verbose=0)
    with pytest.raises(ValueError, match=r"class_weight is given .*; give the weights of the samples"):
        made.fit(dataset(3), class_weight={0: 1.0, 1: 2.0}, verbose=0)
    played.others = of_unknown_length
    with pytest.raises(ValueError, match=r"x is a ndarray, .* \(other on rank 0, unknown on rank 1\)"):
        made.fit(*rules_lib.data(8), verbose=0)
    with pytest.raises(ValueError, match=r"dataset is a list; give a tf\.data\.Dataset"):
        het_tf.workers.until_shortest([1])
    played.ranks = 1
    whole = dataset(3).map(lambda ids, y: (ids, tf.cast(y > 0, tf.int64)))
    made.fit(whole, class_weight={0: 1.0, 1: 2.0}, verbose=0)
    assert het_tf.workers.until_shortest(whole) is whole


@pytest.mark.parametrize(("batches", "at_once"), [(0, 1), (3, 4)])
def test_rank_with_less_than_one_execution_fails(other, batches, at_once):
    """It takes no step in which it could say so: it must not wait, nor end in silence."""
    other(9)
    said = f"this rank has {batches} batches in a pass, and needs {at_once} at least"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        model(steps_per_execution=at_once).fit(dataset(9).take(batches), verbose=0)


def looped(stream, calls=1):
    """Returns the number of batches of a loop whose step reduces `calls` times."""
    weight = tf.Variable(1.0)

    @tf.function
    def step(x):
        for _ in range(calls):
            gradients = [tf.reduce_mean(tf.cast(x, tf.float32))]
            weight.assign_sub(het_tf.workers.reduce_gradients(gradients, [weight])[0])

    count = 0
    for x, *_ in stream:
        step(tf.nest.flatten(x)[0])
        count += 1
    return count


def test_a_custom_loop_ends_with_the_shortest(other):
    """A single rank may look at its batches: an exchange in the pipeline would wait for the others."""
    other(3)
    stream = het_tf.workers.until_shortest(dataset(5))
    assert [looped(stream), looped(stream)] == [3, 3]
    assert looped(het_tf.workers.until_shortest(dataset(5)), calls=2) == 3, "as of two optimizers"
    assert [sum(1 for _ in stream), sum(1 for _ in stream.take(2)), looped(stream)] == [5, 2, 3]


def test_structures_of_batches_pass(other):
    """A batch may be a dict, nested, ragged or sparse."""
    other(2)
    features = {"r": tf.RaggedTensor.from_row_lengths(np.arange(6), [1, 2, 3]), "s": tf.sparse.eye(3)}
    made = tf.data.Dataset.from_tensor_slices((features, (np.arange(3), "a b c".split())))
    stream = het_tf.workers.until_shortest(made.batch(1))
    assert stream.element_spec == made.batch(1).element_spec
    for got, expected in zip(stream, made.batch(1), strict=True):
        for one, another in zip(tf.nest.flatten(got, True), tf.nest.flatten(expected, True), strict=True):
            np.testing.assert_array_equal(one, another)
    only = het_tf.workers.until_shortest(made.map(lambda x, _: x))
    assert [sorted(x) for x in only] == [["r", "s"]] * 3


def test_streams_that_another_rank_would_wait_for_are_errors(other):
    """Read ahead of the steps, or two in one loop: it would take a batch that another rank lacks."""
    other(30)
    ahead = het_tf.workers.until_shortest(dataset(40)).prefetch(4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="nothing may read ahead of them; put prefetch"):
        looped(ahead)
    both = [het_tf.workers.until_shortest(dataset(10)) for _ in range(2)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"two datasets of .* zipped of both"):
        looped(tf.data.Dataset.zip((both[0], both[1])))
