"""What the tests of saving share: a model whose training repeats exactly, and ways to save and restore it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import het_tf
from het_tf.python.layer import owner

keras = tf.keras
KERAS_3 = owner.KERAS_3

RULES = {
    "sgd": (lambda: keras.optimizers.SGD(0.1), lambda: het_tf.optimizers.SGD(0.1)),
    "adam": (lambda: keras.optimizers.Adam(0.01), lambda: het_tf.optimizers.Adam(0.01)),
}


def data(n=64, seed=1):
    """Ids whose rows move, and labels."""
    ids = np.random.default_rng(seed).integers(-20, 20, (n, 3))
    return ids, (ids.sum(1, keepdims=True) / 30).astype(np.float32)


def make_model(rule="adam", name="t", layer="embed", table_rule=None, **more):
    """A compiled model of one Embedding and two Dense layers; layers draw the same weights each time."""
    keras.utils.set_random_seed(7)
    dense, table = RULES[rule][0], RULES[table_rule or rule][1]
    ids = keras.Input((3,), dtype="int64")
    rows = het_tf.keras.Embedding(4, table=name, name=layer, optimizer=table(), **more)(ids)
    hidden = keras.layers.Dense(8, activation="tanh")(keras.layers.Flatten()(rows))
    model = keras.Model(ids, keras.layers.Dense(1)(hidden))
    model.compile(dense(), "mse")
    return model


def train(model, epochs=1, **more):
    return model.fit(*data(), batch_size=16, epochs=epochs, verbose=0, shuffle=False, **more)


def predictions(model):
    return model.predict(data()[0], verbose=0)


def everything(name="t", namespace=None):
    """Rows with slots, clocks, counts, and the step of schedules."""
    table = het_tf.Table(name, namespace)
    return {**table.scan(), "applies": table.applies}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
