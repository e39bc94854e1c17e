"""A new process predicts as the one that saved, whatever its layers keep beside their variables."""

import contextlib

import backends_lib
import keras
import layers_lib
import numpy as np
import pytest
from backends_lib import BACKEND, invalid
from layers_lib import LABELS, LAYERS, ONLY_TENSORFLOW, build, predict, trained

import het_tf
from het_tf.ext.checkpoint.python import tensors
from het_tf.ext.checkpoint.python.model import dense
from het_tf.python.table import dense_layers

pytestmark = pytest.mark.slow


def restarted(name):
    """As in a new process."""
    backends_lib.reset()
    keras.backend.clear_session()
    return build(name, False)[0]


def skip_elsewhere(name):
    if name in ONLY_TENSORFLOW and BACKEND != "tensorflow":
        pytest.skip("Keras has this layer on TensorFlow alone")


def point(model):
    import tensorflow as tf

    return tf.train.Checkpoint(model=model)


# Way -> how a model is saved in a folder, and what loads a built one.
SAVE = {
    "restore": lambda model, folder: het_tf.checkpoint.save(folder, model),
    "keras": lambda model, folder: model.save(folder / "m.keras"),
    "h5": lambda model, folder: model.save_weights(folder / "m.weights.h5"),
    "tf": lambda model, folder: point(model).write(str(folder / "m")),
}
LOAD = {
    "restore": lambda model, folder: het_tf.checkpoint.restore(folder, model),
    "h5": lambda model, folder: model.load_weights(folder / "m.weights.h5"),
    "tf": lambda model, folder: point(model).read(str(folder / "m")),
}
if BACKEND != "tensorflow":
    del SAVE["tf"]


def load(way, name, folder):
    """A model of another process, with what `way` brings of the saved one."""
    fresh = restarted(name)
    if way == "keras":
        het_tf.reset()
        return keras.saving.load_model(folder / "m.keras")
    LOAD[way](fresh, folder)
    return fresh


