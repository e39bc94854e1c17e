"""Dense weights and tables come back from one moment, whichever way of TensorFlow or Keras saves them."""

import numpy as np
import pytest
import redis_lib
import saving_lib
import tensorflow as tf
from floats_lib import MODEL, SUM, TRAINED, assert_close, of_columns
from saving_lib import Checkpoint, WeightsH5, build, data, everything, keras, predictions, train, trained

import het_tf
from het_tf.ext.checkpoint.python.saving import bundle, moment, pack
from het_tf.python.table import registry

pytestmark = saving_lib.MARKS


MOMENTS = [
    (Checkpoint, "sgd", {"cache": het_tf.Cache(rows=8, staleness=0)}),
    (WeightsH5, "adam", {}),
    pytest.param(Checkpoint, "adam", {"cache": het_tf.Cache(staleness=5, wire="float32")},
                 marks=redis_lib.SERVER),
]  # fmt: skip


@pytest.mark.parametrize(("way", "rule", "cache"), MOMENTS)
def test_dense_weights_and_tables_come_back_of_one_moment(way, rule, cache, tmp_path, request):
    # The rows of a cache that may be stale and the server's were summed in another order.
    remote = "cache" in cache and cache["cache"].staleness == 5
    if remote:
        het_tf.init(ps=request.getfixturevalue("server").address)
    model, way = trained(rule, **cache), way()
    way.save(model, tmp_path)
    saved, at_save = everything(), predictions(model)
    train(model, 2)
    uninterrupted, rows = predictions(model), everything()
    assert np.abs(uninterrupted - at_save).max() > 1e-4, "training has changed something"
    table = het_tf.Table("t")
    table.assign([999], np.ones((1, 4), np.float32))  # a row that the saved table did not have
    way.restore(model)
    assert_close(predictions(model), at_save, MODEL if remote else 0)
    np.testing.assert_equal(everything(), saved)
    train(model, 2)
    assert_close(predictions(model), uninterrupted, TRAINED if remote else SUM)
    again = everything()
    np.testing.assert_array_equal(again["clocks"], rows["clocks"])
    ulps = TRAINED if remote else MODEL
    assert_close(again["rows"], rows["rows"], ulps, magnitude=of_columns(rows["rows"]))
    way.restore(model)
    np.testing.assert_equal(everything(), saved)


def test_tf_checkpoint_carries_readable_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "_SLICE_BYTES", 64)
    monkeypatch.setattr(bundle, "_SHARD_BYTES", 256)
    model = trained()
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), str(tmp_path), max_to_keep=2)
    path = manager.save()
    assert len(list(tmp_path.glob("ckpt-1.data-*"))) > 5, "slices of a table, each in a shard"
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
    het_tf.Table("t").assign(np.arange(-20, 20), np.random.default_rng(0).normal(size=(40, 4)))
    want, saved = model(ids), everything()
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "lazy"))
    het_tf.reset()
    model = Lazy()
    status = tf.train.Checkpoint(model=model).read(path)
    with pytest.raises(AssertionError):
        status.assert_consumed()
    np.testing.assert_array_equal(model(ids), want)
    status.assert_consumed().assert_existing_objects_matched()
    np.testing.assert_equal(everything(), saved)


def test_a_checkpoint_whose_table_is_not_wanted(tmp_path):
    model = trained()
    path = tf.train.Checkpoint(model=model, extra=tf.Variable(1.0)).write(str(tmp_path / "x"))
    train(model)
    before = everything()
    dense = tf.train.Checkpoint(extra=tf.Variable(0.0))
    dense.read(path).expect_partial()
    with pytest.raises(AssertionError):
        dense.read(path).assert_consumed()
    assert float(dense.extra) == 1.0
    np.testing.assert_equal(everything(), before)


def test_a_save_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    model = trained()
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
    np.testing.assert_equal(everything(), saved)
    manager.save()
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()


def test_saving_asynchronously_is_refused(tmp_path):
    options = tf.train.CheckpointOptions(enable_async=True)
    with pytest.raises(ValueError, match="cannot be saved asynchronously"):
        tf.train.Checkpoint(model=trained()).save(str(tmp_path / "x"), options=options)


LOST = pytest.mark.skipif(keras.__version__ < "3.15", reason="Keras loses rows")


@pytest.mark.parametrize(
    ("way", "shape"),
    [(way, shape) for way in saving_lib.WAYS for shape in ("shared", "namespaces", "empty")]
    + [(Checkpoint, "apart"), (Checkpoint, "frozen")]
    + [pytest.param(saving_lib.SeveralFiles, "shared", marks=LOST)],
)  # fmt: skip
def test_models_of_several_tables(way, shape, tmp_path, monkeypatch):
    model = build(shape)
    train(model)
    if shape == "empty":  # but trained before, and afterwards
        het_tf.Table("a/b c").clear()
    restored = []
    put_back = moment.put_back
    monkeypatch.setattr(moment, "put_back", lambda *args: (restored.append(args[2]), put_back(*args)))
    keys = sorted(registry.keys())
    way = way()
    way.save(model, tmp_path)
    want, saved = predictions(model), [everything(name, namespace) for namespace, name in keys]
    train(model)
    for namespace, name in keys if shape != "empty" else ():
        het_tf.Table(name, namespace).clear()
    way.restore(model)
    np.testing.assert_array_equal(predictions(model), want)
    for (namespace, name), of_table in zip(keys, saved, strict=True):
        np.testing.assert_equal(everything(name, namespace), of_table)
    once = set(restored) if type(way) is saving_lib.SeveralFiles else restored
    assert sorted(once) == sorted(name for _, name in keys), "each table once"
