"""A table is a variable: in every loop it learns what a variable of rows learns, and rests otherwise."""

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL
from loops_lib import DIM, IDS, Pair, batches, gradients_of, rows

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")
MODES = ["graph", "eager"]


def traced(mode, function):
    return tf.function(function) if mode == "graph" else function


def add(*lists):
    """The sums of the gradients of several steps."""
    return [tf.add_n([tf.convert_to_tensor(one) for one in of]) for of in zip(*lists, strict=True)]


def each(pair, gradients, mode="graph", steps=4):
    """Trains both models on every batch by gradients(model, batch): of all variables, or pairs."""
    for model in pair:
        optimizer = pair.optimizer()
        optimizer.build(model.variables)

        def step(*batch, model=model, optimizer=optimizer):
            found = gradients(model, batch)
            pairs = found if isinstance(found[0], tuple) else zip(found, model.variables, strict=True)
            optimizer.apply_gradients([(one, of) for one, of in pairs if one is not None])

        run = traced(mode, step)
        for batch in batches(steps):
            run(*batch)


def two_losses(model, batch):
    """The gradients of two losses, taken from one lookup."""
    ids, labels = batch
    with tf.GradientTape(persistent=True) as tape:
        out = model(ids)
        one, two = tf.reduce_mean((out - labels) ** 2), tf.reduce_mean((out + 0.5) ** 2)
    return tape.gradient(one, model.variables), tape.gradient(two, model.variables)


# --- losses: one update of a row in one apply ---------------------------------------------------------


def two_calls(model, batch):
    ids, labels = batch
    return model.loss(batch) + model.loss((ids[::2], labels[1::2]))


def two_layers(model, batch):
    return model.loss(batch) + model.loss(((batch[0] + 1) % IDS, batch[1]), 1)


def recomputed(model, batch):
    ids, labels = batch
    again = tf.recompute_grad(lambda ids: model.layers[0](ids))
    return tf.reduce_mean((model.head(again(ids)) - labels) ** 2)


@tf.autograph.experimental.do_not_convert
def mapped(model, batch):
    ids, labels = batch
    parts = (tf.reshape(ids, [4, 2]), tf.reshape(labels, [4, 2, 1]))
    return tf.reduce_mean(tf.map_fn(model.loss, parts, fn_output_signature=tf.float32))


def looped(model, batch):
    ids, labels = batch
    total = tf.constant(0.0)
    for part in tf.range(4):
        total += model.loss((ids[part * 2 : part * 2 + 2], labels[part * 2 : part * 2 + 2])) / 4.0
    return total