LACKING = {  # what a way does not carry, and names
    "h5": ("discretization", "file", "strings", "integers", "idf", "text"),
    "tf": ("normalization", "discretization", "own", "file", "strings", "integers", "idf", "text"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_predictions_are_those_of_the_process_that_saved(name, tmp_path):
    """Where a way cannot carry what a layer keeps, a warning names the layer."""
    skip_elsewhere(name)
    model, x, layer, expected = trained(name)
    named = rf"'{layer.name}' \({type(layer).__name__}\)"

    def told(way):
        lacks = name in LACKING.get(way, ())
        return pytest.warns(het_tf.HetWarning, match=named) if lacks else contextlib.nullcontext()

    for way, save in SAVE.items():
        with told(way):
            save(model, tmp_path)
    for way in SAVE:
        with told(way):
            fresh = load(way, name, tmp_path)
        if name not in LACKING.get(way, ()):
            np.testing.assert_allclose(predict(fresh, x), expected, rtol=1e-5, atol=1e-5, err_msg=way)


def test_the_best_epoch_comes_back_whole():
    model, x, layer = build("own", True)
    found = []

    def learn(epoch, logs):
        found.append(predict(model, x))
        layer.learn(layers_lib.NUMBERS + epoch + 1)

    best = het_tf.callbacks.RestoreBest("score", "max")
    falls = lambda epoch, logs: logs.update(score=-epoch)  # noqa: E731
    first, last = (keras.callbacks.LambdaCallback(on_epoch_end=one) for one in (falls, learn))
    model.fit(x, LABELS, epochs=3, verbose=0, callbacks=[first, best, last])
    np.testing.assert_allclose(predict(model, x), found[0], rtol=1e-6, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Subclass(keras.Model):
    """Makes its dense layers' weights in its first call."""

    def __init__(self, **options):
        super().__init__(**options)
        self.rows = het_tf.keras.Embedding(4, name="rows")
        self.scaled, self.top = keras.layers.Normalization(), keras.layers.Dense(1)

    def call(self, x):
        rows = keras.ops.reshape(self.rows(x["item"]), (-1, 4))
        return self.top(keras.ops.concatenate([rows, self.scaled(x["x"])], -1))


@pytest.mark.parametrize("way", ["restore", "keras"])
def test_a_file_builds_the_model_whose_inputs_it_knows(way, tmp_path):
    x = layers_lib.inputs_of(layers_lib.NUMBERS)
    model = Subclass(name="m")
    model.scaled.adapt(layers_lib.NUMBERS)
    model(x)
    model.compile("adam", "mse", run_eagerly=True)
    model.train_on_batch(x, LABELS)
    expected = predict(model, x)
    if way == "keras":
        model.save(tmp_path / "m.keras")
        backends_lib.reset()
        fresh = keras.saving.load_model(tmp_path / "m.keras")
    else:
        het_tf.checkpoint.save(tmp_path, model)
        backends_lib.reset()
        keras.backend.clear_session()
        fresh = Subclass(name="m")
        fresh.compile("adam", "mse")
        het_tf.checkpoint.restore(tmp_path, fresh)
        assert int(fresh.optimizer.iterations) == 1
    np.testing.assert_allclose(predict(fresh, x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("how", ["nan", "interrupt"])
def test_a_model_goes_on_after_a_fit_that_failed(how, tmp_path):
    """On JAX such a step has taken the arrays of the variables; what loads weights heals all of them."""
    model, x, _ = build("batch", True)
    rows = next(one for one in model.layers if one.name == "rows_batch")
    model.compile("adam", "mse")
    model.fit(x, LABELS, verbose=0)
    model.save_weights(tmp_path / "m.weights.h5")
    het_tf.checkpoint.save(tmp_path, model)
    expected = predict(model, x)

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    for heal in ("load", "restore", "layer", "names"):
        labels = np.full_like(LABELS, np.nan) if how == "nan" else LABELS
        with pytest.raises((KeyboardInterrupt, invalid(), RuntimeError)):
            model.fit(x, labels, verbose=0, callbacks=[Interrupt()] * (how == "interrupt"))
        if how == "nan" and BACKEND == "jax":
            lost = pytest.raises(RuntimeError, match=r"took the dense weights with it.*load_weights")
            with lost:
                het_tf.checkpoint.save(tmp_path / "other", model)
            with lost:
                model.fit(x, LABELS)
        if heal == "load":
            model.load_weights(tmp_path / "m.weights.h5")
        elif heal == "restore":
            het_tf.checkpoint.restore(tmp_path, model)
        elif heal == "layer":
            item = keras.Input((1,), dtype="int32", name="item")
            other = keras.Model({"item": item}, keras.layers.Dense(1)(keras.layers.Flatten()(rows(item))))
            other.compile("adam", "mse")
            assert np.isfinite(other.fit({"item": x["item"]}, LABELS, verbose=0).history["loss"][0])
            continue
        else:
            model = build("batch", True)[0]
            model.compile("adam", "mse")
            model.load_weights(tmp_path / "m.weights.h5")
        np.testing.assert_allclose(predict(model, x), expected, rtol=1e-6, atol=1e-6, err_msg=heal)
        assert np.isfinite(model.fit(x, LABELS, verbose=0).history["loss"][0]), heal


def test_layers_of_another_model_are_named(tmp_path):
    model, *_ = trained("own")
    het_tf.checkpoint.save(tmp_path, model)
    backends_lib.reset()
    keras.backend.clear_session()
    other, _, layer = build("file", True)
    before = layer.limits
    with pytest.raises(ValueError, match="only the checkpoint has model/ranked/scale"):
        het_tf.checkpoint.restore(tmp_path, other)
    assert layer.limits == before


def test_a_version_is_of_one_state_of_the_layers():
    """A served model gets new weights alone, so its layers must keep what those of the published one do."""
    model, _, layer = build("file", True)
    signatures = set()
    for limits in ((0.0, 1.0, 2.0), (0.0, 1.0, 3.0), (0.0, 1.0, 2.0)):
        layer.limits = limits
        signatures.add(tensors.signature(one.spec for one in dense.weights_of(model)))
        specs = tensors.specs_of(tensors.pack(dense.values(dense.weights_of(model))))
        assert tensors.signature(specs) in signatures
    assert len(signatures) == 2


def test_assets_are_written_in_their_directory_alone(tmp_path):
    """Would catch a checkpoint, or a rank, that writes files of its choice."""
    layer = keras.layers.Rescaling(1)
    layer.load_assets = pytest.fail
    for name in ("../outside", str(tmp_path / "outside"), "a/../../outside"):
        with pytest.raises(ValueError, match="is no file in its directory of assets"):
            dense_layers.give(layer, dense_layers.State(layer.name, "", assets={name: b"x"}))
    assert not (tmp_path / "outside").exists()
