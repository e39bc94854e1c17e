"""A table is a variable: in every loop it learns what a variable of rows learns, and rests otherwise."""

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL
from loops_lib import DIM, IDS, Pair, batches, rows

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")
MODES = ["graph", "eager"]


def traced(mode, function):
    return tf.function(function) if mode == "graph" else function


def gradients_of(model, loss):
    with tf.GradientTape() as tape:
        value = loss()
    return tape.gradient(value, model.variables)


def add(*lists):
    """The sums of the gradients of several steps."""
    return [tf.add_n([tf.convert_to_tensor(one) for one in of]) for of in zip(*lists, strict=True)]


def each(pair, step, mode="graph", steps=4, **optimizer):
    """Runs step(model, optimizer, batch) on both models, for every batch."""
    for model in pair:
        own = pair.optimizer(**optimizer)
        own.build(model.variables)
        run = traced(mode, lambda *batch, model=model, own=own: step(model, own, batch))
        for batch in batches(steps):
            run(*batch)


# --- one update of a row in one apply -----------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_a_plain_loop(kind, mode):
    pair = Pair(kind)

    def step(model, optimizer, batch):
        optimizer.apply_gradients(
            zip(gradients_of(model, lambda: model.loss(batch)), model.variables, strict=True)
        )

    each(pair, step, mode)
    pair.check()
    assert het_tf.Table("t").updates == 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_two_calls_of_a_layer_are_one_update(kind, mode):
    pair = Pair(kind)

    def step(model, optimizer, batch):
        ids, labels = batch

        def loss():
            return model.loss(batch) + model.loss((ids[::2], labels[1::2]))

        optimizer.apply_gradients(zip(gradients_of(model, loss), model.variables, strict=True))

    each(pair, step, mode)
    pair.check()
    assert het_tf.Table("t").updates == 4
    found = het_tf.Table("t").scan()
    assert max(found["clocks"]) <= 4


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_two_layers_of_a_table_are_one_update(kind):
    pair = Pair(kind, layers_of=("t", "t"))

    def step(model, optimizer, batch):
        def loss():
            return model.loss(batch) + model.loss(((batch[0] + 1) % IDS, batch[1]), 1)

        optimizer.apply_gradients(zip(gradients_of(model, loss), model.variables, strict=True))

    each(pair, step)
    pair.check()
    assert het_tf.Table("t").updates == 4
    assert len({id(one) for layer in pair.ours.layers for one in layer.trainable_variables}) == 1


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


def test_taking_a_gradient_changes_nothing():
    pair = Pair()
    before = rows()
    batch = batches(1)[0]
    for _ in range(3):
        gradients_of(pair.ours, lambda: pair.ours.loss(batch))
    np.testing.assert_array_equal(rows(), before)
    assert het_tf.Table("t").updates == het_tf.Table("t").size == 0


def test_gradients_that_nobody_applies_are_counted():
    pair = Pair()
    batch = batches(1)[0]
    for _ in range(70):
        gradients_of(pair.ours, lambda: pair.ours.loss(batch))
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

    def step(model, optimizer, batch):
        first = gradients_of(model, lambda: model.loss(batch))
        dense = list(zip(first, model.variables, strict=True))[1:]
        norm = tf.linalg.global_norm([one for one, _ in dense])
        for gradient, variable in dense:
            variable.assign_add(0.05 * gradient / norm)
        second = gradients_of(model, lambda: model.loss(batch))
        for gradient, variable in dense:
            variable.assign_sub(0.05 * gradient / norm)
        optimizer.apply_gradients(zip(second, model.variables, strict=True))

    each(pair, step)
    pair.check()


# --- what loops do to gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_accumulation_by_hand(kind, mode):
    pair = Pair(kind)

    def step(model, optimizer, batch):
        ids, labels = batch
        parts = [
            gradients_of(model, lambda part=part: model.loss((ids[part::3], labels[part::3])) / 3.0)
            for part in range(3)
        ]
        optimizer.apply_gradients(zip(add(*parts), model.variables, strict=True))

    each(pair, step, mode)
    pair.check()
    assert het_tf.Table("t").updates == 4


@pytest.mark.parametrize("clip", ["global", "each", "scaled"])
def test_clipping_by_norm(clip):
    pair = Pair()

    def step(model, optimizer, batch):
        found = gradients_of(model, lambda: 7.0 * model.loss(batch))
        if clip == "global":
            found, _ = tf.clip_by_global_norm(found, 0.3)
        elif clip == "each":
            found = [tf.clip_by_norm(one, 0.2) for one in found]
        else:
            found = [one * 0.25 for one in found]
        optimizer.apply_gradients(zip(found, model.variables, strict=True))

    each(pair, step)
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

    def step(model, optimizer, batch):
        ids, labels = batch
        with tf.GradientTape(persistent=True) as tape:
            out = model(ids)
            one, two = tf.reduce_mean((out - labels) ** 2), tf.reduce_mean((out + 0.5) ** 2)
        first, second = tape.gradient(one, model.variables), tape.gradient(two, model.variables)
        # The head's gradients decide; rows follow with the same coefficients.
        dot = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(first[1:], second[1:], strict=True)])
        against = tf.minimum(dot, 0.0)
        squares = [tf.add_n([tf.reduce_sum(one**2) for one in of[1:]]) for of in (first, second)]
        found = [
            tf.convert_to_tensor(a) * (1 - against / squares[0])
            + tf.convert_to_tensor(b) * (1 - against / squares[1])
            for a, b in zip(first, second, strict=True)
        ]
        optimizer.apply_gradients(zip(found, model.variables, strict=True))

    each(pair, step, mode)
    pair.check(MODEL)
    assert het_tf.Table("t").updates == 4


