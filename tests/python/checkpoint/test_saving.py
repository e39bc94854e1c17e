"""Dense weights and tables come back from one moment, whichever way of TensorFlow or Keras saves them."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from saving_lib import (
    KERAS_3,
    assert_equal,
    data,
    everything,
    keras,
    make_model,
    predictions,
    train,
)

import het_tf
from het_tf.python.checkpoint.keras import arrays, bundle, pack
from het_tf.python.session import runtime

pytestmark = [
    pytest.mark.tf215,
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("error::het_tf.TablesNotSavedWarning"),
]
keras_2_only = pytest.mark.skipif(KERAS_3, reason="Keras 3 has no such thing")


class Checkpoint:
    """tf.train.Checkpoint."""

    def save(self, model, directory):
        self.path = tf.train.Checkpoint(model=model).save(str(directory / "check" / "point"))

    def restore(self, model):
        tf.train.Checkpoint(model=model).restore(self.path).assert_consumed()


class Manager:
    """tf.train.CheckpointManager."""

    def save(self, model, directory):
        self.directory = str(directory)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), self.directory, 1)
        manager.save()

    def restore(self, model):
        checkpoint = tf.train.Checkpoint(model=model)
        assert tf.train.CheckpointManager(checkpoint, self.directory, 1).restore_or_initialize()


class WeightsH5:
    """model.save_weights("x.weights.h5")."""

    def save(self, model, directory):
        self.path = str(directory / "x.weights.h5")
        model.save_weights(self.path)

    def restore(self, model):
        model.load_weights(self.path)


class KerasFile:
    """model.save("x.keras"), read by model.load_weights."""

    def save(self, model, directory):
        self.path = str(directory / "x.keras")
        model.save(self.path)

    def restore(self, model):
        model.load_weights(self.path)


class Arrays:
    """get_weights and set_weights; Keras' optimizer is not among them."""

    def save(self, model, directory):
        self.weights = model.get_weights()
        self.optimizer = [np.array(one) for one in _variables(model.optimizer)]

    def restore(self, model):
        model.set_weights(self.weights)
        if not KERAS_3:
            model.optimizer.build(model.trainable_variables)
        else:
            model.optimizer.build([one for one in model.trainable_variables if one.name != "anchor"])
        for variable, value in zip(_variables(model.optimizer), self.optimizer, strict=True):
            variable.assign(value)


class TensorFlowFormat(Checkpoint):
    """Keras 2's model.save_weights("x")."""

    def save(self, model, directory):
        self.path = str(directory / "weights")
        model.save_weights(self.path, save_format="tf")

    def restore(self, model):
        model.load_weights(self.path)


def _variables(optimizer):
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables


WAYS = [Checkpoint, pytest.param(Manager, marks=pytest.mark.slow), WeightsH5]
WAYS += [pytest.param(KerasFile, marks=pytest.mark.slow), Arrays]
WAYS += [pytest.param(TensorFlowFormat, marks=keras_2_only)]
KINDS = [Checkpoint, WeightsH5, Arrays]  # the others are these, differently called
SETTINGS = [("sgd", {"cache": het_tf.Cache(rows=8, staleness=0)}), ("adam", {})]


@pytest.mark.parametrize("rule, cache", SETTINGS, ids=["sgd-cached", "adam-direct"])
@pytest.mark.parametrize("way", WAYS)
def test_dense_weights_and_tables_come_back_of_one_moment(way, rule, cache, tmp_path):
    model = make_model(rule, **cache)
    train(model)
    way = way()
    way.save(model, tmp_path)
    saved, at_save = everything(), predictions(model)
    train(model, 2)
    uninterrupted, rows = predictions(model), everything()
    assert np.abs(uninterrupted - at_save).max() > 1e-4, "training has changed something"
    table = het_tf.table("t")
    table.assign([999], np.ones((1, 4), np.float32))  # a row that the saved table did not have
    way.restore(model)
    np.testing.assert_array_equal(predictions(model), at_save)
    assert_equal(everything(), saved)
    train(model, 2)
    np.testing.assert_allclose(predictions(model), uninterrupted, rtol=1e-6, atol=1e-7)
    again = everything()
    np.testing.assert_array_equal(again["clocks"], rows["clocks"])
    np.testing.assert_allclose(again["rows"], rows["rows"], rtol=1e-5, atol=1e-7)
    way.restore(model)
    assert_equal(everything(), saved)


