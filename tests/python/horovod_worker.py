"""What the ranks of the tests run: `horovodrun -np 2 python horovod_worker.py CASE ...`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import het_tf

keras = tf.keras
STEPS, BATCH, IDS = 40, 8, 24


def integers(y_true, y_pred):
    """A loss whose gradients are small integers that depend on the rows: a row too old or too new shows."""
    del y_true
    factor = tf.stop_gradient(tf.math.floormod(tf.floor(y_pred * 4.0), 5.0) - 2.0)
    return factor * y_pred


def batches(ranks, seed=5):
    """Of each step and rank: ids [BATCH, 2], numbers [BATCH, 3], labels [BATCH, 1]; small integers."""
    rng = np.random.default_rng(seed)
    shape = (STEPS, ranks, BATCH)
    ids = rng.integers(0, IDS, (*shape, 2))
    x = rng.integers(-1, 2, (*shape, 3)).astype(np.float32)
    return ids, x, (ids.sum(-1, keepdims=True) % 3 == 0).astype(np.float32)


def part(ranks, rank):
    """All batches of one rank, one after the other; of all ranks together, step by step, if rank is None."""
    chosen = slice(None) if rank is None else slice(rank, rank + 1)
    return [one[:, chosen].reshape(-1, one.shape[-1]) for one in batches(ranks)]


class Slow(keras.layers.Layer):
    """Passes ids on, on some steps late: as when the ranks are not equally fast."""

    def __init__(self, seed, **options):
        super().__init__(**options)
        self.rng = np.random.default_rng(seed)

    def call(self, ids):
        def wait(x):
            time.sleep(0.03 * float(self.rng.random() < 0.4))
            return x

        out = tf.numpy_function(wait, [ids], tf.int64)
        out.set_shape(ids.shape)
        return out


def make(name, whole_numbers, rank=0, **layer_options):
    """A model of rows and of dense weights."""
    keras.utils.set_random_seed(7)
    ids, x = keras.Input((2,), dtype="int64"), keras.Input((3,))
    late = Slow(rank, dtype="int64")(ids) if rank is not None else ids
    optimizer = het_tf.optimizers.SGD(1.0 if whole_numbers else 0.05)
    initializer = "zeros" if whole_numbers else None
    rows = het_tf.keras.Embedding(
        4, combiner="sum", name=name, optimizer=optimizer, initializer=initializer, staleness=0, **layer_options
    )(late)
    dense = keras.layers.Dense(1, kernel_initializer="zeros" if whole_numbers else "glorot_uniform")
    if whole_numbers:
        out = keras.ops.sum(rows, axis=-1, keepdims=True) + dense(x)
    else:
        out = dense(keras.layers.Concatenate()([keras.layers.Dense(5, "tanh")(x), rows]))
    model = keras.Model([ids, x], out)
    loss = integers if whole_numbers else "mse"
    model.compile(keras.optimizers.SGD(1.0 if whole_numbers else 0.05), loss)
    return model


def fit(model, data, batch, callbacks=()):
    ids, x, y = data
    model.fit([ids, x], y, batch_size=batch, shuffle=False, verbose=0, callbacks=list(callbacks))


def result(model, name):
    """Dense weights, and the rows and clocks of the table."""
    het_tf.flush()
    scan = het_tf.table(name).scan()
    weights = [w.value.numpy() for w in model.trainable_weights if w.shape != ()]
    return {f"{name}/w{i}": w for i, w in enumerate(weights)} | {
        f"{name}/{column}": scan[column] for column in ("ids", "rows")
    }


CELLS = {
    "whole": dict(whole_numbers=True),
    "whole_small_cache": dict(whole_numbers=True, cache_rows=3),
    "float": dict(whole_numbers=False),
}


def union(ranks):
    """The same in one process, on the batches of all ranks."""
    found = {}
    for name, cell in CELLS.items():
        model = make(name, rank=None, **cell)
        fit(model, part(ranks, None), ranks * BATCH)
        found |= result(model, name)
    return found


def exact(hvd, out):
    """Bulk-synchronous training of all cells."""
    rank, ranks = hvd.rank(), hvd.size()
    found = {}
    for name, cell in CELLS.items():
        model = het_tf.horovod.distribute(make(name, rank=rank, **cell))
        fit(model, part(ranks, rank), BATCH, [het_tf.callbacks.Broadcast()])
        het_tf.horovod.flush_all()
        found |= result(model, name)
    np.savez(Path(out) / f"{rank}.npz", **found)


def main():
    import horovod.tensorflow as hvd

    hvd.init()
    het_tf.init(hvd=hvd)
    globals()[sys.argv[1]](hvd, *sys.argv[2:])
    print(f"rank {hvd.rank()} is done")


if __name__ == "__main__":
    main()
