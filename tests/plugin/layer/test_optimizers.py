"""Every optimizer, from ids to rows and slots, against its formula in float64 and against Keras' optimizer.

40 random steps with repeated ids, two features on one table, through the layer and the tape: directly, and
behind caches that check every read, that evict all the time, and that send updates at eviction only. One
worker is exact at every bound, so all of them meet the same oracle.

Tolerance: 1e-6 of the largest magnitude that this part of the table (the value, or one slot) has reached,
and of 1 where all are smaller. Keras computes in float32, too: SGD, momentum, RMSprop and Adagrad agree to
the bit and Ftrl to 1.5e-7 (five seeds). Adam with beta_2 = 0.999 differs by 5.8e-6, which is Keras' own
distance from float64 (it has 1 - beta_2^t in float32): hence 1e-5.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import SUM, assert_close
from optimizer_oracles import Adagrad, Adam, Ftrl, Momentum, Rmsprop, RowWiseAdagrad, Sgd
from rules_lib import learn

import het_tf

STEPS = 40
opt = het_tf.optimizers
keras = tf.keras
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]

# Optimizer, oracle, its slots in their order, parameters.
CASES = [
    (opt.SGD, Sgd, [], {}),
    (opt.SGD, Momentum, ["momentum"], {"momentum": 0.9}),
    (opt.SGD, Momentum, ["momentum"], {"momentum": 0.75, "nesterov": True}),
    (opt.RMSprop, Rmsprop, ["velocity"], {}),
    (opt.RMSprop, Rmsprop, ["velocity"], {"rho": 0.99, "epsilon": 1e-3}),
    (opt.Adam, Adam, ["m", "v", "step"], {}),
    (opt.Adam, Adam, ["m", "v", "step"], {"beta_1": 0.5, "beta_2": 0.99, "epsilon": 1e-3}),
    (opt.Adam, Adam, ["v", "step"], {"beta_1": 0.0}),
    (opt.Adagrad, Adagrad, ["accumulator"], {}),
    (opt.Adagrad, Adagrad, ["accumulator"], {"initial_accumulator": 0.1, "epsilon": 1e-7}),
    (opt.Adagrad, Adagrad, ["accumulator"], {"decay_steps": 10}),
    (opt.RowWiseAdagrad, RowWiseAdagrad, ["accumulator"], {}),
    (opt.RowWiseAdagrad, RowWiseAdagrad, ["accumulator"], {"decay_steps": 1}),
    (opt.RowWiseAdagrad, RowWiseAdagrad, ["accumulator"], {"decay_steps": 1e9}),
    (opt.RowWiseAdagrad, RowWiseAdagrad, ["accumulator"], {"initial_accumulator": 0.1, "epsilon": 1e-3}),
    (opt.Ftrl, Ftrl, ["z", "n", "learning_rate"], {}),
    (opt.Ftrl, Ftrl, ["z", "n", "learning_rate"],
     {"l1": 0.5, "l2": 0.25, "beta": 1.0, "l2_shrinkage": 0.05, "initial_accumulator": 0.5}),
]  # fmt: skip
MODES = {
    "direct": {},
    "strict": {"cache": het_tf.Cache(rows=1000, staleness=0)},
    "stale": {"cache": het_tf.Cache(rows=1000, staleness=7)},
    "evicting": {"cache": het_tf.Cache(rows=5, staleness=3, policy="lru")},
    "unbounded": {"cache": het_tf.Cache(rows=8, staleness=math.inf, policy="lru")},
    "none": {"cache": het_tf.Cache(rows=0)},
}
DIMS = [1, 6, 16, 33]


def combinations():
    """Every case directly, with dims in turn; two optimizers evicting; one in the other modes."""
    for number, case in enumerate(CASES):
        yield case, "direct", DIMS[number % len(DIMS)]
        if case[0] in (opt.Adam, opt.RowWiseAdagrad) and not case[3]:
            yield case, "evicting", 6
        if case[0] is opt.Adam and not case[3]:
            yield from ((case, mode, 6) for mode in MODES if mode not in ("direct", "evicting"))


@pytest.mark.parametrize(
    ("case", "mode", "dim"),
    list(combinations()),
    ids=lambda x: x[0]._name if isinstance(x, tuple) else str(x),
)
def test_training_equals_the_oracle(fresh, case, mode, dim):
    optimizer, oracle_class, slots, params = case
    rate = tf.Variable(0.1)
    uniform = het_tf.initializers.RandomUniform(-0.5, 0.5)
    feature = het_tf.FeatureConfig(het_tf.TableConfig("t", dim, optimizer(rate, **params), uniform))
    layer = het_tf.keras.EmbeddingCollection({"a": feature, "b": feature}, **MODES[mode])
    ids = np.array([1 - 2**63, *range(-9, 9), 2**62], np.int64)  # in the order of to_numpy
    initial = het_tf.Table("t").lookup(ids)
    renamed = {("momentum_param" if name == "momentum" else name): value for name, value in params.items()}
    oracle = oracle_class(initial, **renamed)
    peak = dict.fromkeys(["value", *slots], 1.0)  # of the numbers that were added so far

    def compare(found, name, rows=slice(None)):
        expected = getattr(oracle, name)
        peak[name] = max(peak[name], np.abs(expected).max())
        assert_close(found, expected[rows], magnitude=peak[name], message=name)

    @tf.function(reduce_retracing=True)
    def step(a, b, targets_a, targets_b):
        with tf.GradientTape() as tape:
            rows = layer({"a": a, "b": b}, training=True)
            loss = tf.reduce_sum(rows["a"] * targets_a) + tf.reduce_sum(rows["b"] * targets_b)
        variables = layer.trainable_variables
        het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))
        return rows

    for number in range(STEPS):
        rate.assign(0.1 / (1 + 0.05 * number))
        places = [fresh.zipf(1.3, 11) % len(ids), fresh.integers(0, len(ids), 7)]
        gradients = [fresh.normal(size=(len(p), dim)).astype(np.float32) / 2 for p in places]
        rows = step(ids[places[0]], ids[places[1]], *gradients)
        for place, read in zip(places, (rows["a"], rows["b"]), strict=True):
            compare(read, "value", place)
        sums = np.zeros((len(ids), dim))
        for place, gradient in zip(places, gradients, strict=True):
            np.add.at(sums, place, gradient.astype(np.float64))
        for place in np.unique(np.concatenate(places)):
            oracle.tick(place, sums[place], np.float64(rate.numpy()))
    table = het_tf.Table("t")
    scanned = table.scan()
    np.testing.assert_array_equal(scanned["ids"], ids)
    found = scanned["rows"]
    at = 0
    for name in ["value", *slots]:
        width = getattr(oracle, name).shape[1]
        compare(found[:, at : at + width], name)
        at += width
    assert at == table.row_floats and table.updates == STEPS
    assert (np.abs(oracle.value - initial).max(axis=1) > 0).sum() > len(ids) // 2, "most rows have moved"


ADAGRAD_NAMES = {"initial_accumulator": "initial_accumulator_value"}
FTRL_NAMES = ADAGRAD_NAMES | {
    name: f"{name}_regularization_strength" for name in ("l1", "l2", "l2_shrinkage")
}
KERAS = {
    opt.SGD: ("SGD", {}), opt.RMSprop: ("RMSprop", {}), opt.Adam: ("Adam", {}),
    opt.Adagrad: ("Adagrad", ADAGRAD_NAMES), opt.Ftrl: ("Ftrl", FTRL_NAMES),
}  # fmt: skip
OTHER_DEFAULTS = [(opt.Adagrad, {}), (opt.Ftrl, {})]
NOT_OF_KERAS = [(opt.Adam, {"beta_1": 0.0}), (opt.Adagrad, {"decay_steps": 10}), *OTHER_DEFAULTS]


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case[0] in KERAS and (case[0], case[3]) not in NOT_OF_KERAS],
    ids=lambda case: case[0]._name,
)
def test_dense_gradients_equal_the_optimizer_of_keras(fresh, case):
    """Parameters that a case leaves out hold Keras' defaults on both sides."""
    optimizer, _, _, params = case
    name, renamed = KERAS[optimizer]
    given = {renamed.get(key, key): value for key, value in params.items()}
    reference = getattr(keras.optimizers, name)(learning_rate=0.05, **given)
    rate = tf.Variable(0.05)
    uniform = het_tf.initializers.RandomUniform(-0.5, 0.5)
    layer = het_tf.keras.Embedding(6, table="t", optimizer=optimizer(rate, **params), initializer=uniform)
    ids = np.arange(12)
    before = het_tf.Table("t").lookup(ids)
    variable = tf.Variable(before)

    @tf.function
    def step(gradient):
        learn(layer, lambda: tf.reduce_sum(layer(ids, training=True) * gradient))

    # Adam divides by the root of a small number, which enlarges what it is off by.
    ulps = 8 * SUM if optimizer is opt.Adam and not params else SUM
    for number in range(STEPS):
        gradient = tf.constant(fresh.normal(size=before.shape).astype(np.float32))
        rate.assign(0.05 / (1 + 0.02 * number))
        reference.learning_rate = float(rate.numpy())
        reference.apply_gradients([(gradient, variable)])
        step(gradient)
        assert_close(het_tf.Table("t").lookup(ids), variable, ulps, magnitude=1)
    assert np.abs(variable.numpy() - before).max() > 0.1, "the test must move the values"
