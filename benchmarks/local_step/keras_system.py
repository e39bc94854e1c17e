"""keras.layers.Embedding and a Keras optimizer: updates cost O(table), and so do lookups after one."""

from __future__ import annotations

import keras
import tensorflow as tf
import workload


class System:
    version = f"Keras {keras.__version__}, TensorFlow {tf.__version__}"

    def __init__(self, rows: int, dim: int, optimizer: str, threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        # Filled by the initializer: after a sparse update TensorFlow copies the variable at each read.
        self._layer = keras.layers.Embedding(rows, dim)
        self._layer.build()
        self._optimizer = {"sgd": keras.optimizers.SGD, "adagrad": keras.optimizers.Adagrad}[optimizer](0.01)
        self._optimizer.build(self._layer.trainable_variables)
        self._ids = [tf.constant(ids) for ids in workload.pool(rows)]
        self._gradient = tf.constant(workload.gradient(dim))

        @tf.function
        def lookup(ids):
            return self._layer(ids)

        @tf.function
        def train(ids):
            with tf.GradientTape() as tape:
                rows = self._layer(ids)
            variables = self._layer.trainable_variables
            gradients = tape.gradient(rows, [v.value for v in variables], output_gradients=self._gradient)
            self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return rows

        self._lookup, self._train = lookup, train

    def lookup(self, number: int) -> None:
        self._lookup(self._ids[number])

    def train(self, number: int) -> None:
        self._train(self._ids[number])
