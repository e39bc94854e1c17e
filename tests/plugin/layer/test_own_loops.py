"""A table is a variable: in every loop it learns what a variable of rows learns, and rests otherwise.

What loops do on each backend is tests/plugin/backends/test_training.py and test_uses_of_gradients.py.
"""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from backends_lib import DIM, IDS, Reference, rows
from floats_lib import MODEL, TRAINED, assert_close
from rules_lib import MODES, data, embedding, keras, make_model

import het_tf

pytestmark = pytest.mark.usefixtures("fresh")
LOOPS = {}

# Name -> the optimizer of a table, and Keras' own.
OPTIMIZERS = {
    "sgd": (lambda: het_tf.optimizers.SGD(0.1), lambda **more: keras.optimizers.SGD(0.1, **more)),
    "adagrad": (
        lambda: het_tf.optimizers.Adagrad(0.1, 0.1, 1e-7),
        lambda **more: keras.optimizers.Adagrad(0.1, **more),
    ),
}


class Pair:
    """Two equal models, `ours` and `theirs`; `layers_of`: for each layer the table, default: one a table."""

    def __init__(self, kind="sgd", tables=("t",), layers_of=None):
        table_optimizer, self.optimizer = OPTIMIZERS[kind]
        layers_of = layers_of or tables
        ours = [
            het_tf.keras.Embedding(DIM, name=f"layer_{i}", table=table, optimizer=table_optimizer())
            for i, table in enumerate(layers_of)
        ]
        self.references = {table: Reference(rows(table)) for table in tables}
        self.ours, self.theirs = Model(ours), Model([self.references[table] for table in layers_of])
        for model in self:
            model.head.build((None, DIM))
        self.theirs.head.set_weights(self.ours.head.get_weights())

    def __iter__(self):
        return iter((self.ours, self.theirs))

    def check(self, ulps=TRAINED):
        """Rows and dense weights are equal."""
        for table, reference in self.references.items():
            want = reference.get_weights()[0]
            assert_close(rows(table), want, ulps, magnitude=np.abs(want).max())
        for mine, other in zip(self.ours.head.get_weights(), self.theirs.head.get_weights(), strict=True):
            assert_close(mine, other, ulps, magnitude=max(1e-3, np.abs(other).max()))

    def train(self, gradients, mode="graph", steps=4, **options):
        """Trains both models on every batch by gradients(model, batch): of all variables, or pairs."""
        for model in self:
            model.optimizer = self.optimizer(**options)
            model.optimizer.build(model.variables)

            def step(*batch, model=model):
                found = gradients(model, batch)
                pairs = found if isinstance(found[0], tuple) else zip(found, model.variables, strict=True)
                if pairs := [(one, of) for one, of in pairs if one is not None]:
                    model.optimizer.apply_gradients(pairs)

            run = tf.function(step) if mode == "graph" else step
            for model.number, batch in enumerate(batches(steps)):
                run(*batch)


class Model:
    """Rows of layers, and a head: a loss that is not linear in the rows."""

    def __init__(self, layers):
        self.layers = layers
        self.head = keras.layers.Dense(1, "tanh", dtype="float32")

    @property
    def variables(self):
        unique = {id(one): one for layer in self.layers for one in layer.trainable_variables}
        return [*unique.values(), *self.head.trainable_variables]

    def __call__(self, ids, layer=0):
        return self.head(self.layers[layer](ids))

    def loss(self, batch, layer=0):
        ids, labels = batch
        return tf.reduce_mean((self(ids, layer) - labels) ** 2)

    def gradients(self, loss):
        """The gradients of loss() by all variables."""
        with tf.GradientTape() as tape:
            value = loss()
        return tape.gradient(value, self.variables)


def batches(steps=4, size=8, seed=1):
    """Ids [size], with equal ones, and labels [size, 1] of each step."""
    rng = np.random.default_rng(seed)
    return [
        (tf.constant(rng.integers(0, IDS, size)), tf.constant(rng.normal(size=(size, 1)), tf.float32))
        for _ in range(steps)
    ]


# --- loops ------------------------------------------------------------------------------------------------


def learns(kind="adagrad", modes=("graph",), updates=4, ulps=TRAINED, frozen=None, **pair):
    """Adds a loop of gradients(model, batch), and how often it updates each table; `frozen`: a layer."""

    def add(gradients):
        for mode in modes:
            LOOPS[f"{gradients.__name__}-{len(LOOPS)}"] = gradients, kind, mode, updates, ulps, frozen, pair
        return gradients

    return add


