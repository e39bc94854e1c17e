"""het_tf, through its layer in a tf.function."""

from __future__ import annotations

import tensorflow as tf
import workload

import het_tf

OPTIMIZERS = {
    "sgd": het_tf.optimizers.SGD,
    "adagrad": het_tf.optimizers.Adagrad,
    "row_wise_adagrad": het_tf.optimizers.RowWiseAdagrad,
}


class System:
    """cached: reads through the embedding cache, which holds the whole table."""

    version = f"het_tf {het_tf.__version__}, TensorFlow {tf.__version__}"

    def __init__(self, rows: int, dim: int, optimizer: str, threads: int, cached: bool = False) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        cache = het_tf.Cache(rows=rows, staleness=None) if cached else None
        self._layer = het_tf.keras.Embedding(
            dim, table="t", optimizer=OPTIMIZERS[optimizer](0.01), cache=cache
        )
        for ids, values in workload.initial_rows(rows, dim):
            het_tf.Table("t").assign(ids, values)
        self._ids = [tf.constant(ids) for ids in workload.pool(rows)]
        self._gradient = tf.constant(workload.gradient(dim))

        @tf.function
        def lookup(ids):
            return self._layer(ids, training=False)

        @tf.function
        def train(ids):
            with tf.GradientTape() as tape:
                rows = self._layer(ids, training=True)
            variables = self._layer.trainable_variables
            gradients = tape.gradient(rows, variables, output_gradients=self._gradient)
            het_tf.apply(zip(gradients, variables, strict=True))
            return rows

        self._lookup, self._train = lookup, train

    def lookup(self, number: int) -> None:
        self._lookup(self._ids[number])

    def train(self, number: int) -> None:
        self._train(self._ids[number])


class CachedSystem(System):
    def __init__(self, rows: int, dim: int, optimizer: str, threads: int) -> None:
        super().__init__(rows, dim, optimizer, threads, cached=True)
