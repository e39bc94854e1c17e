"""Backprop is the update: rules 1 to 5 that keep it honest, one section each."""

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL, TRAINED, assert_close
from rules_lib import MODES, data, embedding, keras, make_model, rows, step

import het_tf

pytestmark = pytest.mark.usefixtures("fresh")


# --- 1: the anchor's gradient is an output of the update ------------------------------------------

OPTIMIZERS = [
    "SGD",
    "RMSprop",
    "Adam",
    "AdamW",
    "Adadelta",
    "Adagrad",
    "Adamax",
    "Adafactor",
    "Nadam",
    "Ftrl",
    "Lion",
    "Lamb",
    "Muon",
]
VARIANTS = {
    "plain": {},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "clipnorm_decay_ema": {
        "clipnorm": 1.0,
        "weight_decay": 1e-3,
        "use_ema": True,
        "ema_overwrite_frequency": 4,
    },
}


@pytest.mark.parametrize(
    ("name", "variant"),
    [*(("Adam", variant) for variant in VARIANTS), ("SGD", "plain"), ("Ftrl", "plain"),
     *(pytest.param(name, "plain", marks=pytest.mark.long) for name in OPTIMIZERS
       if name not in ("Adam", "SGD", "Ftrl"))],
)  # fmt: skip
def test_every_optimizer_trains_dense_and_table(name, variant):
    rate = 0.1 if name == "Ftrl" else 0.01
    optimizer = getattr(keras.optimizers, name)(learning_rate=rate, **VARIANTS[variant])
    model = make_model(optimizer)
    anchor, kernel = model.trainable_variables[:2]
    before_rows, before_kernel = rows(), kernel.numpy().copy()
    ids, labels = data()
    history = model.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    assert het_tf.Table("t").updates == 12
    assert np.abs(rows() - before_rows).min() > 0
    assert np.abs(kernel.numpy() - before_kernel).max() > 0
    assert float(tf.convert_to_tensor(anchor)) == 0.0
    assert history["loss"][1] < history["loss"][0]


