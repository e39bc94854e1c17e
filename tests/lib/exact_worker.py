"""Ranks train as one process that has all of their batches: test_ranks.py."""

from __future__ import annotations

import time

import numpy as np
import placing_lib
import tensorflow as tf

import het_tf

keras = tf.keras
STEPS, BATCH, IDS = 16, 8, 24


def integers(y_true, y_pred):
    """A loss whose gradients are small integers that depend on the rows: a row too old or too new shows."""
    del y_true
    factor = tf.stop_gradient(tf.math.floormod(tf.floor(y_pred * 4.0), 5.0) - 2.0)
    return factor * y_pred


def batches(ranks, seed=5):
    """For each step and rank: ids [BATCH, 2], numbers [BATCH, 3], labels [BATCH, 1]; small integers."""
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


def make(name, whole_numbers, rank=0, cache_rows=None):
    """A model of rows and of dense weights."""
    keras.utils.set_random_seed(7)
    ids, x = keras.Input((2,), dtype="int64"), keras.Input((3,))
    late = Slow(rank, dtype="int64")(ids) if rank is not None else ids
    options = {"initializer": "zeros"} if whole_numbers else {}
    optimizer = het_tf.optimizers.SGD(1.0 if whole_numbers else 0.05)
    cache = het_tf.Cache(staleness=0, rows=cache_rows)
    rows = het_tf.keras.Embedding(4, "sum", name=name, optimizer=optimizer, cache=cache, **options)(late)
    dense = keras.layers.Dense(1, kernel_initializer="zeros" if whole_numbers else "glorot_uniform")
    if whole_numbers:
        out = keras.ops.sum(rows, axis=-1, keepdims=True) + dense(x)
    else:
        out = dense(keras.layers.Concatenate()([keras.layers.Dense(5, "tanh")(x), rows]))
    model = keras.Model([ids, x], out)
    loss = integers if whole_numbers else "mse"
    eagerly = name in ("float", "placed", "on_demand_small_cache")  # the others are graphs
    model.compile(keras.optimizers.SGD(1.0 if whole_numbers else 0.05), loss, run_eagerly=eagerly)
    return model


def fit(model, data, batch):
    ids, x, y = data
    model.fit([ids, x], y, batch_size=batch, shuffle=False, verbose=0)


def result(model, name):
    """Dense weights, and the rows and clocks of the table."""
    het_tf.flush()
    scan = het_tf.Table(name).scan()
    weights = [w.value.numpy() for w in model.trainable_weights if w.shape != ()]
    found = {f"{name}/{column}": scan[column] for column in ("ids", "rows")}
    return found | {f"{name}/w{i}": w for i, w in enumerate(weights)}


CELLS = {
    "whole_small_cache": dict(whole_numbers=True, cache_rows=3),
    "float": dict(whole_numbers=False),
    "placed": dict(whole_numbers=True),
    "on_demand": dict(whole_numbers=True),
    "on_demand_small_cache": dict(whole_numbers=True, cache_rows=3),
}
MORE = ("float", "on_demand_small_cache")  # cells that are like the others, and take as long
LEFT = 10  # steps of a first pass of the streams of "on_demand", which is left then


def placed(ranks, seed=None, how=het_tf.workers.shard_placed, **more):
    """The batches of this rank, of those of all ranks together placed by the first id; shuffled before."""
    ids, x, y = part(ranks, None)
    samples = tf.data.Dataset.from_tensor_slices(({"first": ids[:, 0], "ids": ids, "x": x}, y))
    if seed is not None:
        samples = samples.shuffle(len(y), seed=seed).repeat()
    batches = how(samples, by="first", batch=BATCH, **more)
    return batches.map(lambda features, y: ((features["ids"], features["x"]), y))


def union(ranks):
    """The same in one process, on the batches of all ranks."""
    found = {}
    for name, cell in CELLS.items():
        model = make(name, rank=None, **cell)
        if name.startswith("on_demand"):
            fit(model, [one[: LEFT * ranks * BATCH] for one in part(ranks, None)], ranks * BATCH)
        fit(model, part(ranks, None), ranks * BATCH)
        found |= result(model, name)
    return found


def exact(more=False):
    """Bulk-synchronous training of cells; returns what this rank ends with."""
    rank, ranks = het_tf.workers.rank(), het_tf.workers.size()
    found = {}
    for name, cell in CELLS.items():
        if name in MORE and not more:
            continue
        model = het_tf.workers.distribute(make(name, rank=rank, **cell))
        if name == "placed":
            mine = placed(ranks)
            firsts = np.concatenate([ids[:, 0] for (ids, _), _ in mine])
            everyone = part(ranks, None)[0][:, 0]
            order = placing_lib.placed(everyone, ranks, BATCH)
            np.testing.assert_array_equal(firsts, everyone[order[:, rank].ravel()])
            assert np.any(firsts != part(ranks, rank)[0][:, 0]), "in turns it would be another part"
            model.fit(mine, verbose=0)
        elif name.startswith("on_demand"):
            on_demand(model, name, ranks)
        else:
            fit(model, part(ranks, rank), BATCH)
        het_tf.flush(all_ranks=True)
        found |= result(model, name)
    return found


def on_demand(model, name, ranks):
    """Two passes, of which the first is left: `fit` has the ranks send what they have held back."""
    rows = model.get_layer(name)
    how = het_tf.workers.shard_on_demand
    mine = placed(ranks, how=how, lookahead=rows, inputs=lambda features, y: features["ids"])
    model.fit(mine, verbose=0, steps_per_epoch=LEFT)
    model.fit(mine, verbose=0)
    assert het_tf.Table(name).stats()["planned"] == LEFT + STEPS
