"""Tables in the files of Keras, and Keras' own callbacks that write and read them."""

import gc
import subprocess
import sys

import h5py
import numpy as np
import pytest
import saving_lib
import tensorflow as tf
from floats_lib import assert_close
from played_lib import Played
from saving_lib import build, everything, keras, make_model, predictions, train, trained

import het_tf
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.checkpoint.python.saving import pack
from het_tf.python.session import settings
from het_tf.python.table import notes

pytestmark = saving_lib.MARKS


def test_load_model_when_the_original_is_gone_goes_on(tmp_path):
    model, path = trained(), str(tmp_path / "x.keras")
    model.save(path)
    train(model)
    want = predictions(model)
    del model
    keras.backend.clear_session()
    gc.collect()
    loaded = keras.models.load_model(path)
    train(loaded)
    assert_close(predictions(loaded), want)


def test_a_copy_restores_into_a_table_of_its_own(tmp_path):
    model, path = trained(), str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "x"))
    checkpoint = het_tf.checkpoint.save(tmp_path / "c", model)
    saved = predictions(model)
    clone = keras.models.clone_model(model)
    train(model)
    before = everything()
    for restore in (
        lambda: clone.load_weights(path),
        lambda: tf.train.Checkpoint(model=clone).read(prefix),
        lambda: het_tf.checkpoint.restore(checkpoint, clone),
    ):
        het_tf.Table("t@2").clear()
        restore()
        np.testing.assert_array_equal(predictions(clone), saved)
    np.testing.assert_equal(everything(), before)


def test_file_open_elsewhere_loads_every_time(tmp_path):
    """HDF5 then takes the second opening for the first one."""
    model = build()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    saved, want = everything("a/b c"), predictions(model)
    with h5py.File(path):
        for _ in range(2):
            train(model)
            model.load_weights(path)
            np.testing.assert_equal(everything("a/b c"), saved)
            np.testing.assert_array_equal(predictions(model), want)


def h5_of(model, directory):
    path = str(directory / "x.weights.h5")
    model.save_weights(path)
    return lambda model: model.load_weights(path)


def harmed(slices):
    """A file with other values of some rows."""

    def save(directory):
        load = h5_of(trained(), directory)
        with h5py.File(directory / "x.weights.h5", "r+") as file:
            found = []
            file.visit(lambda name: found.append(name) if "t.values/00000" in name else None)
            values = file[found[0]][...]
            values.view(np.uint32)[3, 1] ^= 1
            del file[found[0]]
            file[found[0]] = values[slices]
        return load

    return save


def without_rows(directory):
    ids = keras.Input((3,), dtype="int64")
    rows = keras.layers.Embedding(4, 4, name="embed")(ids)
    hidden = keras.layers.Dense(8)(keras.layers.Flatten()(rows))
    load = h5_of(keras.Model(ids, keras.layers.Dense(1)(hidden)), directory)
    return lambda model: load(keras.Model(model.input, model.output))


def of_another_table(directory):
    path = tf.train.Checkpoint(model=trained(table_rule="sgd")).write(str(directory / "x"))
    return lambda model: tf.train.Checkpoint(model=model).read(path)


UNCHANGED = "table 't' is unchanged: "


REFUSED = [
    (harmed(slice(None)), UNCHANGED + r"(.|\n)*t/values"),
    (harmed(slice(-1)), UNCHANGED + r"(.|\n)*t/values"),
    (without_rows, "no rows of table 't'"),
    (of_another_table, UNCHANGED + r"what was saved does not fit(.|\n)*optimizer"),
]


@pytest.mark.parametrize(("save", "words"), REFUSED)
def test_what_does_not_fit_is_refused(tmp_path, save, words):
    load = save(tmp_path)
    het_tf.reset()
    model = trained()
    before = everything()
    with pytest.raises(ValueError, match=words) as refused:
        load(model)
    assert ".het_tf-" not in str(refused.value) and "slots=False" not in str(refused.value)
    np.testing.assert_equal(everything(), before)


def test_weights_in_several_files_that_keras_would_lose(tmp_path, monkeypatch):
    """Defect: Keras 3.10 to 3.14 write such files, and do not find all of their rows again."""
    model = make_model()
    path = str(tmp_path / "x.weights.json")
    for store in ("H5IOStore", "ShardedH5IOStore"):
        monkeypatch.delattr(f"keras.src.saving.saving_lib.{store}.has_path", raising=False)
    with pytest.raises(ValueError, match="save without max_shard_size, or run: pip install 'keras"):
        model.save_weights(path, max_shard_size=4e-6)


def test_arrays_hold_no_rows(tmp_path):
    model, before = trained(), everything()
    for take in (
        model.get_weights,
        lambda: model.layers[1].set_weights([np.zeros((), np.float32)]),
        lambda: model.save(str(tmp_path / "x.h5")),
    ):
        with pytest.raises(RuntimeError, match=r"table 't' is not an array.*RestoreBest"):
            take()
    with pytest.warns(notes.TablesNotSavedWarning, match=r"het_tf\.export"):
        tf.saved_model.save(model, str(tmp_path / "saved"))
    dense = model.layers[-1]
    dense.set_weights([one + 1 for one in dense.get_weights()])
    np.testing.assert_equal(everything(), before)