def penalised(model, batch):
    """The inner gradient is by what the head gets: the rows' own gradient is of the first order."""
    ids, labels = batch
    scale = tf.ones([8, DIM])
    with tf.GradientTape() as inner:
        inner.watch(scale)
        out = model.head(model.layers[0](ids) * scale)
        value = tf.reduce_mean((out - labels) ** 2)
    return value + tf.reduce_sum(inner.gradient(value, scale) ** 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
@pytest.mark.parametrize("loss", [lambda model, batch: model.loss(batch), two_calls, two_layers])
def test_all_lookups_of_an_apply_are_one_update(loss, kind, mode):
    pair = Pair(kind, layers_of=("t", "t") if loss is two_layers else None)
    each(pair, lambda model, batch: gradients_of(model, lambda: loss(model, batch)), mode)
    pair.check()
    assert het_tf.Table("t").updates == 4
    assert max(het_tf.Table("t").scan()["clocks"]) <= 4
    assert len({id(one) for layer in pair.ours.layers for one in layer.trainable_variables}) == 1


@pytest.mark.parametrize("loss", [recomputed, mapped, looped, penalised])
def test_a_lookup_in_other_parts_of_tensorflow(loss):
    pair = Pair("adagrad")
    each(pair, lambda model, batch: gradients_of(model, lambda: loss(model, batch)))
    pair.check()
    assert het_tf.Table("t").updates == 4


def test_layers_that_share_some_tables_update_each_once():
    """The second layer has a table of the first, and one of its own: two variables."""
    shared, own = (het_tf.TableConfig(name, DIM, het_tf.optimizers.SGD(0.5), "zeros") for name in "so")
    first = het_tf.keras.EmbeddingCollection({"s": het_tf.FeatureConfig(shared)}, name="first")
    both = het_tf.keras.EmbeddingCollection(
        {"s": het_tf.FeatureConfig(shared), "o": het_tf.FeatureConfig(own)}, name="both"
    )
    variables = list({id(v): v for v in first.trainable_variables + both.trainable_variables}.values())
    assert len(variables) == 2
    ids = tf.constant([1, 1])
    with tf.GradientTape() as tape:
        found = both({"s": ids, "o": ids})
        loss = (
            tf.reduce_sum(first({"s": ids})["s"]) + tf.reduce_sum(found["s"]) + 3 * tf.reduce_sum(found["o"])
        )
    keras.optimizers.SGD().apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    np.testing.assert_allclose(rows("s")[1], [-2.0] * DIM)
    np.testing.assert_allclose(rows("o")[1], [-3.0] * DIM)
    assert het_tf.Table("s").updates == het_tf.Table("o").updates == 1
    # Only one of the variables: the other table stays.
    with tf.GradientTape() as tape:
        found = both({"s": ids, "o": ids})
        loss = tf.reduce_sum(found["s"]) + tf.reduce_sum(found["o"])
    (of_shared,) = first.trainable_variables
    keras.optimizers.SGD().apply_gradients([(tape.gradient(loss, of_shared), of_shared)])
    np.testing.assert_allclose(rows("s")[1], [-3.0] * DIM)
    np.testing.assert_allclose(rows("o")[1], [-3.0] * DIM)


# --- a gradient that is not applied -------------------------------------------------------------------


def test_a_gradient_that_nobody_applies_changes_nothing_and_is_counted():
    pair = Pair()
    before = rows()
    batch = batches(1)[0]
    for _ in range(262):
        gradients_of(pair.ours, lambda: pair.ours.loss(batch))
    np.testing.assert_array_equal(rows(), before)
    assert het_tf.Table("t").updates == het_tf.Table("t").size == 0
    assert het_tf.Table("t").stats()["unapplied_gradients"] == 6


@pytest.mark.parametrize("mode", MODES)
def test_skipped_steps(mode):
    pair = Pair("adagrad")
    for model in pair:
        optimizer = pair.optimizer()
        optimizer.build(model.variables)

        def step(number, *batch, model=model, optimizer=optimizer):
            found = gradients_of(model, lambda: model.loss(batch))
            if number % 2 == 0:
                optimizer.apply_gradients(zip(found, model.variables, strict=True))

        run = traced(mode, step)
        for number, batch in enumerate(batches(6)):
            run(tf.constant(number) if mode == "graph" else number, *batch)
    pair.check()
    assert het_tf.Table("t").updates == 3


def test_sam_takes_the_gradient_at_perturbed_dense_weights():
    pair = Pair("adagrad")

    def gradients(model, batch):
        first = gradients_of(model, lambda: model.loss(batch))
        dense = list(zip(first, model.variables, strict=True))[1:]
        norm = tf.linalg.global_norm([one for one, _ in dense])
        for gradient, variable in dense:
            variable.assign_add(0.05 * gradient / norm)
        second = gradients_of(model, lambda: model.loss(batch))
        for gradient, variable in dense:
            variable.assign_sub(0.05 * gradient / norm)
        return second

    each(pair, gradients)
    pair.check()


# --- what loops do to gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_accumulation_by_hand(kind, mode):
    pair = Pair(kind)

    def gradients(model, batch):
        ids, labels = batch
        parts = [(ids[part::3], labels[part::3]) for part in range(3)]
        return add(*(gradients_of(model, lambda part=part: model.loss(part) / 3.0) for part in parts))

    each(pair, gradients, mode)
    pair.check()
    assert het_tf.Table("t").updates == 4


CHANGES = {
    "clipped together": lambda found: tf.clip_by_global_norm(found, 0.3)[0],
    "clipped": lambda found: [tf.clip_by_norm(one, 0.2) for one in found],
    "scaled": lambda found: [one * 0.25 for one in found],
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_linear_happens_to_rows(change):
    pair = Pair()

    def gradients(model, batch):
        return CHANGES[change](gradients_of(model, lambda: 7.0 * model.loss(batch)))

    each(pair, gradients)
    pair.check(MODEL)


def test_the_norm_of_a_gradient_is_that_of_its_rows():
    pair = Pair()
    batch = batches(1)[0]
    norms = [
        tf.norm(tf.convert_to_tensor(gradients_of(model, lambda model=model: model.loss(batch))[0]))
        for model in pair
    ]
    np.testing.assert_allclose(*norms, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_two_losses_of_a_persistent_tape(mode):
    """PCGrad: each task's gradient loses what is against the other's, then both are added."""
    pair = Pair()

    def gradients(model, batch):
        first, second = two_losses(model, batch)
        # The head's gradients decide; rows follow with the same coefficients.
        dot = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(first[1:], second[1:], strict=True)])
        against = tf.minimum(dot, 0.0)
        squares = [tf.add_n([tf.reduce_sum(one**2) for one in of[1:]]) for of in (first, second)]
        return [
            tf.convert_to_tensor(a) * (1 - against / squares[0])
            + tf.convert_to_tensor(b) * (1 - against / squares[1])
            for a, b in zip(first, second, strict=True)
        ]

    each(pair, gradients, mode)
    pair.check(MODEL)
    assert het_tf.Table("t").updates == 4


def test_one_of_two_losses_of_a_persistent_tape():
    pair = Pair("adagrad")
    each(pair, lambda model, batch: two_losses(model, batch)[1])
    pair.check()


def test_applied_twice_is_two_updates():
    pair = Pair("adagrad")
    for model in pair:
        optimizer = pair.optimizer()
        found = gradients_of(model, lambda model=model: model.loss(batches(1)[0]))
        for _ in range(2):
            optimizer.apply_gradients(zip(found, model.variables, strict=True))
    pair.check()
    assert het_tf.Table("t").updates == 2


# --- some of the variables ----------------------------------------------------------------------------


def test_two_optimizers_for_two_parts():
    pair = Pair("adagrad")
    for model in pair:
        of_rows, of_head = pair.optimizer(), keras.optimizers.Adam(0.05)
        split = len(model.variables) - len(model.head.trainable_variables)
        for batch in batches():
            found = gradients_of(model, lambda model=model, batch=batch: model.loss(batch))
            of_head.apply_gradients(zip(found[split:], model.variables[split:], strict=True))
            of_rows.apply_gradients(zip(found[:split], model.variables[:split], strict=True))
    pair.check()


@pytest.mark.parametrize("mode", MODES)
def test_a_subset_of_the_variables(mode):
    pair = Pair("adagrad")

    def gradients(model, batch):
        found = gradients_of(model, lambda: model.loss(batch))
        return list(zip(found, model.variables, strict=True))[1:]

    before = rows()
    each(pair, gradients, mode)
    np.testing.assert_array_equal(rows(), before)
    pair.check()


def test_a_gan_trains_each_side_by_its_own_loss():
    pair = Pair("adagrad", tables=("g", "d"))

    def side(number, sign):
        def gradients(model, batch):
            ids, labels = batch
            with tf.GradientTape() as tape:
                product = model.layers[0](ids) * model.layers[1](ids)
                loss = sign * tf.reduce_mean((model.head(product) - labels) ** 2)
            everything = tape.gradient(loss, model.variables)  # of the other side too, and not applied
            pairs = list(zip(everything, model.variables, strict=True))
            return [pairs[number], *(pairs[2:] if number else [])]

        return gradients

    for _ in range(2):
        each(pair, side(0, 1.0), steps=2)
        each(pair, side(1, -1.0), steps=2)
    pair.check()
    assert het_tf.Table("g").updates == het_tf.Table("d").updates == 4


def test_the_target_network_of_dqn_stays():
    pair = Pair("adagrad", tables=("online", "target"))

    def gradients(model, batch):
        ids, labels = batch
        target = tf.stop_gradient(model((ids + 1) % IDS, 1))
        return gradients_of(model, lambda: tf.reduce_mean((model(ids) - labels - 0.9 * target) ** 2))

    before = rows("target")
    each(pair, gradients)
    np.testing.assert_array_equal(rows("target"), before)
    pair.check()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_layer(frozen):
    pair = Pair("adagrad", tables=("a", "b"))
    for model in pair:
        model.layers[frozen].trainable = False
    each(
        pair,
        lambda model, batch: gradients_of(model, lambda: model.loss(batch) + model.loss(batch, 1)),
    )
    pair.check()
    assert [het_tf.Table(name).updates for name in "ab"] == [4 * (frozen == 1), 4 * (frozen == 0)]


def test_a_frozen_layer_of_a_table_that_another_one_trains():
    pair = Pair("adagrad", layers_of=("t", "t"))
    pair.ours.layers[1].trainable = False

    def loss(model, batch):
        ids, labels = batch
        frozen = model.layers[1]((ids + 1) % IDS)
        frozen = tf.stop_gradient(frozen) if model is pair.theirs else frozen
        return model.loss(batch) + tf.reduce_mean((model.head(frozen) - labels) ** 2)

    each(pair, lambda model, batch: gradients_of(model, lambda: loss(model, batch)))
    pair.check()


# --- without a Keras optimizer ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_apply_in_a_loop_without_an_optimizer(mode):
    pair = Pair()
    for model in pair:

        def step(*batch, model=model):
            pairs = zip(gradients_of(model, lambda: model.loss(batch)), model.variables, strict=True)
            for gradient, variable in het_tf.apply(pairs):
                variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))

        run = traced(mode, step)
        for batch in batches():
            run(*batch)
    pair.check()
    assert het_tf.Table("t").updates == 4


def test_apply_skips_a_variable_without_a_gradient():
    pair = Pair()
    assert het_tf.apply([(None, pair.ours.layers[0].anchor)]) == []
    assert het_tf.Table("t").updates == 0
