"""Backprop is the update: the nine rules that keep it honest, one section each."""

import gc
import warnings

import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf.python import owner

keras = tf.keras
KERAS_3 = owner.KERAS_3
pytestmark = [pytest.mark.tf215, pytest.mark.usefixtures("fresh")]
keras_3_only = pytest.mark.skipif(not KERAS_3, reason="Keras 2 has no such thing")

MODES = ["graph", "eager"]


def embedding(optimizer=None, dim=4, name="t", **more):
    return het_tf.keras.Embedding(dim, name=name, optimizer=optimizer or het_tf.optimizers.SGD(0.1), **more)


def rows(ids=range(10), name="t"):
    return het_tf.table(name).lookup(list(ids))


def make_model(optimizer="sgd", table_optimizer=None, mode="graph", loss="mse", **compile_args):
    ids = keras.Input((3,), dtype="int64")
    x = embedding(table_optimizer)(ids)
    outputs = keras.layers.Dense(1, dtype="float32")(keras.layers.Flatten()(x))
    model = keras.Model(ids, outputs)
    model.compile(optimizer, loss, run_eagerly=mode == "eager", **compile_args)
    return model


def data(n=96, seed=0):
    ids = np.random.default_rng(seed).integers(0, 10, (n, 3))
    return ids, (ids.sum(1, keepdims=True) / 10 - 1.4).astype(np.float32)


def step(model_or_layer, ids, mode, variables=None, loss=None):
    """One gradient of sum(output ** 2) with respect to all trainable variables."""

    def run(ids):
        with tf.GradientTape() as tape:
            value = (loss or (lambda x: tf.reduce_sum(x**2)))(model_or_layer(ids))
        return tape.gradient(value, variables or model_or_layer.trainable_variables)

    return (tf.function(run) if mode == "graph" else run)(tf.constant(ids, tf.int64))


# --- 1: the anchor's gradient is an output of the update ----------------------------------------------------------

OPTIMIZERS = ["SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam", "Ftrl", "Lion"]
OPTIMIZERS += ["Lamb", "Muon"] if KERAS_3 else []
VARIANTS = {
    "plain": {},
    "clipnorm": {"clipnorm": 1.0},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "weight_decay": {"weight_decay": 1e-3},
    "ema": {"use_ema": True, "ema_overwrite_frequency": 4},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_1_every_optimizer_trains_dense_and_table(name, variant):
    rate = 0.1 if name == "Ftrl" else 0.01
    optimizer = getattr(keras.optimizers, name)(learning_rate=rate, **VARIANTS[variant])
    model = make_model(optimizer)
    anchor, kernel = model.trainable_variables[:2]
    before_rows, before_kernel = rows(), kernel.numpy().copy()
    ids, labels = data()
    history = model.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False).history
    assert het_tf.table("t").applies == 12
    assert np.abs(rows() - before_rows).min() > 0
    assert np.abs(kernel.numpy() - before_kernel).max() > 0
    assert float(tf.convert_to_tensor(anchor)) == 0.0
    assert history["loss"][1] < history["loss"][0]


@pytest.mark.parametrize("mode", MODES)
def test_1_a_table_learns_what_a_keras_embedding_learns(mode):
    """SGD on the rows, Adam on the rest: the numbers of a model with keras.layers.Embedding and two optimizers."""
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
        adam[0].apply_gradients(zip(tape.gradient(loss, ours.trainable_variables), ours.trainable_variables))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((theirs(ids, training=True) - labels) ** 2)
        gradients = tape.gradient(loss, theirs.trainable_variables)
        sgd.apply_gradients([(gradients[0], theirs.trainable_variables[0])])
        adam[1].apply_gradients(zip(gradients[1:], theirs.trainable_variables[1:]))

    run = tf.function(train) if mode == "graph" else train
    for i in range(0, 64, 8):
        run(tf.constant(ids[i : i + 8]), tf.constant(labels[i : i + 8]))
    np.testing.assert_allclose(rows(), reference.get_weights()[0], rtol=1e-4, atol=1e-6)
    for a, b in zip(ours.layers[-1].get_weights(), theirs.layers[-1].get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_1_steps_per_execution_keeps_order(optimizer):
    """Momentum and distinct batches: any other order gives other rows."""
    results = []
    for steps in (1, 4):
        het_tf.reset()
        keras.utils.set_random_seed(0)
        model = make_model(
            getattr(keras.optimizers, optimizer)(0.01), het_tf.optimizers.Momentum(0.05), steps_per_execution=steps
        )
        model.fit(*data(), batch_size=8, epochs=1, verbose=0, shuffle=False)
        results.append((rows(), model.layers[-1].get_weights()[0]))
    for one, four in zip(*results, strict=True):
        np.testing.assert_allclose(one, four, rtol=1e-6, atol=1e-7)


def test_1_a_loop_inside_a_graph_keeps_order():
    ids, labels = data(64)

    def train(graph):
        het_tf.reset()
        keras.utils.set_random_seed(0)
        model = make_model(table_optimizer=het_tf.optimizers.Momentum(0.05))
        optimizer = keras.optimizers.Adam(0.01)
        (optimizer.build(model.trainable_variables))
        batches = tf.constant(ids.reshape(8, 8, 3)), tf.constant(labels.reshape(8, 8, 1))

        def run():
            for i in tf.range(8) if graph else range(8):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(batches[0][i], training=True) - batches[1][i]) ** 2)
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        (tf.function(run) if graph else run)()
        return rows()

    np.testing.assert_allclose(train(True), train(False), rtol=1e-6, atol=1e-7)