def summed(*lists):
    """The sums of the gradients of several steps."""
    return [tf.add_n([tf.convert_to_tensor(one) for one in of]) for of in zip(*lists, strict=True)]


def two_losses(model, batch):
    """The gradients of two losses, taken from one lookup."""
    ids, labels = batch
    with tf.GradientTape(persistent=True) as tape:
        out = model(ids)
        one, two = tf.reduce_mean((out - labels) ** 2), tf.reduce_mean((out + 0.5) ** 2)
    return tape.gradient(one, model.variables), tape.gradient(two, model.variables)


# --- one update of a row in one apply -------------------------------------------------------------------


@learns("sgd", MODES)
@learns("adagrad", MODES)
def two_calls(model, batch):
    ids, labels = batch
    return model.gradients(lambda: model.loss(batch) + model.loss((ids[::2], labels[1::2])))


@learns("sgd", MODES, layers_of=("t", "t"))
@learns("adagrad", MODES, layers_of=("t", "t"))
def two_layers(model, batch):
    return model.gradients(lambda: model.loss(batch) + model.loss(((batch[0] + 1) % IDS, batch[1]), 1))


@learns()
def recomputed(model, batch):
    ids, labels = batch
    again = tf.recompute_grad(lambda ids: model.layers[0](ids))
    return model.gradients(lambda: tf.reduce_mean((model.head(again(ids)) - labels) ** 2))


@learns()
@tf.autograph.experimental.do_not_convert
def mapped(model, batch):
    parts = (tf.reshape(batch[0], [4, 2]), tf.reshape(batch[1], [4, 2, 1]))
    losses = partial(tf.map_fn, model.loss, parts, fn_output_signature=tf.float32)
    return model.gradients(lambda: tf.reduce_mean(losses()))


@learns()
def looped(model, batch):
    ids, labels = batch

    def loss():
        total = tf.constant(0.0)
        for part in tf.range(4):
            total += model.loss((ids[part * 2 : part * 2 + 2], labels[part * 2 : part * 2 + 2])) / 4.0
        return total

    return model.gradients(loss)


@learns()
def penalised(model, batch):
    """The inner gradient is by what the head gets: the rows' own gradient is of the first order."""
    ids, labels = batch
    scale = tf.ones([8, DIM])

    def loss():
        with tf.GradientTape() as inner:
            inner.watch(scale)
            value = tf.reduce_mean((model.head(model.layers[0](ids) * scale) - labels) ** 2)
        return value + tf.reduce_sum(inner.gradient(value, scale) ** 2)

    return model.gradients(loss)


# --- what loops do to gradients --------------------------------------------------


@learns()
def accumulated_by_hand(model, batch):
    ids, labels = batch
    parts = [(ids[part::3], labels[part::3]) for part in range(3)]
    return summed(*(model.gradients(lambda part=part: model.loss(part) / 3.0) for part in parts))


@learns("sgd", ulps=MODEL)
def clipped_together(model, batch):
    return tf.clip_by_global_norm(model.gradients(lambda: 7.0 * model.loss(batch)), 0.3)[0]


@learns("sgd", ulps=MODEL)
def clipped(model, batch):
    return [tf.clip_by_norm(one, 0.2) for one in model.gradients(lambda: 7.0 * model.loss(batch))]


@learns("sgd", MODES, ulps=MODEL)
def two_losses_of_a_persistent_tape(model, batch):
    """PCGrad: each task's gradient loses what is against the other's, then both are added."""
    first, second = two_losses(model, batch)
    # The head's gradients decide; rows follow with the same coefficients.
    dot = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(first[1:], second[1:], strict=True)])
    squares = [tf.add_n([tf.reduce_sum(one**2) for one in of[1:]]) for of in (first, second)]
    against = [1 - tf.minimum(dot, 0.0) / one for one in squares]
    of_both = zip((first, second), against, strict=True)
    return summed(*([tf.convert_to_tensor(one) * factor for one in of] for of, factor in of_both))


@learns()
def one_of_two_losses(model, batch):
    return two_losses(model, batch)[1]


# --- some of the variables --------------------------------------------------------------------------------