PROGRAM = textwrap.dedent("""
    import sys
    import numpy as np, tensorflow as tf, het_tf, saving_lib
    directory = sys.argv[1]
    found = {}
    model = tf.keras.models.load_model(directory + "/x.keras")
    found["keras"] = saving_lib.predictions(model)
    del model
    het_tf.reset()
    model = saving_lib.make_model()
    model.load_weights(directory + "/x.weights.h5")
    found["h5"] = saving_lib.predictions(model)
    het_tf.reset()
    model = saving_lib.make_model(name="other")
    tf.train.Checkpoint(model=model).restore(tf.train.latest_checkpoint(directory)).expect_partial()
    found["checkpoint"] = saving_lib.predictions(model)
    np.savez(directory + "/found.npz", **found)
""")


@pytest.mark.slow
def test_another_process_predicts_the_same(tmp_path):
    model = make_model()
    train(model)
    model.save(str(tmp_path / "x.keras"))
    model.save_weights(str(tmp_path / "x.weights.h5"))
    tf.train.Checkpoint(model=model).save(str(tmp_path / "point"))
    want = predictions(model)
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), str(root / "tests/python/lib")])
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    found = np.load(tmp_path / "found.npz")
    assert sorted(found) == ["checkpoint", "h5", "keras"]
    for name in found:
        np.testing.assert_array_equal(found[name], want, err_msg=name)


# --- tf.train.Checkpoint ----------------------------------------------------------------------------


def test_what_goes_into_a_checkpoint_is_readable_and_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "_SLICE_BYTES", 64)
    monkeypatch.setattr(bundle, "_SHARD_BYTES", 256)
    model = make_model()
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), str(tmp_path), max_to_keep=2)
    train(model)
    path = manager.save()
    shards = list(tmp_path.glob("ckpt-1.data-*"))
    assert len(shards) > 5, "slices of a table, each in a shard"
    reader = tf.train.load_checkpoint(path)
    keys = [key for key in reader.get_variable_to_shape_map() if ".keys/" in key]
    ids = np.sort(np.concatenate([reader.get_tensor(key) for key in keys]))
    np.testing.assert_array_equal(ids, everything()["ids"])
    saved = everything()
    for _ in range(2):
        train(model)
        manager.save()
    assert not list(tmp_path.glob("ckpt-1*")), "deleted with its rows"
    left = {file.name.split(".")[0] for file in tmp_path.iterdir()}
    assert left == {"ckpt-2", "ckpt-3", "checkpoint"}, "nothing else stays behind"
    tf.train.Checkpoint(model=model).restore(manager.checkpoints[0]).assert_consumed()
    assert everything()["clocks"].sum() == 2 * saved["clocks"].sum()


def test_restoring_may_come_before_the_layer(tmp_path):
    class Lazy(keras.Model):
        def build(self, shape):
            self.embed = het_tf.keras.Embedding(4, table="t", name="embed")
            self.dense = keras.layers.Dense(1)
            self.dense.build((None, 12))
            self.built = True

        def call(self, ids):
            return self.dense(tf.reshape(self.embed(ids), [-1, 12]))

    ids = tf.constant(data()[0])
    model = Lazy()
    model(ids)
    het_tf.table("t").assign(np.arange(-20, 20), np.random.default_rng(0).normal(size=(40, 4)))
    want, saved = model(ids), everything()
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "lazy"))
    het_tf.reset()
    model = Lazy()
    status = tf.train.Checkpoint(model=model).read(path)
    with pytest.raises(AssertionError):
        status.assert_consumed()
    np.testing.assert_array_equal(model(ids), want)
    status.assert_consumed().assert_existing_objects_matched()
    assert_equal(everything(), saved)


def test_a_checkpoint_whose_table_is_not_wanted(tmp_path):
    model = make_model()
    train(model)
    path = tf.train.Checkpoint(model=model, extra=tf.Variable(1.0)).write(str(tmp_path / "x"))
    train(model)
    before = everything()
    dense = tf.train.Checkpoint(extra=tf.Variable(0.0))
    status = dense.read(path)
    status.expect_partial()
    with pytest.raises(AssertionError):
        dense.read(path).assert_consumed()
    assert float(dense.extra) == 1.0
    assert_equal(everything(), before)


