"""Streams that shard_placed places by location, with ranks that are played."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from placing_lib import placed_by

import het_tf
from het_tf.ext.streams.python.agreement import Stream
from het_tf.ext.streams.python.location import SLOTS, keys_of
from het_tf.python.session.native import ops

RANKS, BATCH, STEPS = 4, 8, 40
SAMPLES = RANKS * BATCH * STEPS + 5


def ids():
    """Two features of one table, whose ids meet, and one of another table with the same numbers."""
    rng = np.random.default_rng(2)
    home = rng.integers(0, 60, SAMPLES)
    near = lambda width: home[:, None] * 5 + rng.integers(0, 9, (SAMPLES, width))  # noqa: E731
    return {"user": home, "seen": near(3), "item": near(2)}


def layer():
    users = het_tf.TableConfig("user", 4)
    features = {
        "user": het_tf.FeatureConfig(users),
        "seen": het_tf.FeatureConfig(users, combiner="sum"),
        "item": het_tf.FeatureConfig(het_tf.TableConfig("item", 4), combiner="sum"),
    }
    return het_tf.keras.EmbeddingCollection(features)


def dataset():
    columns = {**ids(), "location": np.array([b"a field"] * SAMPLES, object)}
    return tf.data.Dataset.from_tensor_slices((columns, np.arange(SAMPLES)))


@functools.cache
def of_layer():
    """What the rule gives to the ids of `layer`."""
    of = ids()
    return expected([(0, of["user"][:, None]), (0, of["seen"]), (1, of["item"])])


def expected(fields):
    """Numbers of samples [steps, ranks, batch], by the op that runs the rule."""
    owners, slots = [], tf.zeros([SLOTS], tf.uint32)
    keys = tf.concat([keys_of(table, ids) for table, ids in fields], 1)
    for number in range(STEPS):
        batch = keys[number * RANKS * BATCH : (number + 1) * RANKS * BATCH]
        found, slots = ops.het_place_samples(batch, slots=slots, number=number, workers=RANKS, batch=BATCH)
        owners += found.numpy().tolist()
    return placed_by(owners, RANKS, BATCH)


def shard():
    return het_tf.workers.shard_placed(dataset(), by="location", batch=BATCH, lookahead=layer())


def numbers(batches):
    return np.stack([labels for _, labels in batches])


def test_ranks_place_samples_by_the_rule(four):
    """Catches keys that tables share, or features of one table do not; a rule that forgets between batches,
    where owners would go by turns; and a field of the name, which would be taken in place of the rule.
    """
    order = of_layer()
    assert (order[-1] != order[0] + (order[-1].min() - order[0].min())).any()
    for me in (0, RANKS - 1):
        four.me = me
        placed = shard()
        assert placed.element_spec[0]["seen"].shape == (BATCH, 3) and int(placed.cardinality()) == STEPS
        np.testing.assert_array_equal(numbers(placed), order[:, me])


def test_a_pass_changes_no_other_one(four):
    """Catches memory that belongs to the data set or to the process: of a pass that is begun again, of one
    that looked at a batch and was left, or of two that are read in turns.
    """
    placed, mine = shard(), of_layer()[:, 0]
    next(iter(placed))
    one, other = iter(placed), iter(placed)
    found = [(next(one)[1], next(other)[1]) for _ in range(STEPS)]
    np.testing.assert_array_equal(np.stack([labels for labels, _ in found]), mine)
    np.testing.assert_array_equal(np.stack([labels for _, labels in found]), mine)
    np.testing.assert_array_equal(numbers(placed), mine)


def test_a_restored_iterator_goes_on_as_it_would_have(four, tmp_path):
    """Catches memory that an iterator does not save: ranks whose pipelines were at different batches would
    remember different ones after a restart, and take some samples twice.
    """
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    it = iter(shard().with_options(options))
    for _ in range(5):
        next(it)
    path = tf.train.Checkpoint(it=it).write(str(tmp_path / "it"))
    for _ in range(9):
        next(it)
    again = iter(shard().with_options(options))
    tf.train.Checkpoint(it=again).read(path)
    np.testing.assert_array_equal(numbers(again), of_layer()[5:, 0])


def test_ragged_ids_and_graphs_are_placed_as_others(four):
    """Catches lists of ids, of one length or several, that are cut into samples at wrong places: a graph
    model looks the nodes of all samples up hop by hop.
    """
    home = ids()["user"]
    once = 1000 + np.arange(SAMPLES)  # ids that come once say nothing
    lengths = 1 + once % 2
    values = np.stack([home, once], 1)[np.arange(2) < lengths[:, None]]
    tags = het_tf.FeatureConfig(het_tf.TableConfig("tags", 4), combiner="sum")
    lists = {"tags": tf.RaggedTensor.from_row_lengths(values, lengths)}
    ragged = tf.data.Dataset.from_tensor_slices((lists, np.arange(SAMPLES)))
    hops = {"hop_0": home[:, None], "hop_1": np.stack([home + 60, once], 1)}
    graph = tf.data.Dataset.from_tensor_slices((hops, np.arange(SAMPLES)))
    model = looked_up({"hop_0": 1, "hop_1": 2})
    for samples, plan, of in (
        (ragged, het_tf.keras.EmbeddingCollection({"tags": tags}), np.stack([home, once], 1)),
        (graph, model, np.stack([home, home + 60, once], 1)),
    ):
        placed = het_tf.workers.shard_placed(samples, by="location", batch=BATCH, lookahead=plan)
        np.testing.assert_array_equal(numbers(placed), expected([(0, of)])[:, 0])


def looked_up(widths):
    """A model that looks up the ids of some inputs, each [B, width], one beside the other."""
    inputs = {name: tf.keras.Input((width,), dtype="int64", name=name) for name, width in widths.items()}
    ids = tf.keras.ops.concatenate(list(inputs.values()), axis=1)
    return tf.keras.Model(inputs, het_tf.keras.Embedding(4)(ids))


def test_ranks_that_look_up_or_read_others_are_told(played):
    """Catches a comparison by field and batch only: ranks whose layers have other tables place differently.
    And a fingerprint that does not cover all ids of a sample.
    """
    played.others = lambda mine: [([{**mine[0][0], "type": "x"}], [], "")]
    with pytest.raises(RuntimeError, match="type is '3 features of 2 tables' on rank 0, 'x' on"):
        shard()
    played.others = lambda mine: [mine]
    notes = []
    for change in (0, 0, 1):
        of = {name: column[:256] for name, column in ids().items()}
        of["item"][3, 1] += change
        samples = tf.data.Dataset.from_tensor_slices((of, np.arange(256)))
        list(het_tf.workers.shard_placed(samples, by="location", batch=BATCH, lookahead=layer()))
        notes.append(Stream._notes.newest.numpy()[-1])
    assert [note[2] for note in notes] == [16] * 3
    assert notes[0][3] == notes[1][3] != notes[2][3]


def test_a_table_has_keys_of_its_own():
    """Catches keys without the table, and an id that would be no key (0)."""
    one, other = (keys_of(table, tf.range(6)).numpy() for table in (0, 1))
    assert len(np.unique([one, other])) == 12 and one.all() and other.all()


def test_the_op_refuses_what_is_no_global_batch():
    """Catches slots and keys that are read behind their ends."""
    keys = np.ones((4, 2), np.uint64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="8 keys of 6 samples"):
        ops.het_place_samples(keys, slots=tf.zeros([SLOTS], tf.uint32), number=0, workers=3, batch=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="are 9 slots and 2 workers; give"):
        ops.het_place_samples(keys, slots=tf.zeros([9], tf.uint32), number=0, workers=2, batch=2)