def test_1_two_lookups_of_one_table_in_a_step_both_count():
    layer = embedding(initializer="zeros")
    other = embedding(initializer="zeros", name="second", table="t")

    def loss(_):
        return tf.reduce_sum(layer(tf.constant([1]))) + tf.reduce_sum(layer(tf.constant([1]))) + tf.reduce_sum(
            other(tf.constant([1]))
        )

    variables = layer.trainable_variables + other.trainable_variables
    step(lambda ids: ids, [1], "graph", variables, loss)
    np.testing.assert_allclose(rows([1]), np.full((1, 4), -0.3), rtol=1e-6)
    assert het_tf.table("t").applies == 3


# --- 2: the anchor goes in only where the table shall learn -----------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_2_frozen_layers_and_inference_do_not_train(mode):
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
    assert het_tf.table("t").applies == 0
    np.testing.assert_array_equal(rows(), before)
    step(layer, [1, 2], mode)  # and this one does
    assert het_tf.table("t").applies == 1


@pytest.mark.parametrize("mode", MODES)
def test_2_a_frozen_model_trains_its_other_layers(mode):
    model = make_model()
    model.layers[1].trainable = False
    model.compile("sgd", "mse", run_eagerly=mode == "eager")
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    model.fit(*data(), verbose=0)
    np.testing.assert_array_equal(rows(), before)
    assert np.abs(model.layers[-1].get_weights()[0] - kernel).max() > 0
    model.trainable = False
    assert model.trainable_variables == []


def test_2_evaluate_and_predict_do_not_train():
    model = make_model()
    ids, labels = data()
    model.fit(ids, labels, verbose=0)
    before, applies = rows(), het_tf.table("t").applies
    model.evaluate(ids, labels, verbose=0)
    model.predict(ids, verbose=0)
    model(ids)
    model(ids, training=False)
    assert het_tf.table("t").applies == applies
    np.testing.assert_array_equal(rows(), before)


@pytest.mark.parametrize("mode", MODES)
def test_2_saliency_does_not_train(mode):
    layer = embedding()
    dense = tf.constant([[1.0, 2.0, 3.0, 4.0]])

    def saliency(ids):
        with tf.GradientTape() as tape:
            tape.watch(dense)
            loss = tf.reduce_sum(layer(ids, training=False) * dense)
        return tape.gradient(loss, dense)

    (tf.function(saliency) if mode == "graph" else saliency)(tf.constant([1, 2], tf.int64))
    assert het_tf.table("t").applies == 0


# --- 3: a gradient is applied once --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_3_a_second_gradient_of_one_call_is_refused(mode):
    layer = embedding()

    def twice(ids):
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(layer(ids))
        tape.gradient(loss, layer.trainable_variables)
        return tape.gradient(loss, layer.trainable_variables)

    with pytest.raises(tf.errors.FailedPreconditionError, match="used before"):
        (tf.function(twice) if mode == "graph" else twice)(tf.constant([1], tf.int64))
    assert het_tf.table("t").applies == 1


@pytest.mark.parametrize("mode", MODES)
def test_3_a_gradient_of_the_gradient_is_refused(mode):
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