@pytest.mark.parametrize("mode", MODES)
def test_a_table_learns_what_a_keras_embedding_learns(mode):
    """SGD on the rows, Adam on the rest: as keras.layers.Embedding with two optimizers."""
    table = embedding()
    reference = keras.layers.Embedding(10, 4)
    reference.build((None,))
    reference.set_weights([rows()])
    models = []
    for first in (table, reference):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((3,), dtype="int64")
        models.append(keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(first(inputs)))))
    ids, labels = data(64)
    ours, theirs = models
    theirs.layers[-1].set_weights(ours.layers[-1].get_weights())
    adam = [keras.optimizers.Adam(0.01) for _ in models]
    sgd = keras.optimizers.SGD(0.1)

    def train(ids, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((ours(ids, training=True) - labels) ** 2)
        adam[0].apply_gradients(
            zip(tape.gradient(loss, ours.trainable_variables), ours.trainable_variables, strict=True)
        )
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((theirs(ids, training=True) - labels) ** 2)
        gradients = tape.gradient(loss, theirs.trainable_variables)
        sgd.apply_gradients([(gradients[0], theirs.trainable_variables[0])])
        adam[1].apply_gradients(zip(gradients[1:], theirs.trainable_variables[1:], strict=True))

    run = tf.function(train) if mode == "graph" else train
    for i in range(0, 64, 8):
        run(tf.constant(ids[i : i + 8]), tf.constant(labels[i : i + 8]))
    assert_close(rows(), reference.get_weights()[0], TRAINED)
    for a, b in zip(ours.layers[-1].get_weights(), theirs.layers[-1].get_weights(), strict=True):
        assert_close(a, b, TRAINED)


def test_steps_per_execution_keeps_order():
    """Momentum and distinct batches: any other order gives other rows."""
    results = []
    for steps in (1, 4):
        het_tf.reset()
        keras.utils.set_random_seed(0)
        model = make_model(
            keras.optimizers.Adam(0.01),
            het_tf.optimizers.SGD(0.05, 0.9),
            steps_per_execution=steps,
        )
        model.fit(*data(), batch_size=8, epochs=1, verbose=0, shuffle=False)
        results.append((rows(), model.layers[-1].get_weights()[0]))
    for one, four in zip(*results, strict=True):
        assert_close(one, four)


def test_two_lookups_of_a_table_in_one_step_count():
    layer = embedding(initializer="zeros")
    other = embedding(initializer="zeros", name="second", table="t")

    def loss(_):
        return (
            tf.reduce_sum(layer(tf.constant([1])))
            + tf.reduce_sum(layer(tf.constant([1])))
            + tf.reduce_sum(other(tf.constant([1])))
        )

    variables = layer.trainable_variables + other.trainable_variables
    step(lambda ids: ids, [1], "graph", variables, loss)
    assert_close(rows([1]), np.full((1, 4), -0.3))
    assert het_tf.Table("t").updates == 3


# --- 2: the anchor goes in only where the table shall learn ---------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_frozen_layers_and_inference_do_not_train(mode):
    layer = embedding()
    before = rows()
    layer.trainable = False
    kernel = tf.Variable(1.0)
    loss = lambda x: tf.reduce_sum(x * kernel)  # noqa: E731
    step(layer, [1, 2], mode, [kernel], loss)
    layer.trainable = True
    step(lambda ids: layer(ids, training=False), [1, 2], mode, [kernel], loss)

    def quiet(ids):
        with het_tf.no_update():
            return layer(ids, training=True)

    step(quiet, [1, 2], mode, [kernel], loss)
    assert het_tf.Table("t").updates == 0
    np.testing.assert_array_equal(rows(), before)
    step(layer, [1, 2], mode)  # and this one does
    assert het_tf.Table("t").updates == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_frozen_model_trains_its_other_layers(mode):
    model = make_model()
    model.layers[1].trainable = False
    model.compile("sgd", "mse", run_eagerly=mode == "eager")
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    model.fit(*data(), verbose=0)
    np.testing.assert_array_equal(rows(), before)
    assert np.abs(model.layers[-1].get_weights()[0] - kernel).max() > 0
    model.trainable = False
    assert model.trainable_variables == []


# --- 3: a gradient is applied once ----------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_second_gradient_of_one_call_is_refused(mode):
    layer = embedding()

    def twice(ids):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(layer(ids))
        tape.gradient(loss, layer.trainable_variables)
        return tape.gradient(loss, layer.trainable_variables)

    with pytest.raises(tf.errors.FailedPreconditionError, match="used before"):
        (tf.function(twice) if mode == "graph" else twice)(tf.constant([1], tf.int64))
    assert het_tf.Table("t").updates == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_of_the_gradient_is_refused(mode):
    layer = embedding()

    def second(ids):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(layer(ids) ** 2)
            gradient = inner.gradient(loss, layer.trainable_variables[0])
        return outer.gradient(gradient, layer.trainable_variables[0])

    variable = layer.trainable_variables[0]
    del variable
    with pytest.raises(Exception, match=r"no_update\(\)"):
        (tf.function(second) if mode == "graph" else second)(tf.constant([1], tf.int64))


def test_gradient_penalty_without_update_trains_dense_only():
    layer = embedding()
    kernel = tf.Variable(tf.ones([4]))
    dense = tf.ones([2, 4])
    with tf.GradientTape() as outer:
        with het_tf.no_update(), tf.GradientTape() as inner:
            inner.watch(dense)
            value = tf.reduce_sum(layer(tf.constant([1, 2]), training=True) * dense * kernel)
        penalty = tf.reduce_sum(inner.gradient(value, dense) ** 2)
    assert np.abs(outer.gradient(penalty, kernel)).max() > 0
    assert het_tf.Table("t").updates == 0


# --- 4: loss scale --------------------------------------------------------------------------------


def fit_with_policy(policy, epochs=4):
    het_tf.reset()
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(policy)
    model = make_model(keras.optimizers.SGD(0.05), het_tf.optimizers.Adagrad(0.1))
    losses = model.fit(*data(), batch_size=16, epochs=epochs, verbose=0, shuffle=False).history["loss"]
    return losses, rows(), model


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_learns_what_float32_learns(policy):
    losses, want, _ = fit_with_policy("float32")
    mixed_losses, got, model = fit_with_policy(policy)
    assert model.layers[1](tf.constant([[1]])).dtype == policy.removeprefix("mixed_")
    np.testing.assert_allclose(mixed_losses, losses, rtol=0.03)
    np.testing.assert_allclose(got, want, atol=0.02)
    if policy == "mixed_float16":
        assert "LossScale" in type(model.optimizer).__name__


def test_overflow_skips_step_and_lowers_scale():
    keras.mixed_precision.set_global_policy("mixed_float16")
    # float16 ends at 65504: a huge first scale overflows for some steps.
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=2.0**30)
    model = make_model(optimizer)
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    ids, labels = data(16)
    model.train_on_batch(ids, labels)
    assert float(optimizer.dynamic_scale) == 2.0**29
    assert het_tf.Table("t").updates == 0
    np.testing.assert_array_equal(rows(), before)
    np.testing.assert_array_equal(model.layers[-1].get_weights()[0], kernel)
    for _ in range(40):
        model.train_on_batch(ids, labels)
    assert het_tf.Table("t").updates > 10
    assert np.isfinite(rows()).all()
    assert float(tf.convert_to_tensor(model.trainable_variables[0])) == 0.0


