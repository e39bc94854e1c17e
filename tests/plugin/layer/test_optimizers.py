"""Every optimizer, from ids to rows, against Keras' own, or its formula in float64 where Keras has none.

40 random steps through the layer and the tape: directly, and behind caches that check every read, that evict
all the time, and that send updates at eviction only. One worker is exact at every bound, so all of them meet
the same rows.

Tolerance: units of the largest magnitude that rows have reached, and of 1 where all are smaller. Keras
computes in float32, too: SGD, momentum, RMSprop and Adagrad agree to the bit and Ftrl to 1.5e-7 (five seeds).
Adam with beta_2 = 0.999 differs by 5.8e-6, which is Keras' own distance from float64 (it has 1 - beta_2^t in
float32).
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import SUM, assert_close
from rules_lib import keras, learn

import het_tf

STEPS = 40
opt = het_tf.optimizers
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]

# Optimizer, its parameters, their names in Keras if others, and slots: of dim floats, and of one.
BEGIN = {"initial_accumulator": "initial_accumulator_value"}
SHRINK = {name: f"{name}_regularization_strength" for name in ("l1", "l2", "l2_shrinkage")}
OF_ZERO = {"initial_accumulator": 0.0}  # Keras begins elsewhere
CASES = [
    (opt.SGD, {}, {}, (0, 0)),
    (opt.SGD, {"momentum": 0.9}, {}, (1, 0)),
    (opt.SGD, {"momentum": 0.75, "nesterov": True}, {}, (1, 0)),
    (opt.RMSprop, {}, {}, (1, 0)),
    (opt.RMSprop, {"rho": 0.99, "epsilon": 1e-3}, {}, (1, 0)),
    (opt.Adam, {}, {}, (2, 1)),
    (opt.Adam, {"beta_1": 0.5, "beta_2": 0.99, "epsilon": 1e-3}, {}, (2, 1)),
    (opt.Adam, {"beta_1": 0.0}, {}, (1, 1)),
    (opt.Adagrad, OF_ZERO | {"epsilon": 1e-10}, BEGIN, (1, 0)),
    (opt.Adagrad, {"initial_accumulator": 0.1, "epsilon": 1e-7}, BEGIN, (1, 0)),
    (opt.Adagrad, {"decay_steps": 10}, None, (1, 0)),
    (opt.RowWiseAdagrad, {}, None, (0, 1)),
    (opt.RowWiseAdagrad, {"decay_steps": 1}, None, (0, 1)),
    (opt.RowWiseAdagrad, {"decay_steps": 1e9}, None, (0, 1)),
    (opt.RowWiseAdagrad, {"initial_accumulator": 0.1, "epsilon": 1e-3}, None, (0, 1)),
    (opt.Ftrl, OF_ZERO, BEGIN, (2, 1)),
    (opt.Ftrl, {"l1": 0.5, "l2": 0.25, "beta": 1.0, "l2_shrinkage": 0.05, "initial_accumulator": 0.5},
     BEGIN | SHRINK, (2, 1)),
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


class DecayingAdagrad:
    """The formula of docs/optimizers.md: a decaying rate, and the mean square of the row."""

    def __init__(self, kind, initial_accumulator=0.0, epsilon=1e-10, decay_steps=None):
        self.by_row, self.begin, self.epsilon = kind is opt.RowWiseAdagrad, initial_accumulator, epsilon
        self.decay_steps, self.number = decay_steps or 20, 0

    def apply_gradients(self, pairs):
        ((gradient, variable),) = pairs
        square = gradient.numpy().astype(np.float64) ** 2
        self.begin = self.begin + (square.mean(1, keepdims=True) if self.by_row else square)
        root = np.sqrt((self.begin + self.epsilon) / (self.number + 1))
        rate = self.learning_rate / np.sqrt(1 + self.number / self.decay_steps)
        variable.assign_sub(rate * gradient.numpy() / root)
        self.number += 1


def combinations():
    """Every case directly, with dims in turn; two optimizers evicting; one in the other modes."""
    for number, case in enumerate(CASES):
        yield case, "direct", DIMS[number % len(DIMS)]
        if case[0] in (opt.Adam, opt.RowWiseAdagrad) and not case[1]:
            yield case, "evicting", 6
        if case[0] is opt.Adam and not case[1]:
            yield from ((case, mode, 6) for mode in MODES if mode not in ("direct", "evicting"))


@pytest.mark.parametrize(
    ("case", "mode", "dim"),
    list(combinations()),
    ids=lambda x: x[0]._name if isinstance(x, tuple) else str(x),
)
def test_training_equals_the_optimizer_of_keras_or_the_formula(fresh, case, mode, dim):
    """Parameters that a case leaves out hold Keras' defaults on both sides."""
    optimizer, params, of_keras, slots = case
    if of_keras is None:
        reference = DecayingAdagrad(optimizer, **params)
    else:
        given = {of_keras.get(name, name): value for name, value in params.items()}
        reference = getattr(keras.optimizers, optimizer.__name__)(learning_rate=0.05, **given)
    rate = tf.Variable(0.05)
    uniform = het_tf.initializers.RandomUniform(-0.5, 0.5)
    more = {"optimizer": optimizer(rate, **params), "initializer": uniform, **MODES[mode]}
    layer = het_tf.keras.Embedding(dim, table="t", **more)
    ids, table = np.array([1 - 2**63, *range(-5, 5), 2**62]), het_tf.Table("t")  # as to_numpy orders them
    before = table.lookup(ids)
    variable = tf.Variable(before, dtype=tf.float64 if of_keras is None else tf.float32)

    @tf.function
    def step(gradient):
        learn(layer, lambda: tf.reduce_sum(layer(ids, training=True) * gradient))

    # Adam divides by the root of a small number, which enlarges what it is off by.
    ulps = 8 * SUM if optimizer is opt.Adam else SUM
    for number in range(STEPS):
        gradient = tf.constant(fresh.normal(size=before.shape).astype(np.float32))
        rate.assign(0.05 / (1 + 0.02 * number))
        reference.learning_rate = float(rate.numpy())
        reference.apply_gradients([(gradient, variable)])
        step(gradient)
        assert_close(table.lookup(ids), variable, ulps, magnitude=max(1, np.abs(variable).max()))
    np.testing.assert_array_equal(table.to_numpy()[0], ids)
    assert table.row_floats == dim * (1 + slots[0]) + slots[1] and table.updates == STEPS
    assert np.abs(variable.numpy() - before).max() > 0.1, "the test must move the values"


