"""het_tf.callbacks.Checkpoint with a directory: what is saved, when, and how many stay."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from checkpoint_lib import model, same, tables, weights

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest as manifest_lib

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]


def data():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 50, (32, 2)), rng.random((32, 3), np.float32)], rng.random((32, 1), np.float32)


def steps(place):
    return [manifest_lib.read_manifest(path).step for path in checkpoint.checkpoints(place)]


def test_checkpoint_of_each_epoch_is_consistent(tmp_path):
    made = model()
    x, y = data()
    seen = {}

    class Look(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen[int(self.model.optimizer.iterations)] = (tables(), weights(self.model))

    saver = het_tf.callbacks.Checkpoint(str(tmp_path / "c"), keep=3)
    made.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=[Look(), saver])
    assert steps(tmp_path / "c") == [12, 16, 20]
    for path in checkpoint.checkpoints(tmp_path / "c"):
        found = checkpoint.restore(path, made)
        table, dense = seen[found.step]
        same(tables(), table)
        for a, b in zip(weights(made), dense, strict=True):
            np.testing.assert_array_equal(a, b)


def test_every_few_steps_by_increments(tmp_path):
    made = model()
    x, y = data()
    saver = het_tf.callbacks.Checkpoint(tmp_path, save_freq=3, full_every=3)
    made.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[saver])
    assert steps(tmp_path) == [3, 6, 9, 12, 15]
    full = [manifest_lib.read_manifest(path).base is None for path in checkpoint.checkpoints(tmp_path)]
    assert full == [True, False, False, True, False]
    assert checkpoint.verify(tmp_path).step == 15


def test_a_directory_of_later_steps_is_refused_before_training(tmp_path):
    x, y = data()
    made = model()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):  # ends the fit
        made.fit(x, y, verbose=0, callbacks=[het_tf.callbacks.Checkpoint(tmp_path / "file")])
    (tmp_path / "file").unlink()
    het_tf.reset()
    made = model()
    made.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[het_tf.callbacks.Checkpoint(tmp_path)])
    het_tf.reset()
    made = model()
    before = tables()
    saver = het_tf.callbacks.Checkpoint(tmp_path)
    with pytest.raises(ValueError, match="ckpt-00000008 exists, but the optimizer has made 0 steps"):
        made.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[saver])
    same(tables(), before)
    checkpoint.restore(tmp_path, made)
    made.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[saver])
    assert steps(tmp_path) == [4, 8, 12]
