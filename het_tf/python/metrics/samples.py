"""The state of a metric that is not a sum: the samples themselves, in columns that grow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from het_tf.python import backend
from het_tf.python.metrics.programs import exact

if backend.TENSORFLOW:
    from het_tf.python.library import tf


class Samples:
    """Columns of equal length in the memory of the host.

    The state is their first `count` rows, so Keras keeps a variable, and a step that is not finished, or is
    traced, leaves no row. Keras neither knows nor saves the columns. Capacity grows by doubling: appending
    costs O(batch) on average.

    Args:
      count: The variable, int64.
      dtypes: Types of the columns.

    Attributes:
      count: The same.
      changes: Grows with every change.
    """

    def __init__(self, count: Any, *dtypes: Any) -> None:
        if backend.TENSORFLOW and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "a metric that keeps samples cannot be created in the scope of a strategy with several "
                "replicas; use several workers with Horovod, or compute it over model.predict's answers"
            )
        self.count, self.changes = count, 0
        self._columns = [np.empty(0, dtype) for dtype in dtypes]

    def put(self, begin: int, *values: Any) -> int:
        """Writes a batch behind the first `begin` samples, `[N]` for each column; returns their number."""
        end = begin + len(values[0])
        if end > len(self._columns[0]):
            room = max(end, 2 * len(self._columns[0]), 1024)
            old, self._columns = self._columns, [np.empty(room, one.dtype) for one in self._columns]
            for new, kept in zip(self._columns, old, strict=True):
                new[:begin] = kept[:begin]
        for column, value in zip(self._columns, values, strict=True):
            column[begin:end] = value
        self.changes += 1
        return end

    @exact
    def append(self, *values: Any) -> None:
        """Adds a batch, eagerly."""
        self.count.assign(self.put(int(self.count.value), *values))

    def first(self, count: int) -> list[Any]:
        """Returns the first samples, an array for each column."""
        return [column[:count] for column in self._columns]

    def columns(self) -> list[Any]:
        """Returns all samples so far, eagerly."""
        return self.first(int(self.count.value))

    @exact
    def replace(self, columns: Sequence[Any]) -> None:
        """Replaces all samples, eagerly."""
        self._columns = [np.array(new, old.dtype) for new, old in zip(columns, self._columns, strict=True)]
        self.changes += 1
        self.count.assign(len(self._columns[0]))
