"""Two models that must learn the same in any loop: one with a table, one with a variable of rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from backends_lib import DIM, IDS, Reference, rows
from floats_lib import TRAINED, assert_close

import het_tf

keras = tf.keras

# Name -> the optimizer of a table, and Keras' own.
OPTIMIZERS = {
    "sgd": (lambda: het_tf.optimizers.SGD(0.1), lambda **more: keras.optimizers.SGD(0.1, **more)),
    "adagrad": (
        lambda: het_tf.optimizers.Adagrad(0.1, 0.1, 1e-7),
        lambda **more: keras.optimizers.Adagrad(0.1, **more),
    ),
}


class Pair:
    """Two equal models, `ours` and `theirs`; `layers_of`: for each layer the table, default: one a table."""

    def __init__(self, kind="sgd", tables=("t",), layers_of=None):
        table_optimizer, self.optimizer = OPTIMIZERS[kind]
        layers_of = layers_of or tables
        ours = [
            het_tf.keras.Embedding(DIM, name=f"layer_{i}", table=table, optimizer=table_optimizer())
            for i, table in enumerate(layers_of)
        ]
        self.references = {table: Reference(rows(table)) for table in tables}
        self.ours, self.theirs = Model(ours), Model([self.references[table] for table in layers_of])
        for model in self:
            model.head.build((None, DIM))
        self.theirs.head.set_weights(self.ours.head.get_weights())

    def __iter__(self):
        return iter((self.ours, self.theirs))

    def check(self, ulps=TRAINED):
        """Rows and dense weights are equal."""
        for table, reference in self.references.items():
            want = reference.get_weights()[0]
            assert_close(rows(table), want, ulps, magnitude=np.abs(want).max())
        for mine, other in zip(self.ours.head.get_weights(), self.theirs.head.get_weights(), strict=True):
            assert_close(mine, other, ulps, magnitude=max(1e-3, np.abs(other).max()))

    def train(self, gradients, mode="graph", steps=4, **options):
        """Trains both models on every batch by gradients(model, batch): of all variables, or pairs."""
        for model in self:
            model.optimizer = self.optimizer(**options)
            model.optimizer.build(model.variables)

            def step(*batch, model=model):
                found = gradients(model, batch)
                pairs = found if isinstance(found[0], tuple) else zip(found, model.variables, strict=True)
                if pairs := [(one, of) for one, of in pairs if one is not None]:
                    model.optimizer.apply_gradients(pairs)

            run = tf.function(step) if mode == "graph" else step
            for model.number, batch in enumerate(batches(steps)):
                run(*batch)


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

    def gradients(self, loss):
        """The gradients of loss() by all variables."""
        with tf.GradientTape() as tape:
            value = loss()
        return tape.gradient(value, self.variables)


def batches(steps=4, size=8, seed=1):
    """Ids [size], with equal ones, and labels [size, 1] of each step."""
    rng = np.random.default_rng(seed)
    return [
        (tf.constant(rng.integers(0, IDS, size)), tf.constant(rng.normal(size=(size, 1)), tf.float32))
        for _ in range(steps)
    ]
