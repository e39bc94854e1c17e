"""Tables in the files of Keras, and Keras' own callbacks that write and read them."""

import gc

import h5py
import numpy as np
import pytest
import tensorflow as tf
from floats_lib import assert_close
from saving_lib import (
    KERAS_3,
    assert_equal,
    build,
    everything,
    keras,
    keras_2_only,
    make_model,
    predictions,
    train,
)

import het_tf
from het_tf.python.checkpoint.keras import pack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tf215,
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("error::het_tf.TablesNotSavedWarning"),
]


def test_load_model_when_the_original_is_gone_goes_on(tmp_path):
    model = make_model()
    train(model)
    path = str(tmp_path / "x.keras")
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
    model = make_model()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "x"))
    weights, saved = model.get_weights(), predictions(model)
    clone = keras.models.clone_model(model)
    train(model)
    before = everything()
    for restore in (
        lambda: clone.set_weights(weights),
        lambda: clone.load_weights(path),
        lambda: tf.train.Checkpoint(model=clone).read(prefix),
    ):
        het_tf.table("t@2").clear()
        restore()
        np.testing.assert_array_equal(predictions(clone), saved)
    assert_equal(everything(), before)


def test_a_file_without_rows_and_one_of_another_table(tmp_path):
    ids = keras.Input((3,), dtype="int64")
    path = str(tmp_path / "x.weights.h5")
    rows = keras.layers.Embedding(4, 4, name="embed")(ids)
    hidden = keras.layers.Dense(8)(keras.layers.Flatten()(rows))
    keras.Model(ids, keras.layers.Dense(1)(hidden)).save_weights(path)
    model = make_model()
    train(model)
    before = everything()
    with pytest.raises(ValueError, match="no rows of table 't'"):
        keras.Model(model.input, model.output).load_weights(path)
    assert_equal(everything(), before)


def test_a_file_that_somebody_else_has_open_is_loaded_every_time(tmp_path):
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
            assert_equal(everything("a/b c"), saved)
            np.testing.assert_array_equal(predictions(model), want)


@pytest.mark.parametrize("damage", ["a bit", "a slice"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    model = make_model()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    with h5py.File(path, "r+") as file:
        found = []
        file.visit(lambda name: found.append(name) if "t.values/00000" in name else None)
        values = file[found[0]][...]
        values.view(np.uint32)[3, 1] ^= 1
        del file[found[0]]
        file[found[0]] = values if damage == "a bit" else values[:-1]
    before = everything()
    with pytest.raises(ValueError, match=r"table 't' is as it was: (.|\n)*t/values") as refused:
        model.load_weights(path)
    assert ".het_tf-" not in str(refused.value)
    assert_equal(everything(), before)


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 does not divide its files")
def test_weights_in_several_files(tmp_path):
    model = build()
    train(model)
    saved, want = everything("a/b c"), predictions(model)
    path = str(tmp_path / "x.weights.json")
    model.save_weights(path, max_shard_size=4e-6)  # GB
    assert len(list(tmp_path.glob("*.h5"))) > 2
    train(model)
    model.load_weights(path)
    assert_equal(everything("a/b c"), saved)
    np.testing.assert_array_equal(predictions(model), want)


@keras_2_only
def test_the_old_h5_format_says_that_it_has_no_rows(tmp_path):
    model = make_model()
    train(model)
    path = str(tmp_path / "x.h5")
    with pytest.warns(het_tf.TablesNotSavedWarning, match=r"without the rows of table 't'.*\.weights\.h5"):
        model.save_weights(path)
    before = everything()
    with pytest.warns(het_tf.TablesNotSavedWarning, match="set from arrays"):
        model.load_weights(path)
    assert_equal(everything(), before)


def test_a_saved_model_says_so_too(tmp_path):
    model = make_model()
    with pytest.warns(het_tf.TablesNotSavedWarning, match=r"het_tf\.export"):
        tf.saved_model.save(model, str(tmp_path))


# --- callbacks ------------------------------------------------------------------------------------------


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
def test_model_checkpoint_keeps_the_best_epoch(tmp_path, whole):
    path = str(tmp_path / ("best.keras" if whole else "best.weights.h5"))
    best = keras.callbacks.ModelCheckpoint(path, "loss", save_best_only=True, save_weights_only=not whole)
    seen = Seen([3.0, 1.0, 2.0])
    model = make_model()
    train(model, 3, callbacks=[seen, best])
    model.load_weights(path)
    np.testing.assert_array_equal(predictions(model), seen.predictions[1])
    if whole:
        train(model)  # goes on, beside the one that is loaded
        loaded = keras.models.load_model(path)
        np.testing.assert_array_equal(predictions(loaded), seen.predictions[1])


@pytest.mark.parametrize("whole", [False, True], ids=["weights", "model"])
def test_a_save_that_fails_leaves_the_file_before(tmp_path, whole, monkeypatch):
    path = tmp_path / ("x.keras" if whole else "x.weights.h5")
    callback = het_tf.callbacks.Checkpoint(str(path), save_weights_only=not whole)
    model = make_model()
    train(model, callbacks=[callback])
    before = path.read_bytes()

    def full(directory):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pack, "arrays", full)
    with pytest.raises(OSError, match="No space left"):
        train(model, callbacks=[callback])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path], "nothing else stays behind"


def test_early_stopping_restores_the_best_epoch():
    seen = Seen([3.0, 1.0, 2.0, 2.5])
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    model = make_model()
    train(model, 9, callbacks=[seen, stop])
    assert len(seen.predictions) == 4
    np.testing.assert_array_equal(predictions(model), seen.predictions[1])


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
    resumed = predictions(run())
    assert_close(resumed, seen.predictions[-1])
    np.testing.assert_array_equal(everything()["clocks"], want["clocks"])