def test_3_a_gradient_penalty_with_no_update_trains_the_dense_part_alone():
    layer = embedding()
    kernel = tf.Variable(tf.ones([4]))
    dense = tf.ones([2, 4])
    with tf.GradientTape() as outer:
        with het_tf.no_update(), tf.GradientTape() as inner:
            inner.watch(dense)
            value = tf.reduce_sum(layer(tf.constant([1, 2]), training=True) * dense * kernel)
        penalty = tf.reduce_sum(inner.gradient(value, dense) ** 2)
    assert np.abs(outer.gradient(penalty, kernel)).max() > 0
    assert het_tf.table("t").applies == 0


# --- 4: loss scale --------------------------------------------------------------------------------------------------


def fit_with_policy(policy, epochs=4):
    het_tf.reset()
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(policy)
    model = make_model(keras.optimizers.SGD(0.05), het_tf.optimizers.Adagrad(0.1))
    losses = model.fit(*data(), batch_size=16, epochs=epochs, verbose=0, shuffle=False).history["loss"]
    return losses, rows(), model


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_4_mixed_precision_learns_what_float32_learns(policy):
    losses, want, _ = fit_with_policy("float32")
    mixed_losses, got, model = fit_with_policy(policy)
    assert model.layers[1](tf.constant([[1]])).dtype == policy.removeprefix("mixed_")
    np.testing.assert_allclose(mixed_losses, losses, rtol=0.03)
    np.testing.assert_allclose(got, want, atol=0.02)
    if policy == "mixed_float16":
        assert "LossScale" in type(model.optimizer).__name__


def test_4_an_overflow_skips_table_and_dense_and_lowers_the_scale():
    keras.mixed_precision.set_global_policy("mixed_float16")
    # float16 ends at 65504: a huge first scale overflows for some steps.
    scale = {"initial_scale": 2.0**30} if KERAS_3 else {"initial_scale": 2.0**30, "dynamic": True}
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.05), **scale)
    model = make_model(optimizer)
    before, kernel = rows(), model.layers[-1].get_weights()[0]
    ids, labels = data(16)
    model.train_on_batch(ids, labels)
    now = optimizer.dynamic_scale if KERAS_3 else optimizer.loss_scale
    assert float(tf.convert_to_tensor(now)) == 2.0**29
    assert het_tf.table("t").applies == 0
    np.testing.assert_array_equal(rows(), before)
    np.testing.assert_array_equal(model.layers[-1].get_weights()[0], kernel)
    for _ in range(40):
        model.train_on_batch(ids, labels)
    assert het_tf.table("t").applies > 10
    assert np.isfinite(rows()).all()
    assert float(tf.convert_to_tensor(model.trainable_variables[0])) == 0.0