def test_one_of_two_losses_of_a_persistent_tape():
    pair = Pair("adagrad")

    def step(model, optimizer, batch):
        ids, labels = batch
        with tf.GradientTape(persistent=True) as tape:
            out = model(ids)
            one, two = tf.reduce_mean((out - labels) ** 2), tf.reduce_mean((out + 0.5) ** 2)
        tape.gradient(one, model.variables)
        optimizer.apply_gradients(zip(tape.gradient(two, model.variables), model.variables, strict=True))

    each(pair, step)
    pair.check()


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

    def step(model, optimizer, batch):
        found = gradients_of(model, lambda: model.loss(batch))
        optimizer.apply_gradients(list(zip(found, model.variables, strict=True))[1:])

    before = rows()
    each(pair, step, mode)
    np.testing.assert_array_equal(rows(), before)
    pair.check()


def test_a_gan_trains_each_side_by_its_own_loss():
    pair = Pair("adagrad", tables=("g", "d"))

    def step(model, optimizer, batch):
        ids, labels = batch
        generator, discriminator, *head = model.variables
        for side, sign in ((generator, 1.0), (discriminator, -1.0)):
            with tf.GradientTape() as tape:
                product = model.layers[0](ids) * model.layers[1](ids)
                loss = sign * tf.reduce_mean((model.head(product) - labels) ** 2)
            wanted = [side] if sign > 0 else [side, *head]
            everything = tape.gradient(loss, model.variables)  # of the other side too, and not applied
            found = [
                g for g, v in zip(everything, model.variables, strict=True) if any(v is w for w in wanted)
            ]
            optimizer.apply_gradients(zip(found, wanted, strict=True))

    each(pair, step)
    pair.check()
    assert het_tf.Table("g").updates == het_tf.Table("d").updates == 4


def test_the_target_network_of_dqn_stays():
    pair = Pair("adagrad", tables=("online", "target"))

    def step(model, optimizer, batch):
        ids, labels = batch
        target = tf.stop_gradient(model((ids + 1) % IDS, 1))
        found = gradients_of(model, lambda: tf.reduce_mean((model(ids) - labels - 0.9 * target) ** 2))
        pairs = [(one, v) for one, v in zip(found, model.variables, strict=True) if one is not None]
        optimizer.apply_gradients(pairs)

    before = rows("target")
    each(pair, step)
    np.testing.assert_array_equal(rows("target"), before)
    pair.check()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_layer(frozen):
    pair = Pair("adagrad", tables=("a", "b"))
    for model in pair:
        model.layers[frozen].trainable = False

    def step(model, optimizer, batch):
        found = gradients_of(model, lambda: model.loss(batch) + model.loss(batch, 1))
        optimizer.apply_gradients(zip(found, model.variables, strict=True))

    each(pair, step)
    pair.check()
    assert [het_tf.Table(name).updates for name in "ab"] == [4 * (frozen == 1), 4 * (frozen == 0)]


def test_a_penalty_of_a_gradient_by_the_input():
    """The inner gradient is by what the head gets: the rows' own gradient is of the first order."""
    pair = Pair()

    def step(model, optimizer, batch):
        ids, labels = batch
        with tf.GradientTape() as outer:
            scale = tf.ones([8, DIM])
            with tf.GradientTape() as inner:
                inner.watch(scale)
                out = model.head(model.layers[0](ids) * scale)
                value = tf.reduce_mean((out - labels) ** 2)
            loss = value + tf.reduce_sum(inner.gradient(value, scale) ** 2)
        optimizer.apply_gradients(zip(outer.gradient(loss, model.variables), model.variables, strict=True))

    each(pair, step)
    pair.check()


def test_recomputed_gradients():
    pair = Pair("adagrad")

    def step(model, optimizer, batch):
        ids, labels = batch
        again = tf.recompute_grad(lambda ids: model.layers[0](ids))
        found = gradients_of(model, lambda: tf.reduce_mean((model.head(again(ids)) - labels) ** 2))
        optimizer.apply_gradients(zip(found, model.variables, strict=True))

    each(pair, step)
    pair.check()