@pytest.mark.parametrize("mode", MODES)
def test_custom_loops_add_the_models_losses(mode):
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = make_model(mode=mode)
    before = rows([1, 2, 3])

    def run(ids, add):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids, training=True))
            if add:
                loss += tf.add_n(model.losses)
            scaled = loss * 256.0
        return tape.gradient(scaled, model.trainable_variables)

    run = tf.function(run) if mode == "graph" else run
    remedies = r"scale_loss\(loss\)\. .*tf\.add_n\(model\.losses\) .*dtype='float32', or use mixed_bfloat16"
    with pytest.raises(tf.errors.FailedPreconditionError, match=remedies):
        run(tf.constant([[1, 2, 3]], tf.int64), False)
    np.testing.assert_array_equal(rows([1, 2, 3]), before)
    run(tf.constant([[1, 2, 3]], tf.int64), True)
    kernel = model.layers[-1].get_weights()[0].reshape(3, 4)
    np.testing.assert_allclose(rows([1, 2, 3]), before - 0.1 * kernel, rtol=1e-2, atol=1e-4)


def test_a_float32_layer_of_a_float16_model_needs_no_loss_scale():
    keras.mixed_precision.set_global_policy("mixed_float16")
    inputs = keras.Input((), dtype="int64")
    model = keras.Model(
        inputs, keras.layers.Dense(1)(embedding(initializer="zeros", dtype="float32")(inputs))
    )
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(model(tf.constant([1], tf.int64), training=True), tf.float32))
    tape.gradient(loss, model.trainable_variables)
    kernel = model.layers[-1].get_weights()[0].reshape(1, 4)
    np.testing.assert_allclose(rows([1]), -0.1 * kernel, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("add", [False, True])
def test_only_the_loss_scale_is_divided_out(mode, policy, add):
    inputs = keras.Input((), dtype="int64")
    model = keras.Model(inputs, embedding(initializer="zeros", dtype=policy)(inputs))
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**9)

    def run(ids, scale):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(model(ids, training=True), tf.float32))
            if add:
                loss += tf.add_n(model.losses)
            loss = scale(loss / 4.0)
        return tape.gradient(loss, model.trainable_variables)

    run = tf.function(run) if mode == "graph" else run
    run(tf.constant([1], tf.int64), optimizer.scale_loss)
    assert_close(rows([1]), np.full((1, 4), -0.1 / 4))
    if policy == "float32":  # the next loss has not been scaled
        run(tf.constant([2], tf.int64), lambda loss: loss)
        assert_close(rows([2]), np.full((1, 4), -0.1 / 4))


def test_a_loss_scale_factor_is_divided_out():
    results = []
    for factor in (None, 64.0):
        het_tf.reset()
        keras.utils.set_random_seed(0)
        model = make_model(keras.optimizers.SGD(0.05, loss_scale_factor=factor))
        model.fit(*data(), batch_size=16, verbose=0, shuffle=False)
        results.append(rows())
    assert_close(*results, MODEL)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_gradient_without_loss_scale_raises(mode, bad):
    layer = embedding()
    before = rows()
    with pytest.raises(tf.errors.InvalidArgumentError, match="NaN or Inf; no row was changed"):
        step(layer, [1], mode, loss=lambda x: tf.reduce_sum(x) * bad)
    np.testing.assert_array_equal(rows(), before)


# --- 5: the anchor is no ordinary variable --------------------------------------------------------


def test_the_anchor_has_no_slots():
    model = make_model("adam")
    model.fit(*data(), verbose=0)
    anchor = model.layers[1].trainable_variables[0]
    assert anchor.overwrite_with_gradient
    names = [variable.path for variable in model.optimizer.variables]
    assert not any("anchor" in name for name in names)
    assert any("kernel" in name for name in names)


def test_skipped_step_leaves_no_nan_in_dense_weights():
    """Global-norm clipping over a NaN makes every gradient NaN."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    inner = keras.optimizers.Adam(0.01, global_clipnorm=1.0)
    model = make_model(keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=2.0**28))
    for _ in range(30):
        model.train_on_batch(*data(16))
    for weight in model.layers[-1].get_weights():
        assert np.isfinite(weight).all()
    assert het_tf.Table("t").updates > 0
