"""Callbacks and files keep and restore rows on each backend of Keras; of TensorFlow see tests/ext, too."""

import keras
import numpy as np
import pytest
from backends_lib import DIM, array, elsewhere
from tools_lib import python

import het_tf

pytestmark = pytest.mark.slow


def fitted(callbacks=(), epochs=1, model=None):
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, 12, (32, 2)).astype("int32"), rng.normal(size=(32, 1)).astype("float32")
    if model is None:
        inputs = keras.Input((2,), dtype="int32")
        hidden = het_tf.keras.Embedding(DIM, "sum", name="t", optimizer="adam")(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
        model.compile(keras.optimizers.Adam(0.05), "mse")
    how = {"batch_size": 8, "epochs": epochs, "verbose": 0, "shuffle": False}
    return model, model.fit(ids, labels, callbacks=list(callbacks), **how).history


def state(model):
    scan = het_tf.Table("t").scan()
    order = np.argsort(scan["ids"])
    dense = [array(one) for one in [*model.layers[-1].weights, *model.optimizer.variables]]
    return [scan["ids"][order], scan["rows"][order], scan["clocks"][order], *dense]


@elsewhere
@pytest.mark.parametrize("kind", ["directory", ".keras", ".weights.h5"])
def test_a_restored_run_goes_on_as_the_first_one(tmp_path, kind):
    path = tmp_path / "ckpts" if kind == "directory" else tmp_path / f"model{kind}"
    model, _ = fitted([het_tf.callbacks.Checkpoint(path, save_weights_only=kind == ".weights.h5")])
    saved = state(model)
    fitted(model=model)
    expected = state(model)
    assert np.abs(expected[1] - saved[1]).max() > 0
    if kind == "directory":
        het_tf.checkpoint.restore(path, model)
    elif kind == ".weights.h5":
        model.load_weights(path)
    else:
        del model
        keras.utils.clear_session(free_memory=True)
        het_tf.reset()
        model = keras.models.load_model(path)
    np.testing.assert_equal(state(model)[:3], saved[:3])
    if kind != ".weights.h5":  # which has no state of the optimizer here
        np.testing.assert_equal(state(model), saved)
        fitted(model=model)
        np.testing.assert_equal(state(model)[:3], expected[:3])


@elsewhere
def test_figures_of_tables():
    stats = het_tf.callbacks.TableStats(log="all")
    _, history = fitted([stats], epochs=2)
    assert [one["t"]["updates"] for one in stats.epochs] == history["t/updates"] == [4, 4]
    assert het_tf.Table("t").updates == 8


def test_early_stopping_that_would_lose_rows_is_refused():
    stop = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    with pytest.raises(RuntimeError, match=r"restore_best_weights is True.*RestoreBest\('loss'\)"):
        fitted([stop])
    assert het_tf.Table("t").updates == 0
    plain = keras.Sequential([keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    fitted([stop], model=plain)


def test_weights_are_no_arrays():
    model, _ = fitted()
    with pytest.raises(RuntimeError, match="is not an array"):
        model.get_weights()
    assert model.count_params() > 0
    assert "rows" in str(model.layers[1].count_params())


@elsewhere
def test_the_doctor_looks_at_what_this_backend_loads():
    """Would ask for TensorFlow where Keras runs on PyTorch or JAX, and nothing needs it."""
    found = python("-m", "het_tf", "doctor").stdout
    assert "libhet_engine.so" in found and "Ready." in found and "tensorflow-cpu" not in found