@pytest.mark.parametrize("loop", ["map_fn", "while"])
def test_lookups_in_loops(loop):
    pair = Pair("adagrad")

    def step(model, optimizer, batch):
        ids, labels = batch

        def loss():
            if loop == "map_fn":
                parts = tf.map_fn(
                    lambda part: model.loss((part[0], part[1])),
                    (tf.reshape(ids, [4, 2]), tf.reshape(labels, [4, 2, 1])),
                    fn_output_signature=tf.float32,
                )
                return tf.reduce_mean(parts)
            total = tf.constant(0.0)
            for part in tf.range(4):
                total += model.loss((ids[part * 2 : part * 2 + 2], labels[part * 2 : part * 2 + 2])) / 4.0
            return total

        optimizer.apply_gradients(zip(gradients_of(model, loss), model.variables, strict=True))

    each(pair, tf.autograph.experimental.do_not_convert(step) if loop == "map_fn" else step)
    pair.check()
    assert het_tf.Table("t").updates == 4


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


# --- bad input ----------------------------------------------------------------------------------------


def ticket_of(pair, batch=None):
    variable = pair.ours.layers[0].anchor
    batch = batch or batches(1)[0]
    with tf.GradientTape() as tape:
        loss = pair.ours.loss(batch)
    return tape.gradient(loss, variable), variable


def test_applied_twice_is_two_updates():
    pair = Pair("adagrad")
    for model in pair:
        optimizer = pair.optimizer()
        found = gradients_of(model, lambda model=model: model.loss(batches(1)[0]))
        for _ in range(2):
            optimizer.apply_gradients(zip(found, model.variables, strict=True))
    pair.check()
    assert het_tf.Table("t").updates == 2


@pytest.mark.parametrize(
    "change",
    [tf.sign, lambda g: tf.clip_by_value(g, -1e-3, 1e-3), lambda g: tf.minimum(g, 0.5 * tf.reduce_max(g)),
     lambda g: g + 0.1, tf.square],
)  # fmt: skip
def test_a_change_that_is_not_linear_is_refused(change):
    pair = Pair()
    gradient, variable = ticket_of(pair)
    before = rows()
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError), match="'t'"):
        het_tf.apply([(change(gradient), variable)])
    np.testing.assert_array_equal(rows(), before)
    het_tf.apply([(gradient, variable)])  # the gradient is still there
    assert het_tf.Table("t").updates == 1


def test_a_dropped_gradient_is_refused():
    pair = Pair()
    old, variable = ticket_of(pair)
    for _ in range(63):
        ticket_of(pair)
    het_tf.apply([(old, variable)])
    old, _ = ticket_of(pair)
    for _ in range(64):
        ticket_of(pair)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"'t' .*newest 64 gradients"):
        het_tf.apply([(old, variable)])


def test_a_gradient_of_before_the_reset_is_refused():
    pair = Pair()
    old, variable = ticket_of(pair)
    het_tf.reset()
    with pytest.raises((RuntimeError, tf.errors.FailedPreconditionError), match="'t'"):
        het_tf.apply([(old, variable)])


def test_a_gradient_of_another_process_is_refused():
    pair = Pair()
    gradient, variable = ticket_of(pair)
    other = np.roll(gradient.numpy(), 7, 0)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=r"'t' .*newest 64 gradients.*no row was changed"
    ):
        het_tf.apply([(tf.constant(other), variable)])


def test_other_updates_of_the_variable_are_refused():
    pair = Pair()
    gradient, variable = ticket_of(pair)
    with pytest.raises(RuntimeError, match=r"'t' is assigned.*het_tf\.apply"):
        variable.assign(gradient)
    for move in (variable.assign_sub, variable.assign_add):
        with pytest.raises(RuntimeError, match=r"'t' are not moved.*het_tf\.apply"):
            move(0.1 * gradient)
    with pytest.raises(RuntimeError, match="is not an array"):
        variable.numpy()
    with pytest.raises(RuntimeError, match="is not an array"):
        variable.assign(np.zeros((64, 2), np.float32))


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_of_the_gradient_is_refused(mode):
    layer = Pair().ours.layers[0]

    def second(ids):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(layer(ids) ** 2)
            gradient = inner.gradient(loss, layer.trainable_variables[0])
        return outer.gradient(gradient, layer.trainable_variables[0])

    with pytest.raises(Exception, match=r"gradient of a gradient"):
        traced(mode, second)(tf.constant([1], tf.int64))


def test_a_rate_of_the_model_needs_an_optimizer():
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD("model"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1])))
    gradient = tape.gradient(loss, layer.anchor)
    with pytest.raises(RuntimeError, match="learning_rate='model'"):
        het_tf.apply([(gradient, layer.anchor)])
    before = het_tf.Table("t").lookup([1])
    keras.optimizers.SGD(0.25).apply_gradients([(gradient, layer.anchor)])
    np.testing.assert_allclose(het_tf.Table("t").lookup([1]), before - 0.25)