@learns(modes=MODES, updates=0)
def a_subset(model, batch):
    return list(zip(model.gradients(lambda: model.loss(batch)), model.variables, strict=True))[1:]


@learns(tables=("a", "b"), frozen=0, updates=(0, 4))
@learns(tables=("a", "b"), frozen=1, updates=(4, 0))
def a_frozen_layer(model, batch):
    return model.gradients(lambda: model.loss(batch) + model.loss(batch, 1))


@learns(layers_of=("t", "t"), frozen=1)
def a_frozen_layer_of_a_table_that_another_one_trains(model, batch):
    ids, labels = batch

    def loss():
        other = tf.stop_gradient(model.layers[1]((ids + 1) % IDS))
        return model.loss(batch) + tf.reduce_mean((model.head(other) - labels) ** 2)

    return model.gradients(loss)


@learns("sgd", MODES)
def without_an_optimizer(model, batch):
    pairs = zip(model.gradients(lambda: model.loss(batch)), model.variables, strict=True)
    for gradient, variable in het_tf.apply(pairs):
        variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))
    return [None] * len(model.variables)


@pytest.mark.parametrize("name", LOOPS)
def test_a_table_learns_what_a_variable_learns(name):
    gradients, kind, mode, updates, ulps, frozen, more = LOOPS[name]
    pair = Pair(kind, **more)
    if frozen is not None:
        for model in pair:
            if model is pair.ours or "layers_of" not in more:
                model.layers[frozen].trainable = False
    pair.train(gradients, mode)
    pair.check(ulps)
    tables = [het_tf.Table(name) for name in pair.references]
    assert [one.updates for one in tables] == [*np.broadcast_to(updates, len(tables))]
    assert all(max(one.scan()["clocks"], default=0) <= 4 for one in tables)


def test_accumulation_of_a_layer_that_some_steps_do_not_use():
    """As Keras has it: the mean is over all steps, and what an update step does not use is left."""
    pair = Pair(tables=("a", "b"))

    def gradients(model, batch):
        return model.gradients(
            lambda: model.loss(batch) + (model.loss(batch, 1) if model.number % 3 else 0.0)
        )

    pair.train(gradients, "eager", 9, gradient_accumulation_steps=3)
    pair.check()
    assert het_tf.Table("a").updates == het_tf.Table("b").updates == 3


def test_skipped_steps_of_a_graph_and_gradients_that_are_applied_twice():
    pair = Pair("adagrad")
    for model in pair:
        optimizer = pair.optimizer()
        optimizer.build(model.variables)

        @tf.function
        def run(number, *batch, model=model, optimizer=optimizer):
            found = model.gradients(lambda: model.loss(batch))
            if number % 2 == 0:
                optimizer.apply_gradients(zip(found, model.variables, strict=True))

        for number, batch in enumerate(batches(6)):
            run(tf.constant(number), *batch)
        found = model.gradients(lambda model=model: model.loss(batches(1)[0]))
        for _ in range(2):
            optimizer.apply_gradients(zip(found, model.variables, strict=True))
    pair.check()
    assert het_tf.Table("t").updates == 5


def test_layers_that_share_some_tables_update_each_once():
    """The second layer has a table of the first, and one of its own: two variables."""
    shared, own = (het_tf.TableConfig(name, DIM, het_tf.optimizers.SGD(0.5), "zeros") for name in "so")
    first = het_tf.keras.EmbeddingCollection({"s": het_tf.FeatureConfig(shared)}, name="first")
    features = {"s": het_tf.FeatureConfig(shared), "o": het_tf.FeatureConfig(own)}
    both = het_tf.keras.EmbeddingCollection(features, name="both")
    variables = list({id(v): v for v in first.trainable_variables + both.trainable_variables}.values())
    assert len(variables) == 2
    ids = tf.constant([1, 1])
    with tf.GradientTape() as tape:
        found = both({"s": ids, "o": ids})
        loss = tf.reduce_sum(first({"s": ids})["s"]) + tf.reduce_sum(found["s"] + 3 * found["o"])
    keras.optimizers.SGD().apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    np.testing.assert_allclose([rows("s")[1], rows("o")[1]], [[-2.0] * DIM, [-3.0] * DIM])
    assert het_tf.Table("s").updates == het_tf.Table("o").updates == 1
    # Only one of the variables: the other table stays.
    with tf.GradientTape() as tape:
        found = both({"s": ids, "o": ids})
        loss = tf.reduce_sum(found["s"]) + tf.reduce_sum(found["o"])
    (of_shared,) = first.trainable_variables
    keras.optimizers.SGD().apply_gradients([(tape.gradient(loss, of_shared), of_shared)])
    np.testing.assert_allclose([rows("s")[1], rows("o")[1]], [[-3.0] * DIM] * 2)


