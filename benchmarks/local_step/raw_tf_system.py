"""TensorFlow's own ops on dense variables: ids are row numbers, and nothing is hashed."""

from __future__ import annotations

import tensorflow as tf
import workload

RATE = 0.01


class System:
    version = f"TensorFlow {tf.__version__}"

    def __init__(self, rows: int, dim: int, optimizer: str, threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._value = tf.Variable(tf.zeros([rows, dim]))
        for ids, values in workload.initial_rows(rows, dim):
            self._value.scatter_update(tf.IndexedSlices(tf.constant(values), tf.constant(ids)))
        if optimizer != "sgd":
            width = [rows, dim] if optimizer == "adagrad" else [rows]
            self._accumulator = tf.Variable(tf.fill(width, 0.1))
        self._ids = [tf.constant(ids) for ids in workload.pool(rows)]
        self._gradient = tf.constant(workload.gradient(dim))
        update = getattr(self, f"_{optimizer}")

        @tf.function
        def lookup(ids):
            return tf.gather(self._value, ids)

        @tf.function
        def train(ids):
            looked_up = tf.gather(self._value, ids)
            unique, inverse = tf.unique(ids)
            sums = tf.math.unsorted_segment_sum(self._gradient, inverse, tf.size(unique))
            update(unique, sums)
            return looked_up

        self._lookup, self._train = lookup, train

    def _sgd(self, ids, sums) -> None:
        tf.raw_ops.ResourceScatterSub(resource=self._value.handle, indices=ids, updates=sums * RATE)

    def _adagrad(self, ids, sums) -> None:
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=self._value.handle,
            accum=self._accumulator.handle,
            lr=RATE,
            epsilon=1e-7,
            grad=sums,
            indices=ids,
        )

    def _row_wise_adagrad(self, ids, sums) -> None:
        """TensorFlow has no op for it: these four."""
        self._accumulator.scatter_add(tf.IndexedSlices(tf.reduce_mean(sums * sums, -1), ids))
        scale = RATE * tf.math.rsqrt(tf.gather(self._accumulator, ids) + 1e-7)
        tf.raw_ops.ResourceScatterSub(resource=self._value.handle, indices=ids, updates=sums * scale[:, None])

    def lookup(self, number: int) -> None:
        self._lookup(self._ids[number])

    def train(self, number: int) -> None:
        self._train(self._ids[number])
