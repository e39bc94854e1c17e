"""The state of a metric that is not a sum: the samples themselves, in columns that grow."""

from collections.abc import Sequence
from typing import Any

from het_tf.python.library import tf


class Samples:
    """Columns of equal length in the memory of the host; graphs may append to them.

    They are variables without a fixed length, which Keras lacks; so it neither knows nor saves them.
    Capacity grows by doubling: appending costs O(batch) on average.

    Args:
      dtypes: Types of the columns.

    Attributes:
      count: int64 variable, samples so far.
      changes: int64 variable, grows with every change; equal values mean equal samples.
    """

    def __init__(self, *dtypes: Any) -> None:
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "a metric that keeps samples cannot be created in the scope of a strategy with several "
                "replicas; use several workers with Horovod, or compute it over model.predict's answers"
            )
        with tf.init_scope(), tf.device("/CPU:0"):
            self._columns = [
                tf.Variable(tf.zeros([0], dtype), shape=[None], trainable=False) for dtype in dtypes
            ]
            self._room = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.changes = tf.Variable(0, dtype=tf.int64, trainable=False)

    def append(self, *values: Any) -> None:
        """Adds a batch, eagerly or in a graph; values: `[N]` for each column."""
        with tf.device("/CPU:0"):
            begin = self.count.read_value()
            end = begin + tf.size(values[0], tf.int64)
            tf.cond(end > self._room, lambda: self._grow(end), lambda: False)
            for column, value in zip(self._columns, values, strict=True):
                # In place; column[begin:end].assign would hold on to what it reads, and so copy all of it.
                tf.raw_ops.ResourceStridedSliceAssign(
                    ref=column.handle,
                    begin=begin[None],
                    end=end[None],
                    strides=tf.ones([1], tf.int64),
                    value=tf.cast(value, column.dtype),
                )
            self.count.assign(end)
            self.changes.assign_add(1)

    def _grow(self, wanted: Any) -> Any:
        room = tf.maximum(tf.maximum(wanted, 2 * self._room), 1024)
        more = [room - self._room]
        for column in self._columns:
            column.assign(tf.concat([column.read_value(), tf.zeros(more, column.dtype)], 0))
        self._room.assign(room)
        return True

    def columns(self) -> list[Any]:
        """Returns all samples so far, a tensor for each column."""
        with tf.device("/CPU:0"):
            return [column[: self.count] for column in self._columns]

    def replace(self, columns: Sequence[Any]) -> None:
        """Replaces all samples, eagerly or in a graph."""
        for column, values in zip(self._columns, columns, strict=True):
            column.assign(tf.cast(values, column.dtype))
        count = tf.size(columns[0], tf.int64)
        self._room.assign(count)
        self.count.assign(count)
        self.changes.assign_add(1)

    def clear(self) -> None:
        """Removes all samples, eagerly or in a graph."""
        self.count.assign(0)
        self.changes.assign_add(1)