def test_of_several_workers_rank_0_restores(monkeypatch, tmp_path):
    two, path = Played(), str(tmp_path / "x.weights.h5")
    model, saved = trained(), everything()
    monkeypatch.setattr(settings.current, "workers", two)
    with pytest.warns(notes.TablesNotSavedWarning, match="lacks the pending updates of other workers"):
        model.save_weights(path)
    model.layers[1].embeddings = None
    het_tf.Table("t").clear()
    two.me = 1
    with pytest.warns(notes.TablesNotSavedWarning, match="Rank 0 restores"):
        model.load_weights(path)
    assert het_tf.Table("t").size == 0
    two.me = 0
    model.load_weights(path)
    np.testing.assert_equal(everything(), saved)


class Seen(keras.callbacks.Callback):
    """Predictions at the end of each epoch; the loss is what a test says."""

    def __init__(self, losses=None, crash_in=None):
        super().__init__()
        self.losses, self.crash_in, self.predictions = losses, crash_in, []

    def on_epoch_end(self, epoch, logs=None):
        self.predictions.append(predictions(self.model))
        if self.losses:
            logs["loss"] = self.losses[epoch]

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.crash_in:
            raise InterruptedError


@pytest.mark.parametrize("whole", [False, True], ids=["weights", "model"])
def test_a_save_that_fails_may_be_repeated(tmp_path, whole, monkeypatch):
    """Keras leaves the file open while the error is held. The callback of het_tf leaves the file before."""
    path = tmp_path / ("x.keras" if whole else "x.weights.h5")
    model = make_model()
    callback = het_tf.callbacks.Checkpoint(str(path), save_weights_only=not whole)

    def full(directory):
        raise OSError(28, "No space left on device")

    train(model, callbacks=[callback])
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(pack, "arrays", full)
        with pytest.raises(OSError, match="No space left"):
            train(model, callbacks=[callback])
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path], "nothing else stays behind"
        with pytest.raises(OSError, match="No space left") as held:
            (model.save if whole else model.save_weights)(path)
    (model.save if whole else model.save_weights)(path)
    want = predictions(model)
    train(model)
    model.load_weights(path)
    np.testing.assert_array_equal(predictions(model), want)
    del held


@pytest.mark.parametrize("given", [False, True], ids=["temporary", "directory"])
def test_restore_best_leaves_the_best_epoch(tmp_path, given, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stop = keras.callbacks.EarlyStopping("loss", patience=2)
    best = het_tf.callbacks.RestoreBest("loss", directory=tmp_path / "best" if given else None)
    model = make_model()
    for losses in ([3.0, 1.0, 2.0, 2.5], [np.nan, 9.0, 8.0, 9.0, 9.0]):  # another fit begins anew
        seen, rows = Seen(losses), []
        note = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_, to=rows: to.append(everything()))
        train(model, len(losses), callbacks=[seen, note, stop, best])
        place = losses.index(min(losses[1:]))
        np.testing.assert_array_equal(predictions(model), seen.predictions[place])
        np.testing.assert_equal(everything(), rows[place])
        if given:  # its checkpoint is of a later step than the optimizer's now
            break
    assert [path.name for path in tmp_path.iterdir()] == (["best"] if given else [])


def test_restore_best_reads_the_value_of_rank_0():
    ranks = []
    best = het_tf.callbacks.RestoreBest("loss")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ranks, "first", lambda self, what, action: ranks.append(what) or 7.0)
        patched.setattr(
            keras.callbacks.ModelCheckpoint, "on_epoch_end", lambda self, epoch, logs: ranks.append(logs)
        )
        best.on_epoch_end(0, {"loss": 3.0, "mse": 4.0})
    assert ranks == ["read the monitored value", {"loss": 7.0, "mse": 4.0}]


def test_backup_and_restore_goes_on_after_a_crash(tmp_path):
    seen = Seen()
    train(make_model(), 4, callbacks=[seen])
    want = everything()
    het_tf.reset()

    def run(**options):
        model = make_model()
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        train(model, 4, callbacks=[backup, Seen(**options)])
        return model

    with pytest.raises(InterruptedError):
        run(crash_in=2)
    het_tf.reset()  # the process has died
    assert_close(predictions(run()), seen.predictions[-1])
    np.testing.assert_array_equal(everything()["clocks"], want["clocks"])


_LOAD = """
import os, sys, numpy as np, tensorflow as tf
os.chdir(sys.argv[1])
import het_tf.serving
answer = tf.saved_model.load("native").signatures["serving_default"]
ids = np.load("ids.npy")
(served,) = answer(tf.constant(ids)).values()
from tensorflow import keras
import het_tf.keras
model = keras.models.load_model("m.keras")
answers = [served, model(ids)]
layer = next(one for one in model.layers if type(one).__name__ == "Embedding")
keras.layers.deserialize(keras.layers.serialize(layer))
keras.models.clone_model(model)
assert type(layer) is het_tf.keras.Embedding
for restore in (
    lambda: model.load_weights("m.weights.h5"),
    lambda: tf.train.Checkpoint(model=model).read("point").expect_partial(),
):
    het_tf.Table("t").clear()
    restore()
    answers.append(model(ids))
np.save(sys.argv[2], answers)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    model = trained(reuse=True)
    model.save(place / "m.keras")
    model.save_weights(place / "m.weights.h5")
    tf.train.Checkpoint(model=model).write(str(place / "point"))
    het_tf.export(model, place / "native", het_tf.serving.Native(), verbose=False)
    np.save(place / "ids.npy", np.arange(12).reshape(4, 3))
    return place, model(np.load(place / "ids.npy")).numpy()


def test_a_new_process_loads_a_model(saved, tmp_path):
    """Would catch: a module that does not register its classes, or ops."""
    place, wanted = saved
    subprocess.run([sys.executable, "-c", _LOAD, place, tmp_path / "p.npy"], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), [wanted] * 4, rtol=1e-6)
