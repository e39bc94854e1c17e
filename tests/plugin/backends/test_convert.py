"""het_tf.convert on each backend: equal rows, predictions and steps; the masks; what is refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, IDS, array

import het_tf

quiet = pytest.mark.filterwarnings("ignore::het_tf.ConversionWarning")
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.8, nesterov=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, rho=0.8, epsilon=1e-3),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1, epsilon=1e-3),
    "adam": lambda: keras.optimizers.Adam(0.01, beta_1=0.8, epsilon=1e-3),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.001, beta=0.1),
    "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
    "scaled": lambda: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.Adam(0.01, epsilon=1e-3), initial_scale=64.0
    ),
}


def clicks(optimizer=None, **options):
    """A model of ids and numbers; each batch of `batches` has all ids, so that lazy is not another rule."""
    ids = keras.Input((), dtype="int32", name="item")
    numbers = keras.Input((2,), name="numbers")
    rows = keras.layers.Embedding(IDS, 4, name="item_rows")(ids)
    x = keras.layers.Dense(5, activation="tanh")(keras.layers.Concatenate()([rows, numbers]))
    model = keras.Model({"item": ids, "numbers": numbers}, keras.layers.Dense(1)(x))
    if optimizer is not None:
        model.compile(optimizer, "mse", **options)
    return model


def batches(number):
    rng = np.random.default_rng(number)
    for _ in range(number):
        numbers = rng.normal(size=(IDS, 2)).astype("float32")
        labels = rng.normal(size=(IDS, 1)).astype("float32")
        yield {"item": rng.permutation(IDS).astype("int32"), "numbers": numbers}, labels


def equal(old, new, x):
    np.testing.assert_array_equal(array(old(x, training=False)), array(new(x, training=False)))


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_nothing_had_happened(name):
    old = clicks(OPTIMIZERS[name]())
    for x, y in batches(4):
        old.train_on_batch(x, y)
    new = het_tf.convert(old, verbose=False)
    equal(old, new, x)
    assert int(array(new.optimizer.iterations)) == 4
    for x, y in batches(5):
        old.train_on_batch(x, y)
        new.train_on_batch(x, y)
    ids, rows = het_tf.Table("item_rows").to_numpy()
    np.testing.assert_array_equal(ids, np.arange(IDS))
    np.testing.assert_allclose(rows, old.get_layer("item_rows").get_weights()[0], rtol=0, atol=2e-6)
    np.testing.assert_allclose(array(old(x)), array(new(x)), rtol=0, atol=1e-5)


def test_a_sequential_model_whose_ids_were_floats_with_a_mask():
    old = keras.Sequential(
        [keras.layers.Embedding(9, 2, mask_zero=True, name="e"), keras.layers.LSTM(2), keras.layers.Dense(1)]
    )
    ids = np.array([[3, 5, 0, 0], [1, 0, 2, 0], [8, 7, 6, 5]])
    old(ids)
    new = het_tf.convert(old, verbose=False)
    assert isinstance(new.layers[0], het_tf.python.layer.masked.MaskedEmbedding)
    assert keras.backend.is_int_dtype(new.inputs[0].dtype)
    equal(old, new, ids)
    assert het_tf.Table("e").size == 9


def test_nested_models_and_shared_layers():
    tower = keras.Sequential(
        [keras.Input((3,), dtype="int32"), keras.layers.Embedding(9, 2, name="e"), keras.layers.Flatten()],
        name="tower",
    )
    a, b = keras.Input((3,), dtype="int32", name="a"), keras.Input((3,), dtype="int32", name="b")
    direct = keras.layers.Embedding(9, 2, name="e")
    old = keras.Model([a, b], keras.layers.Concatenate()([tower(a), tower(b), direct(b)[:, 0]]))
    new = het_tf.convert(old, verbose=False)
    rng = np.random.default_rng(0)
    equal(old, new, [rng.integers(0, 9, (5, 3)).astype("int32") for _ in "ab"])
    assert sorted(het_tf.tables()) == ["e", "tower_e"]


@quiet
def test_what_is_compiled_is_compiled_where_it_can_be():
    old = clicks("sgd", jit_compile=BACKEND == "jax")
    new = het_tf.convert(old, verbose=False)
    x, y = next(batches(1))
    new.train_on_batch(x, y)
    assert new.jit_compile is (BACKEND == "jax")


def test_what_is_refused_changes_nothing():
    ids = keras.Input((), dtype="int32")
    regular = keras.layers.Embedding(9, 2, name="e", embeddings_regularizer="l2")
    with pytest.raises(ValueError, match=r"embeddings_regularizer is L2.*give tables="):
        het_tf.convert(keras.Model(ids, regular(ids)))
    layer = keras.layers.Embedding(9, 2, name="e")
    model = keras.Model(ids, layer(ids))
    layer.embeddings.assign(np.full((9, 2), np.nan))
    with pytest.raises(ValueError, match="its rows hold NaN or Inf"):
        het_tf.convert(model)
    with pytest.raises(TypeError, match="model is int; give a Keras model"):
        het_tf.convert(3)
    if BACKEND != "tensorflow":
        with pytest.raises(ImportError, match=r"convert\(open_vocabulary=True\) needs TensorFlow"):
            het_tf.convert(clicks(), open_vocabulary=True)
    assert het_tf.tables() == []


def test_rows_in_files_of_others(tmp_path):
    layer = het_tf.keras.Embedding(3, name="t")
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    np.savez(tmp_path / "rows.npz", ids=np.arange(4), rows=rows)
    assert het_tf.checkpoint.load_rows("t", tmp_path / "rows.npz") == 4
    np.testing.assert_array_equal(array(layer(np.arange(4, dtype="int32"))), rows)
    (tmp_path / "model-1.index").write_bytes(b"")
    error, match = (ValueError, "") if BACKEND == "tensorflow" else (ImportError, "needs TensorFlow")
    with pytest.raises(error, match=match):
        het_tf.checkpoint.load_rows("t", tmp_path / "model-1", rows="x")