def test_a_checkpoint_of_another_table_is_refused(tmp_path):
    model = make_model(table_rule="sgd")
    train(model)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "x"))
    het_tf.reset()
    model = make_model()
    train(model)
    before = everything()
    with pytest.raises(ValueError, match="table 't' is as it was: what was saved does not fit") as refused:
        tf.train.Checkpoint(model=model).read(path)
    assert "optimizer" in str(refused.value)
    assert ".het_tf-" not in str(refused.value) and "slots=False" not in str(refused.value)
    assert_equal(everything(), before)


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    model = make_model()
    train(model)
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=1)
    manager.save()
    saved, want = everything(), predictions(model)
    train(model)
    monkeypatch.setattr(bundle, "_SHARD_BYTES", 256)
    write = pack.arrays

    def full(directory):
        for number, each in enumerate(write(directory)):
            if number == 5:
                raise OSError(28, "No space left on device")
            yield each

    with monkeypatch.context() as patched:
        patched.setattr(pack, "arrays", full)
        with pytest.raises(OSError, match="No space left"):
            manager.save()
    assert manager.latest_checkpoint.endswith("ckpt-1")
    assert not list(tmp_path.glob(".het_tf-*")), "row files are removed"
    checkpoint.restore(tf.train.latest_checkpoint(str(tmp_path))).assert_consumed()
    np.testing.assert_array_equal(predictions(model), want)
    assert_equal(everything(), saved)
    manager.save()
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()


def test_saving_asynchronously_is_refused(tmp_path):
    model = make_model()
    train(model)
    options = tf.train.CheckpointOptions(enable_async=True)
    with pytest.raises(ValueError, match="cannot be saved asynchronously"):
        tf.train.Checkpoint(model=model).save(str(tmp_path / "x"), options=options)


# --- files of Keras ---------------------------------------------------------------------------------


def refuses():
    # Keras 3 gathers the errors of all layers into a ValueError.
    return pytest.raises((RuntimeError, ValueError), match=r'(?s)is a copy.*with het_tf.namespace\("copy"\)')


def test_load_model_beside_the_original_never_changes_it(tmp_path):
    model = make_model()
    train(model)
    path = str(tmp_path / "x.keras")
    model.save(path)
    want = predictions(model)
    loaded = keras.models.load_model(path)  # nothing to restore: the rows are these
    np.testing.assert_array_equal(predictions(loaded), want)
    with pytest.raises(RuntimeError, match="is a copy"):
        train(loaded)
    del loaded
    train(model)
    before = everything()
    with refuses():
        keras.models.load_model(path)
    assert_equal(everything(), before)
    with het_tf.namespace("copy"):
        apart = keras.models.load_model(path)
    np.testing.assert_array_equal(predictions(apart), want)
    assert_equal(everything(), before)
    het_tf.reset("copy")


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
    np.testing.assert_allclose(predictions(loaded), want, rtol=1e-6, atol=1e-7)


def test_a_copy_restores_nothing_into_its_originals_tables(tmp_path):
    model = make_model()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "x"))
    weights = model.get_weights()
    clone = keras.models.clone_model(model)
    clone.compile("sgd", "mse")
    clone.set_weights(weights)  # the same rows
    np.testing.assert_array_equal(predictions(clone), predictions(model))
    train(model)
    before = everything()
    for restore in (
        lambda: clone.set_weights(weights),
        lambda: clone.load_weights(path),
        lambda: tf.train.Checkpoint(model=clone).read(prefix),
    ):
        with refuses():
            restore()
    assert_equal(everything(), before)
    clone.layers[1].share_tables()
    clone.set_weights(weights)
    assert everything()["clocks"].sum() < before["clocks"].sum()


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
    model = build(shared=True)
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
    model = build(shared=True)
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


# --- callbacks --------------------------------------------------------------------------------------


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
        with het_tf.namespace("best"):
            loaded = keras.models.load_model(path)
        np.testing.assert_array_equal(predictions(loaded), seen.predictions[1])
        het_tf.reset("best")