@pytest.mark.parametrize("mode", MODES)
def test_4_custom_loops_add_the_models_losses(mode):
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
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"tf\.add_n\(model\.losses\)"):
        run(tf.constant([[1, 2, 3]], tf.int64), False)
    run(tf.constant([[1, 2, 3]], tf.int64), True)
    kernel = model.layers[-1].get_weights()[0].reshape(3, 4)
    np.testing.assert_allclose(rows([1, 2, 3]), before - 0.1 * kernel, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_4_without_a_loss_scale_a_gradient_that_is_not_finite_raises(mode, bad):
    layer = embedding()
    before = rows()
    with pytest.raises(tf.errors.InvalidArgumentError, match="NaN or Inf; no row was changed"):
        step(layer, [1], mode, loss=lambda x: tf.reduce_sum(x) * bad)
    np.testing.assert_array_equal(rows(), before)


# --- 5: the anchor is no ordinary variable --------------------------------------------------------------------------


@keras_3_only
def test_5_the_anchor_has_no_slots():
    model = make_model("adam")
    model.fit(*data(), verbose=0)
    anchor = model.layers[1].trainable_variables[0]
    assert anchor.overwrite_with_gradient
    names = [variable.path for variable in model.optimizer.variables]
    assert not any("anchor" in name for name in names)
    assert any("kernel" in name for name in names)


def test_5_a_skipped_step_puts_no_nan_into_the_rest():
    """Global-norm clipping over a NaN makes every gradient NaN."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    inner = keras.optimizers.Adam(0.01, global_clipnorm=1.0)
    model = make_model(keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=2.0**28))
    for _ in range(30):
        model.train_on_batch(*data(16))
    for weight in model.layers[-1].get_weights():
        assert np.isfinite(weight).all()
    assert het_tf.table("t").applies > 0


# --- 6: no XLA --------------------------------------------------------------------------------------------------------


@keras_3_only
def test_6_keras_does_not_compile_a_model_with_tables():
    from keras.src.trainers.trainer import model_supports_jit

    assert not embedding(name="u").supports_jit
    assert not model_supports_jit(make_model())
    model = make_model(jit_compile="auto")
    assert not model.jit_compile
    model.fit(*data(), verbose=0)


# --- 7: ids stay ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("kind", ["functional", "sequential", "subclassed"])
def test_7_large_ids_stay_apart(kind, policy):
    keras.mixed_precision.set_global_policy(policy)
    layer = embedding(combiner="sum")
    if kind == "functional":
        inputs = keras.Input((2,), dtype="int64")
        model = keras.Model(inputs, layer(inputs))
    elif kind == "sequential":
        first = keras.Input((2,), dtype="int64") if KERAS_3 else keras.layers.InputLayer((2,), dtype="int64")
        model = keras.Sequential([first, layer])
    else:

        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.embedding = layer

            def call(self, ids):
                return self.embedding(ids)

        model = Model()
    ids = np.array([[2**53, 2**53 + 1], [2**24, 2**24 + 1], [2**31 - 1, -(2**63)]])
    step(model, ids, "graph", loss=lambda x: tf.reduce_sum(tf.cast(x, tf.float32)) + tf.add_n(model.losses))
    np.testing.assert_array_equal(het_tf.table("t").to_numpy()[0], np.sort(ids.ravel()))


@pytest.mark.parametrize("kind", ["eager", "functional", "sequential"])
def test_7_float_ids_are_refused(kind):
    with pytest.raises(ValueError, match='ids are float32.*dtype="int64"'):
        if kind == "eager":
            embedding()(tf.constant([1.0]))
        elif kind == "functional":
            embedding()(keras.Input((2,)))
        else:
            model = keras.Sequential([embedding(), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.build((None, 2))
            model.predict(np.ones((2, 2), np.float32), verbose=0)


@keras_3_only
def test_7_the_output_spec_does_not_depend_on_the_kind_of_input():
    layer = embedding(combiner="mean")
    specs = {
        kind: layer(keras.Input((5,), dtype="int64", **more))
        for kind, more in {"dense": {}, "ragged": {"ragged": True}, "sparse": {"sparse": True}}.items()
    }
    assert {(spec.shape, spec.dtype) for spec in specs.values()} == {((None, 4), "float32")}


# --- 8: learning rates and accumulation -----------------------------------------------------------------------------


def unit_steps(rate, count, mode, change=None):
    """Trains row 1 with gradient 1 `count` times and returns how far each step went."""
    layer = embedding(het_tf.optimizers.SGD(rate), initializer="zeros")
    moved = [0.0]

    def run(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids))
        return tape.gradient(loss, layer.trainable_variables)

    run = tf.function(run) if mode == "graph" else run
    for i in range(count):
        if change:
            change(i)
        run(tf.constant([1], tf.int64))
        moved.append(-float(rows([1])[0, 0]))
    return np.diff(moved)


@pytest.mark.parametrize("mode", MODES)
def test_8_a_schedule_counts_the_updates_of_the_table(mode):
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    np.testing.assert_allclose(unit_steps(schedule, 4, mode), [1, 0.5, 0.25, 0.125], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_8_a_variable_is_read_at_every_update(mode):
    rate = tf.Variable(1.0)
    moved = unit_steps(rate, 3, mode, change=lambda i: rate.assign(float(i + 1)))
    np.testing.assert_allclose(moved, [1, 2, 3], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_8_model_follows_the_compiled_optimizer(mode):
    inputs = keras.Input((), dtype="int64")
    model = keras.Model(inputs, embedding(het_tf.optimizers.SGD("model"), initializer="zeros")(inputs))
    model.compile(keras.optimizers.Adam(0.5), loss=lambda y, x: tf.reduce_sum(x), run_eagerly=mode == "eager")
    ids = np.array([1])
    model.train_on_batch(ids, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-0.5] * 4], rtol=1e-5)
    model.optimizer.learning_rate.assign(0.25)
    model.train_on_batch(ids, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-0.75] * 4], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_8_model_without_an_optimizer_is_refused(mode):
    with pytest.raises(RuntimeError, match="call model.compile"):
        step(embedding(het_tf.optimizers.SGD("model")), [1], mode)


@keras_3_only
@pytest.mark.parametrize("mode", MODES)
def test_8_gradient_accumulation_scales_the_table(mode):
    inputs = keras.Input((), dtype="int64")
    layer = embedding(het_tf.optimizers.SGD(1.0), initializer="zeros")
    model = keras.Model(inputs, layer(inputs))
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=4)
    model.compile(optimizer, loss=lambda y, x: tf.reduce_sum(x), run_eagerly=mode == "eager")
    for _ in range(4):
        model.train_on_batch(np.array([1]), np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-1.0] * 4], rtol=1e-6)
    assert float(tf.convert_to_tensor(layer.trainable_variables[0])) == 0.0


@pytest.mark.parametrize("scale, want", [("mean", -0.25), ("sum", -1.0)])
def test_8_gradients_are_scaled_by_the_number_of_workers(scale, want):
    class FourWorkers:
        @staticmethod
        def size():
            return 4

    het_tf.init(hvd=FourWorkers, gradient_scale=scale)
    unit_steps(1.0, 1, "graph")
    np.testing.assert_allclose(rows([1]), [[want] * 4])


# --- 9: what saving does not hold, it says --------------------------------------------------------------------------


def warns():
    return pytest.warns(het_tf.TablesNotSavedWarning, match="without the rows of table 't'")


@pytest.mark.parametrize("how", ["keras", "weights_h5", "checkpoint", "get_weights"])
def test_9_saving_says_that_tables_are_not_inside(tmp_path, how):
    model = make_model()
    model.fit(*data(), verbose=0)
    with warns():
        if how == "keras":
            model.save(tmp_path / "model.keras")
        elif how == "weights_h5":
            model.save_weights(str(tmp_path / "model.weights.h5"))
        elif how == "checkpoint":
            tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
        else:
            model.get_weights()


@pytest.mark.parametrize("name", ["EarlyStopping", "ModelCheckpoint", "BackupAndRestore"])
def test_9_callbacks_that_keep_weights_say_so(tmp_path, name):
    callback = {
        "EarlyStopping": lambda: keras.callbacks.EarlyStopping("loss", restore_best_weights=True),
        "ModelCheckpoint": lambda: keras.callbacks.ModelCheckpoint(
            str(tmp_path / "best.weights.h5"), save_weights_only=True
        ),
        "BackupAndRestore": lambda: keras.callbacks.BackupAndRestore(str(tmp_path / "backup")),
    }[name]()
    model = make_model()
    with warns():
        model.fit(*data(), verbose=0, epochs=2, callbacks=[callback])


def test_9_training_itself_warns_of_nothing():
    model = make_model("adam")
    with warnings.catch_warnings():
        warnings.simplefilter("error", het_tf.TablesNotSavedWarning)
        model.fit(*data(), verbose=0)
        model.evaluate(*data(), verbose=0)
        model.summary(print_fn=lambda *args, **kwargs: None)


def test_9_loading_says_so_too(tmp_path):
    model = make_model()
    path = str(tmp_path / "model.weights.h5")
    with warns():
        model.save_weights(path)
    with warns():
        model.load_weights(path)


def test_9_a_clone_reads_but_does_not_train_the_originals_table():
    model = make_model()
    clone = keras.models.clone_model(model)
    clone.compile("sgd", "mse")
    ids, labels = data()
    before = rows()
    clone.predict(ids, verbose=0)
    with pytest.raises(RuntimeError, match=r'(?s)is a copy.*with het_tf.namespace\("copy"\)'):
        clone.fit(ids, labels, verbose=0)
    np.testing.assert_array_equal(rows(), before)
    model.fit(ids, labels, verbose=0)  # the original goes on
    assert np.abs(rows() - before).max() > 0


def test_9_a_clone_in_a_namespace_has_tables_of_its_own():
    model = make_model()
    with het_tf.namespace("copy"):
        clone = keras.models.clone_model(model)
        assert het_tf.table("t").size == 0
    clone.compile("sgd", "mse")
    before = rows()
    clone.fit(*data(), verbose=0)
    np.testing.assert_array_equal(rows(), before)
    assert het_tf.Table("t", namespace="copy").size == 10
    het_tf.reset("copy")


def test_9_a_copy_may_train_when_the_original_is_gone_or_allows_it():
    model = make_model()
    clone = keras.models.clone_model(model)
    clone.compile("sgd", "mse")
    clone.layers[1].share_tables()
    clone.fit(*data(), verbose=0)

    second = keras.models.clone_model(model)
    second.compile("sgd", "mse")
    del model, clone
    keras.backend.clear_session()
    gc.collect()
    second.fit(*data(), verbose=0)
