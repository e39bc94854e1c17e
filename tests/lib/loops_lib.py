"""Two models that must learn the same in any loop: one with a table, one with a variable of rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from floats_lib import TRAINED, assert_close

import het_tf

keras = tf.keras
IDS, DIM = 12, 3

# Name -> the optimizer of a table, and Keras' own.
OPTIMIZERS = {
    "sgd": (lambda: het_tf.optimizers.SGD(0.1), lambda **more: keras.optimizers.SGD(0.1, **more)),
    "adagrad": (
        lambda: het_tf.optimizers.Adagrad(0.1, 0.1, 1e-7),
        lambda **more: keras.optimizers.Adagrad(0.1, **more),
    ),
}


class Reference(keras.layers.Embedding):
    """keras.layers.Embedding whose gradient is dense: Keras would square slices before it adds equal ids."""

    def __init__(self, **kwargs):
        super().__init__(IDS, DIM, **kwargs)

    def call(self, inputs):
        return tf.tensordot(tf.one_hot(inputs, IDS), tf.convert_to_tensor(self.embeddings), 1)


class Pair:
    """Two equal models.

    Attributes:
      models: Ours and the reference; each has `tables`, `dense` and calls `rows`.
    """

    def __init__(self, kind="sgd", tables=("t",), layers_of=None, **layer_arguments):
        """`layers_of`: for each layer the table; default: one layer a table."""
        table_optimizer, self.optimizer = OPTIMIZERS[kind]
        layers_of = layers_of or tables
        self.tables = tables
        ours = [
            het_tf.keras.Embedding(
                DIM, name=f"layer_{i}", table=table, optimizer=table_optimizer(), **layer_arguments
            )
            for i, table in enumerate(layers_of)
        ]
        references = {}
        for table in tables:
            references[table] = Reference(dtype=layer_arguments.get("dtype"))
            references[table].build((None,))
            references[table].set_weights([rows(table)])
        theirs = [references[table] for table in layers_of]
        self.references = references
        self.ours, self.theirs = Model(ours), Model(theirs)
        for model in self:
            model.head.build((None, DIM))
        self.theirs.head.set_weights(self.ours.head.get_weights())

    def __iter__(self):
        return iter((self.ours, self.theirs))

    def check(self, ulps=TRAINED):
        """Rows and dense weights are equal."""
        for table in self.tables:
            want = self.references[table].get_weights()[0]
            assert_close(rows(table), want, ulps, magnitude=np.abs(want).max())
        for mine, other in zip(self.ours.head.get_weights(), self.theirs.head.get_weights(), strict=True):
            assert_close(mine, other, ulps, magnitude=max(1e-3, np.abs(other).max()))


class Model:
    """Rows of layers, and a head: a loss that is not linear in the rows."""

    def __init__(self, layers):
        self.layers = layers
        self.head = keras.layers.Dense(1, "tanh", dtype="float32")

    @property
    def variables(self):
        unique = {id(one): one for layer in self.layers for one in layer.trainable_variables}
        return [*unique.values(), *self.head.trainable_variables]

    def __call__(self, ids, layer=0):
        return self.head(self.layers[layer](ids))

    def loss(self, batch, layer=0):
        ids, labels = batch
        return tf.reduce_mean((self(ids, layer) - labels) ** 2)


def rows(table="t"):
    return het_tf.Table(table).lookup(np.arange(IDS))


def batches(steps=4, size=8, seed=1):
    """Ids [size], with equal ones, and labels [size, 1] of each step."""
    rng = np.random.default_rng(seed)
    return [
        (
            tf.constant(rng.integers(0, IDS, size)),
            tf.constant(rng.normal(size=(size, 1)), tf.float32),
        )
        for _ in range(steps)
    ]


def gradients_of(model, loss):
    """The gradients of loss() by all variables of a model."""
    with tf.GradientTape() as tape:
        value = loss()
    return tape.gradient(value, model.variables)