def test_early_stopping_restores_the_best_epoch():
    seen = Seen([3.0, 1.0, 2.0, 2.5])
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    model = make_model()
    train(model, 9, callbacks=[seen, stop])
    assert len(seen.predictions) == 4
    np.testing.assert_array_equal(predictions(model), seen.predictions[1])


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_backup_and_restore_goes_on_after_a_crash(tmp_path, rule):
    seen = Seen()
    train(make_model(rule), 4, callbacks=[seen])
    want = everything()
    het_tf.reset()

    def run(**options):
        model = make_model(rule)
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        train(model, 4, callbacks=[backup, Seen(**options)])
        return model

    with pytest.raises(InterruptedError):
        run(crash_in=2)
    het_tf.reset()  # the process has died
    resumed = predictions(run())
    np.testing.assert_allclose(resumed, seen.predictions[-1], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(everything()["clocks"], want["clocks"])


# --- get_weights ------------------------------------------------------------------------------------


def test_arrays_keep_the_rows_as_long_as_they_live():
    model = make_model()
    train(model)
    weights = model.get_weights()
    (anchor,) = [one for one in weights if one.shape == ()]
    directory = anchor.taken.directory
    saved = everything()
    copied = copy.deepcopy(weights[:2]) + [one.copy() for one in weights[2:]]
    plain = [np.array(one) for one in weights]
    train(model)
    del weights, anchor
    gc.collect()
    assert directory.exists()
    model.set_weights(plain)  # by the number alone: somebody still holds the rows
    assert_equal(everything(), saved)
    assert float(tf.convert_to_tensor(model.layers[1].weights[0])) == 0.0
    train(model)
    model.set_weights(copied)
    assert_equal(everything(), saved)
    del copied
    gc.collect()
    assert not directory.exists()
    with pytest.raises(ValueError, match="stands for no rows that this process has kept"):
        model.set_weights(plain)
    assert_equal(everything(), saved)


def test_a_forked_process_leaves_the_rows_of_its_parent():
    model = make_model()
    train(model)
    saved, weights = everything(), model.get_weights()
    child = os.fork()
    if child == 0:
        weights.clear()
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    train(model)
    model.set_weights(weights)
    assert_equal(everything(), saved)


def test_numbers_that_stand_for_nothing():
    model = make_model()
    train(model)
    weights = model.get_weights()
    place = next(number for number, one in enumerate(weights) if one.shape == ())
    sent = pickle.loads(pickle.dumps(weights))
    assert type(sent[place]) is np.ndarray
    before = everything()
    for value in (1.0, 0.5, np.nan, float(weights[place]) + 1):
        weights[place] = np.float32(value)
        with pytest.raises(ValueError, match="stands for no rows"):
            model.set_weights(weights)
    weights[place] = np.float32(0)
    with pytest.warns(het_tf.TablesNotSavedWarning, match="set from arrays without the rows of table 't'"):
        model.set_weights(weights)
    assert_equal(everything(), before)


def test_arrays_of_another_model():
    model = make_model()
    train(model)
    other = make_model(name="other", layer="elsewhere")
    other.set_weights(model.get_weights())
    np.testing.assert_array_equal(predictions(other), predictions(model))
    assert_equal(everything("other"), everything())


def test_a_clone_in_a_namespace_takes_the_rows():
    model = make_model()
    train(model)
    with het_tf.namespace("copy"):
        clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    want = predictions(model)
    train(model)
    np.testing.assert_array_equal(predictions(clone), want)
    het_tf.reset("copy")


def test_several_workers_take_no_rows_as_arrays(monkeypatch):
    class TwoWorkers:
        @staticmethod
        def size():
            return 2

        @staticmethod
        def rank():
            return 1

    model = make_model()
    train(model)
    monkeypatch.setattr(runtime._settings, "hvd", TwoWorkers)
    with pytest.warns(het_tf.TablesNotSavedWarning, match=r"all rows of all; save with het_tf\.callbacks"):
        weights = model.get_weights()
    assert not any(isinstance(one, arrays.Weight) for one in weights)
    before = everything()
    with pytest.warns(het_tf.TablesNotSavedWarning, match="set from arrays"):
        model.set_weights(weights)
    assert_equal(everything(), before)


def test_of_several_workers_rank_0_restores(monkeypatch, tmp_path):
    class TwoWorkers:
        me = 0

        @staticmethod
        def size():
            return 2

        @classmethod
        def rank(cls):
            return cls.me

    model = make_model()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    saved = everything()
    monkeypatch.setattr(runtime._settings, "hvd", TwoWorkers)
    with pytest.warns(het_tf.TablesNotSavedWarning, match="behind what other workers hold back"):
        model.save_weights(path)
    model.layers[1].embeddings = None
    het_tf.table("t").clear()
    TwoWorkers.me = 1
    with pytest.warns(het_tf.TablesNotSavedWarning, match="Rank 0 restores"):
        model.load_weights(path)
    assert het_tf.table("t").size == 0
    TwoWorkers.me = 0
    model.load_weights(path)
    assert_equal(everything(), saved)


# --- models of other shapes -------------------------------------------------------------------------


def build(shared=True, trainable=True):
    """Two layers, of the same table or not, with names that paths do not like."""
    keras.utils.set_random_seed(7)
    ids = keras.Input((3,), dtype="int64")
    table = het_tf.TableConfig("a/b c", 4, het_tf.optimizers.Adam(0.01))
    other = table if shared else het_tf.TableConfig("..", 4, het_tf.optimizers.SGD(0.1))
    first = het_tf.keras.EmbeddingCollection({"x": het_tf.FeatureConfig(table, combiner="sum")}, name="first")
    second = het_tf.keras.EmbeddingCollection(
        {"x": het_tf.FeatureConfig(other, combiner="sum")}, name="second"
    )
    first.trainable = trainable
    x = keras.layers.Concatenate()([first({"x": ids})["x"], second({"x": ids})["x"]])
    model = keras.Model(ids, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("way", KINDS)
@pytest.mark.parametrize("shape", ["shared", "apart", "frozen"])
def test_shared_and_frozen_tables(way, shape, tmp_path, monkeypatch):
    from het_tf.python.checkpoint.keras import moment

    model = build(shared=shape == "shared", trainable=shape != "frozen")
    train(model)
    restored = []
    put_back = moment.put_back
    monkeypatch.setattr(moment, "put_back", lambda *args: (restored.append(args[2]), put_back(*args)))
    way = way()
    way.save(model, tmp_path)
    want, saved = predictions(model), [everything(name) for name in het_tf.tables()]
    train(model)
    for name in het_tf.tables():
        het_tf.table(name).clear()
    way.restore(model)
    np.testing.assert_array_equal(predictions(model), want)
    for name, of_table in zip(het_tf.tables(), saved, strict=True):
        assert_equal(everything(name), of_table)
    if way.__class__ is not Arrays:
        assert sorted(restored) == sorted(het_tf.tables()), "each table once"


@pytest.mark.parametrize("way", KINDS)
def test_tables_of_several_namespaces(way, tmp_path):
    keras.utils.set_random_seed(7)
    ids = keras.Input((3,), dtype="int64")
    first = het_tf.keras.Embedding(4, "sum", table="t", name="first")(ids)
    with het_tf.namespace("n"):
        second = het_tf.keras.Embedding(4, "sum", table="t", name="second", seed=3)(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Concatenate()([first, second])))
    model.compile("sgd", "mse")
    train(model)
    way = way()
    way.save(model, tmp_path)
    want, saved = predictions(model), (everything(namespace=""), everything(namespace="n"))
    train(model)
    way.restore(model)
    np.testing.assert_array_equal(predictions(model), want)
    assert_equal(everything(namespace=""), saved[0])
    assert_equal(everything(namespace="n"), saved[1])


def test_a_table_without_rows(tmp_path):
    model = make_model()
    train(model)
    het_tf.table("t").clear()
    saved = everything()
    model.save_weights(str(tmp_path / "x.weights.h5"))
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "x"))
    weights = model.get_weights()
    for restore in (
        lambda: model.load_weights(str(tmp_path / "x.weights.h5")),
        lambda: tf.train.Checkpoint(model=model).read(path).expect_partial(),
        lambda: model.set_weights(weights),
    ):
        train(model)
        assert het_tf.table("t").size > 0
        restore()
        assert_equal(everything(), saved)


