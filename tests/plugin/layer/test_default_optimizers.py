"""Optimizers with default arguments."""

import numpy as np
import pytest
import tensorflow as tf
from rules_lib import learn

import het_tf
from het_tf.optimizers import SGD, Adagrad, Adam, Ftrl, RMSprop, RowWiseAdagrad

keras = tf.keras
USERS, ITEMS, ROWS = 400, 200, 16_384


def clicks(seed):
    """Ids of users and items, and labels by a bias of each: a perfect model's AUC is about 0.8."""
    rng = np.random.default_rng(seed)
    of_user, of_item = (
        np.random.default_rng(0).normal(size=USERS),
        np.random.default_rng(1).normal(size=ITEMS),
    )
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
def test_default_optimizer_learns_like_keras_embedding(fresh, batch):
    """With an accumulator from 0.1 the tables stood still, and the AUC was nearly 0.5."""
    twin = learned([keras.layers.Embedding(USERS, 8), keras.layers.Embedding(ITEMS, 8)], batch)
    ours = learned([het_tf.keras.Embedding(8), het_tf.keras.Embedding(8)], batch)
    assert ours > twin - 0.01
    assert ours > 0.75


@pytest.mark.parametrize("kind", [SGD, RMSprop, Adam, Adagrad, RowWiseAdagrad, Ftrl])
def test_python_and_the_core_have_the_same_defaults(fresh, kind):
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
