"""Shared by tests of layers: a layer, a model, a step."""

import numpy as np
import tensorflow as tf

import het_tf

keras = tf.keras
MODES = ["graph", "eager"]


def embedding(optimizer=None, dim=4, name="t", **more):
    return het_tf.keras.Embedding(dim, name=name, optimizer=optimizer or het_tf.optimizers.SGD(0.1), **more)


def make_model(optimizer="sgd", table_optimizer=None, mode="graph", loss="mse", **compile_args):
    ids = keras.Input((3,), dtype="int64")
    x = embedding(table_optimizer)(ids)
    model = keras.Model(ids, keras.layers.Dense(1, dtype="float32")(keras.layers.Flatten()(x)))
    model.compile(optimizer, loss, run_eagerly=mode == "eager", **compile_args)
    return model


def data(n=32):
    ids = np.random.default_rng(0).integers(0, 10, (n, 3))
    return ids, (ids.sum(1, keepdims=True) / 10 - 1.4).astype(np.float32)


def learn(layer, loss, reduce=False):
    """One update of the tables of a layer, or a model, by the gradient of the sum of `loss()`; returns it.

    `reduce`: the gradients of all ranks.
    """
    with tf.GradientTape() as tape:
        value = loss()
    variables = layer.trainable_variables
    gradients = tape.gradient(value, variables)
    if reduce:
        gradients = het_tf.workers.reduce_gradients(gradients, variables)
    het_tf.apply(zip(gradients, variables, strict=True))
    return value