def test_names_that_keras_counts_up_do_not_matter(tmp_path):
    def unnamed():
        keras.utils.set_random_seed(7)
        ids = keras.Input((3,), dtype="int64")
        x = het_tf.keras.Embedding(4, "sum")(ids)
        model = keras.Model(ids, keras.layers.Dense(1)(x))
        model.compile("sgd", "mse")
        return model

    model = unnamed()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "x"))
    for restore in (
        lambda other: other.load_weights(path),
        lambda other: tf.train.Checkpoint(model=other).read(prefix),
        lambda other: other.set_weights(model.get_weights()),
    ):
        other = unnamed()
        assert other.layers[1].table_config.name != model.layers[1].table_config.name
        restore(other)
        np.testing.assert_array_equal(predictions(other), predictions(model))


@pytest.mark.slow
@pytest.mark.parametrize("way", KINDS)
def test_a_table_at_a_parameter_server(way, tmp_path, server):
    het_tf.init(ps=server.address)
    model = make_model(cache=het_tf.Cache(staleness=5))
    train(model)
    way = way()
    way.save(model, tmp_path)
    want, saved = predictions(model), everything()
    train(model, 2)
    uninterrupted = predictions(model)
    way.restore(model)
    # The cache's rows and the server's were summed in another order.
    np.testing.assert_allclose(predictions(model), want, rtol=1e-4, atol=1e-7)
    assert_equal(everything(), saved)
    train(model, 2)
    np.testing.assert_allclose(predictions(model), uninterrupted, rtol=1e-4, atol=1e-6)
