"""Backprop is the update: rules 6 to 9 that keep it honest, one section each."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from played_lib import Played
from rules_lib import MODES, data, embedding, keras, make_model, rows, step

import het_tf
from het_tf.python.session import settings

pytestmark = pytest.mark.usefixtures("fresh")


# --- 6: no XLA ------------------------------------------------------------------------------------


def test_keras_does_not_compile_a_model_with_tables():
    from keras.src.trainers.trainer import model_supports_jit

    assert not embedding(name="u").supports_jit
    assert not model_supports_jit(make_model())
    model = make_model(jit_compile="auto")
    assert not model.jit_compile
    model.fit(*data(), verbose=0)


# --- 7: ids stay ids ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("kind", ["functional", "sequential", "subclassed"])
def test_large_ids_stay_apart(kind, policy):
    keras.mixed_precision.set_global_policy(policy)
    layer = embedding(combiner="sum")
    if kind == "functional":
        inputs = keras.Input((2,), dtype="int64")
        model = keras.Model(inputs, layer(inputs))
    elif kind == "sequential":
        model = keras.Sequential([keras.Input((2,), dtype="int64"), layer])
    else:

        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.embedding = layer

            def call(self, ids):
                return self.embedding(ids)

        model = Model()
    ids = np.array([[2**53, 2**53 + 1], [2**24, 2**24 + 1], [2**31 - 1, 1 - 2**63]])
    step(model, ids, "graph", loss=lambda x: tf.reduce_sum(tf.cast(x, tf.float32)))
    np.testing.assert_array_equal(het_tf.Table("t").to_numpy()[0], np.sort(ids.ravel()))


def test_output_spec_is_equal_for_all_inputs():
    layer = embedding(combiner="mean")
    specs = {
        kind: layer(keras.Input((5,), dtype="int64", **more))
        for kind, more in {"dense": {}, "ragged": {"ragged": True}, "sparse": {"sparse": True}}.items()
    }
    assert {(spec.shape, spec.dtype) for spec in specs.values()} == {((None, 4), "float32")}


# --- 8: learning rates and accumulation -----------------------------------------------------------


def unit_steps(rate, count, mode, change=None):
    """Trains row 1 with gradient 1 `count` times and returns how far each step went."""
    layer = embedding(het_tf.optimizers.SGD(rate), initializer="zeros")
    moved = [0.0]

    def run(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids))
        gradients = tape.gradient(loss, layer.trainable_variables)
        het_tf.apply(zip(gradients, layer.trainable_variables, strict=True))

    run = tf.function(run) if mode == "graph" else run
    for i in range(count):
        if change:
            change(i)
        run(tf.constant([1], tf.int64))
        moved.append(-float(rows([1])[0, 0]))
    return np.diff(moved)


@pytest.mark.parametrize("mode", MODES)
def test_a_schedule_counts_the_updates_of_the_table(mode):
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    np.testing.assert_allclose(unit_steps(schedule, 4, mode), [1, 0.5, 0.25, 0.125], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_variable_is_read_at_every_update(mode):
    rate = tf.Variable(1.0)
    moved = unit_steps(rate, 3, mode, change=lambda i: rate.assign(float(i + 1)))
    np.testing.assert_allclose(moved, [1, 2, 3], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_model_follows_the_compiled_optimizer(mode):
    inputs = keras.Input((), dtype="int64")
    model = keras.Model(inputs, embedding(het_tf.optimizers.SGD("model"), initializer="zeros")(inputs))
    model.compile(keras.optimizers.Adam(0.5), loss=lambda y, x: tf.reduce_sum(x), run_eagerly=mode == "eager")
    ids = np.array([1])
    model.train_on_batch(ids, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-0.5] * 4], rtol=1e-5)
    model.optimizer.learning_rate.assign(0.25)
    model.train_on_batch(ids, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-0.75] * 4], rtol=1e-5)


@pytest.mark.parametrize("scale, want", [("mean", -0.25), ("sum", -1.0)])
def test_gradients_are_scaled_by_the_number_of_workers(scale, want, monkeypatch):
    het_tf.init(gradient_scale=scale)
    # Past init(), which wants a real Horovod and a server for its ranks.
    monkeypatch.setattr(settings.current, "hvd", Played(ranks=4))
    layer = embedding(het_tf.optimizers.SGD(1.0), initializer="zeros")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1])))
    variables = layer.trainable_variables
    gradients = het_tf.horovod.reduce_gradients(tape.gradient(loss, variables), variables)
    het_tf.apply(zip(gradients, variables, strict=True))
    np.testing.assert_allclose(rows([1]), [[want] * 4])


# --- 9: copies have tables of their own (test_whose_table.py has the rest) -----------------------------


def test_training_itself_warns_of_nothing():
    model = make_model("adam")
    with warnings.catch_warnings():
        warnings.simplefilter("error", het_tf.TablesNotSavedWarning)
        model.fit(*data(), verbose=0)
        model.evaluate(*data(), verbose=0)
        model.summary(print_fn=lambda *args, **kwargs: None)


def test_a_clone_trains_a_table_of_its_own():
    model = make_model()
    ids, labels = data()
    model.fit(ids, labels, verbose=0)
    before = rows()
    clone = keras.models.clone_model(model)
    clone.compile("sgd", "mse")
    clone.fit(ids, labels, verbose=0)
    np.testing.assert_array_equal(rows(), before)
    assert het_tf.tables() == ["t", "t@2"]


def test_clone_in_namespace_has_own_tables():
    model = make_model()
    with het_tf.namespace("copy"):
        clone = keras.models.clone_model(model)
        assert het_tf.Table("t").size == 0
    clone.compile("sgd", "mse")
    before = rows()
    clone.fit(*data(), verbose=0)
    np.testing.assert_array_equal(rows(), before)
    assert het_tf.Table("t", namespace="copy").size == 10
    het_tf.reset("copy")