USERS, ITEMS, ROWS = 400, 200, 16_384


def clicks(seed):
    """Ids of users and items, and labels by a bias of each: a perfect model's AUC is about 0.8."""
    rng = np.random.default_rng(seed)
    of_user = np.random.default_rng(0).normal(size=USERS)
    of_item = np.random.default_rng(1).normal(size=ITEMS)
    users, items = rng.integers(0, USERS, ROWS), rng.integers(0, ITEMS, ROWS)
    chance = 1 / (1 + np.exp(-of_user[users] - of_item[items]))
    return (users, items), (rng.random(ROWS) < chance).astype(np.float32)


def learned(layers, batch):
    """The AUC on other clicks of a model that a user writes, after two passes."""
    keras.utils.set_random_seed(1)
    inputs = [keras.Input((), dtype="int64"), keras.Input((), dtype="int64")]
    x = keras.layers.Concatenate()([layer(ids) for layer, ids in zip(layers, inputs, strict=True)])
    x = keras.layers.Dense(16, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))
    model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    model.fit(*clicks(2), batch_size=batch, epochs=2, verbose=0)
    return model.evaluate(*clicks(3), batch_size=8192, verbose=0, return_dict=True)["auc"]


@pytest.mark.parametrize("batch", [pytest.param(256, marks=pytest.mark.long), 2048])
def test_default_optimizer_learns_like_keras_embedding(batch):
    """With an accumulator from 0.1 the tables stood still, and the AUC was nearly 0.5."""
    twin = learned([keras.layers.Embedding(USERS, 8), keras.layers.Embedding(ITEMS, 8)], batch)
    ours = learned([het_tf.keras.Embedding(8), het_tf.keras.Embedding(8)], batch)
    assert ours > twin - 0.01
    assert ours > 0.75


@pytest.mark.parametrize("kind", [opt.SGD, opt.RMSprop, opt.Adam, opt.Adagrad, opt.RowWiseAdagrad, opt.Ftrl])
def test_python_and_the_core_have_the_same_defaults(kind):
    """The numbers stand in both: one that was changed in Python only would rule, but not in het ps or C++."""
    bare = kind()
    bare.arguments = {}  # the core fills in its own
    rows = []
    for name, optimizer in (("given", kind()), ("bare", bare)):
        layer = het_tf.keras.Embedding(4, name=name, optimizer=optimizer, initializer="zeros")
        # So small that an accumulator or an epsilon of 1e-12 would show.
        for scale in (1e-6, 2e-6, -1e-6):
            factors = tf.constant([1.0, 2.0, 3.0, -1.0]) * scale
            learn(layer, lambda: tf.reduce_sum(layer(tf.constant([1, 2], tf.int64)) * factors))  # noqa: B023
        rows.append(het_tf.Table(name).scan()["rows"])
    np.testing.assert_array_equal(*rows)
