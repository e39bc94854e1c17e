"""The rows of a table at one moment, without slots, for an export.

The core writes them to a row file (ext/checkpoint/cc/row_file.h) in chunks, wherever the table is, and
this module maps it: the table is not in memory twice.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.checkpoint.python.store import save_rows, store_info
from het_tf.ext.checkpoint.python.tensors import TensorFile
from het_tf.python.session import native
from het_tf.python.table.config import TableConfig

_COLUMNS = ("keys", "values", "last_used", "counts")
_CHUNK = 1 << 16  # rows copied at a time


@dataclass(frozen=True)
class Filter:
    """The rows to leave out.

    Attributes:
      min_count: Leave out rows with fewer updates; 0: none. Counts end at 65535.
      max_age: Leave out rows whose last update is longer ago, in seconds; None: none.
      now: The time from which ages count, in seconds since 1970.
    """

    min_count: int = 0
    max_age: float | None = None
    now: float = field(default_factory=lambda: time.time())


@dataclass(frozen=True)
class Rows:
    """Rows of one table.

    Attributes:
      keys: int64 [N], each once.
      values: float32 [N, dim].
    """

    keys: native.Int64Array
    values: native.FloatArray


@dataclass
class Source:
    """A table of the exported model.

    Attributes:
      table: Its configuration.
      namespace: Its namespace.
      filter: The rows to leave out.
      kept: Number of rows; set by `read`.
      dropped: Number of rows that the filter left out; set by `read`.
    """

    table: TableConfig
    namespace: str
    filter: Filter = field(default_factory=Filter)
    kept: int = 0
    dropped: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.table.name

    def read(self, directory: Path) -> Rows:
        """Reads all rows that pass the filter. Flush caches first.

        Args:
          directory: Must have room for the table with its slots, which is used for a moment.
        """
        path = directory / "rows.safetensors"
        partitions = range(store_info(self.namespace)["partitions"])
        try:
            save_rows(self.namespace, path, [self.table.name], list(partitions))
            file = TensorFile(path)
            columns = {name: file.mapped(f"{self.table.name}/{name}") for name in _COLUMNS}
        finally:
            path.unlink(missing_ok=True)  # the mapping keeps its data
        keys, values = columns["keys"], columns["values"]
        keep = np.flatnonzero(self._keep(columns))
        self.kept, self.dropped = keep.size, keys.size - keep.size
        if self.dropped == 0:
            return Rows(keys, values)
        kept = np.empty((keep.size, self.table.dim), np.float32)
        for start in range(0, keep.size, _CHUNK):
            kept[start : start + _CHUNK] = values[keep[start : start + _CHUNK]]
        return Rows(keys[keep], kept)

    def _keep(self, columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
        keep = columns["counts"] >= self.filter.min_count
        if self.filter.max_age is not None:
            keep &= columns["last_used"] >= self.filter.now - self.filter.max_age
        return keep
