"""The rows of a table at one moment, without slots, for an export.

The core writes them to a row file (ext/checkpoint/cc/row_file.h) in chunks, wherever the table is, and
this module maps it: the table is not in memory twice.
"""

from dataclasses import dataclass
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


@dataclass
class Source:
    """A table of the exported model.

    Attributes:
      table: Its configuration.
      namespace: Its namespace.
      min_count: Leave out rows with fewer updates; 0: none. Counts end at 65535.
      since: Leave out rows whose last update was before this, in seconds since 1970; None: none.
      kept: Number of rows; set by `read`.
      dropped: Number of rows that were left out; set by `read`.
    """

    table: TableConfig
    namespace: str
    min_count: int = 0
    since: float | None = None
    kept: int = 0
    dropped: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.table.name

    def read(self, directory: Path) -> tuple[native.Int64Array, native.FloatArray]:
        """Reads all rows that are not left out. Flush caches first.

        Args:
          directory: Must have room for the table with its slots, which is used for a moment.

        Returns:
          int64 keys [N], each once, and float32 values [N, dim].
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
            return keys, values
        kept = np.empty((keep.size, self.table.dim), np.float32)
        for start in range(0, keep.size, _CHUNK):
            kept[start : start + _CHUNK] = values[keep[start : start + _CHUNK]]
        return keys[keep], kept

    def _keep(self, columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
        keep = columns["counts"] >= self.min_count
        if self.since is not None:
            keep &= columns["last_used"] >= self.since
        return keep
