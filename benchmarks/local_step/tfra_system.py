"""TensorFlow Recommenders Addons: a cuckoo hash table, and its slots in others."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_recommenders_addons as tfra
import workload

de = tfra.dynamic_embedding


class System:
    version = f"TFRA {tfra.__version__}, TensorFlow {tf.__version__}"

    def __init__(self, rows: int, dim: int, optimizer: str, threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        table = de.get_variable(
            "t", tf.int64, tf.float32, dim=dim, initializer=0.0, kv_creator=de.CuckooHashTableCreator()
        )
        self._shadow = de.shadow_ops.ShadowVariable(table, name="shadow")
        legacy = tf.keras.optimizers.legacy
        kind = {"sgd": legacy.SGD, "adagrad": legacy.Adagrad}[optimizer]
        self._optimizer = de.DynamicEmbeddingOptimizer(kind(0.01))
        for ids, values in workload.initial_rows(rows, dim):
            table.upsert(tf.constant(ids), tf.constant(values))
        self._ids = [tf.constant(ids) for ids in workload.pool(rows)]
        self._gradient = tf.constant(workload.gradient(dim))

        @tf.function
        def lookup(ids):
            return table.lookup(ids)

        @tf.function
        def train(ids):
            with tf.GradientTape() as tape:
                unique, inverse = tf.unique(ids)
                rows = tf.gather(de.shadow_ops.embedding_lookup(self._shadow, unique), inverse)
            gradients = tape.gradient(rows, [self._shadow], output_gradients=self._gradient)
            self._optimizer.apply_gradients(zip(gradients, [self._shadow], strict=True))
            return rows

        self._lookup, self._train = lookup, train
        if optimizer == "adagrad":
            self.train(0)  # makes the slots
            slot = self._optimizer.get_slot(self._shadow, "accumulator").params
            for ids, values in workload.initial_rows(rows, dim):
                slot.upsert(tf.constant(ids), tf.constant(values * 0 + 0.1))

    def lookup(self, number: int) -> None:
        self._lookup(self._ids[number])

    def train(self, number: int) -> None:
        self._train(self._ids[number])
