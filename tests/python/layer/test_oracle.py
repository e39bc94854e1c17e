"""The whole way, ids to rows and gradients to tables, against the float64 oracle of every optimizer.

100 random steps with repeated ids, two features on one table, through the layer and the tape: directly,
and behind caches that check every read, that evict all the time, and that send updates at eviction only. One
worker is exact at every bound, so all of them meet the same oracle. Tolerance as in test_optimizers.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from optimizer_oracles import Adagrad, Adam, Ftrl, Momentum, Rmsprop, RowWiseAdagrad, Sgd

import het_tf

DIM, IDS, STEPS, RATE = 6, 20, 100, 0.05
opt = het_tf.optimizers

OPTIMIZERS = {
    "sgd": (opt.SGD(RATE), Sgd, {}),
    "momentum": (opt.Momentum(RATE), Momentum, {}),
    "rmsprop": (opt.RMSProp(RATE), Rmsprop, {}),
    "adam": (opt.Adam(RATE), Adam, {}),
    "adagrad": (opt.Adagrad(RATE), Adagrad, {}),
    "row_wise_adagrad": (opt.RowWiseAdagrad(RATE), RowWiseAdagrad, {}),
    "ftrl": (opt.FTRL(RATE, l1=0.01, l2=0.02), Ftrl, {"l1": 0.01, "l2": 0.02}),
}
MODES = {
    "direct": {},
    "strict": {"cache": het_tf.Cache(rows=1000, staleness=0)},
    "stale": {"cache": het_tf.Cache(rows=1000, staleness=7)},
    "evicting": {"cache": het_tf.Cache(rows=5, staleness=3, policy="lfu")},
    "unbounded": {"cache": het_tf.Cache(rows=8, staleness=None, policy="light_lfu", admit_after=2)},
    "none": {"cache": het_tf.Cache(rows=0)},
}


@pytest.mark.tf215
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_equals_the_oracle(fresh, optimizer, mode):
    config, oracle_class, params = OPTIMIZERS[optimizer]
    table = het_tf.TableConfig("t", DIM, config, het_tf.initializers.Uniform(-0.5, 0.5))
    layer = het_tf.keras.EmbeddingCollection(
        {"a": het_tf.FeatureConfig(table), "b": het_tf.FeatureConfig(table)}, **MODES[mode]
    )
    ids = np.array([-(2**63), 2**62, *range(IDS - 2)], np.int64)
    oracle = oracle_class(het_tf.table("t").lookup(ids), **params)
    largest = np.ones(1)

    @tf.function(reduce_retracing=True)
    def step(a, b, targets_a, targets_b):
        with tf.GradientTape() as tape:
            rows = layer({"a": a, "b": b}, training=True)
            loss = tf.reduce_sum(rows["a"] * targets_a) + tf.reduce_sum(rows["b"] * targets_b)
        tape.gradient(loss, layer.trainable_variables)
        return rows

    for number in range(STEPS):
        places = [fresh.integers(0, IDS, 11), fresh.integers(0, IDS // 2, 7)]
        gradients = [fresh.normal(size=(len(p), DIM)).astype(np.float32) for p in places]
        rows = step(ids[places[0]], ids[places[1]], *gradients)
        for place, read in zip(places, (rows["a"], rows["b"]), strict=True):
            np.testing.assert_allclose(
                read, oracle.value[place], rtol=0, atol=1e-6 * largest[0], err_msg=str(number)
            )
        sums = np.zeros((IDS, DIM))
        for place, gradient in zip(places, gradients, strict=True):
            np.add.at(sums, place, gradient.astype(np.float64))
        for place in np.unique(np.concatenate(places)):
            oracle.tick(place, sums[place], RATE)
        largest = np.maximum(largest, np.abs(oracle.value).max())
    np.testing.assert_allclose(het_tf.table("t").lookup(ids), oracle.value, rtol=0, atol=1e-6 * largest[0])
    assert het_tf.table("t").applies == STEPS