def test_a_gradient_that_nobody_applies_changes_nothing_and_is_counted():
    pair = Pair()
    before = rows()
    batch = batches(1)[0]
    for _ in range(262):
        pair.ours.gradients(lambda: pair.ours.loss(batch))
    np.testing.assert_array_equal(rows(), before)
    assert het_tf.Table("t").updates == het_tf.Table("t").size == 0
    assert het_tf.Table("t").stats()["unapplied_gradients"] == 6
    assert het_tf.apply([(None, pair.ours.layers[0].anchor)]) == [] and het_tf.Table("t").updates == 0
    of_rows = [model.gradients(lambda m=model: m.loss(batch))[0] for model in pair]
    np.testing.assert_allclose(*(tf.norm(tf.convert_to_tensor(one)) for one in of_rows), rtol=1e-5)


def test_overflow_skips_step_and_lowers_scale():
    keras.mixed_precision.set_global_policy("mixed_float16")
    # float16 ends at 65504: a huge first scale overflows for some steps.
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=2.0**30)
    model = make_model(optimizer)
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    ids, labels = data(16)
    model.train_on_batch(ids, labels)
    assert float(tf.convert_to_tensor(optimizer.dynamic_scale)) == 2.0**29
    assert het_tf.Table("t").updates == 0
    np.testing.assert_array_equal(rows(), before)
    np.testing.assert_array_equal(model.layers[-1].get_weights()[0], kernel)
    for _ in range(40):
        model.train_on_batch(ids, labels)
    assert het_tf.Table("t").updates > 10
    assert all(np.isfinite(one).all() for one in (rows(), *model.layers[-1].get_weights()))


# --- what is refused; see also tests/plugin/backends/test_refused.py --------------------------------------


SPOILED = [
    (lambda ticket: tf.constant(np.roll(ticket.numpy(), 7, 0)),  # of another process
     r"'t' .*newest 64 gradients.*no row was changed"),
    (lambda ticket: (het_tf.reset(), ticket)[1], "'t'"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "words"), SPOILED)
def test_a_gradient_of_before_the_reset_or_of_another_process_is_refused(spoil, words):
    pair = Pair()
    anchor = pair.ours.layers[0].anchor
    ticket = pair.ours.gradients(lambda: pair.ours.loss(batches(1)[0]))[0]
    with pytest.raises((RuntimeError, tf.errors.FailedPreconditionError), match=words):
        het_tf.apply([(spoil(ticket), anchor)])


@pytest.mark.parametrize("wrapper", [tf.function, lambda function: function])
def test_a_gradient_of_the_gradient_is_refused(wrapper):
    layer = Pair().ours.layers[0]

    def second(ids):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(layer(ids) ** 2)
            gradient = inner.gradient(loss, layer.trainable_variables[0])
        return outer.gradient(gradient, layer.trainable_variables[0])

    with pytest.raises(Exception, match=r"gradient of a gradient"):
        wrapper(second)(tf.constant([1], tf.int64))


def test_a_rate_of_the_model_needs_an_optimizer():
    layer = embedding(het_tf.optimizers.SGD("model"))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1])))
    gradient = tape.gradient(loss, layer.anchor)
    with pytest.raises(RuntimeError, match="learning_rate='model'"):
        het_tf.apply([(gradient, layer.anchor)])


STRATEGIES = ["MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_are_refused_by_name(monkeypatch, name):
    """Would catch: replicas that each update the rows."""
    layer = embedding()
    before = rows()
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: object.__new__(getattr(tf.distribute, name)))
    refused = rf"'.*' is used under {name}, .* one rank a device, without a strategy: het run --nproc N"
    with pytest.raises(RuntimeError, match=refused):
        embedding(name="other")
    with pytest.raises(RuntimeError, match=refused):
        layer(tf.constant([1], tf.int64), training=True)
    np.testing.assert_array_equal(rows(), before)
