"""The rows of a table at one moment, without slots, as an export writes them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from het_tf.python import native
from het_tf.python.config import TableConfig
from het_tf.python.table import Table


@dataclass(frozen=True)
class Filter:
    """Which rows are left out.

    Attributes:
      min_count: Rows with fewer updates; 0: none. Counts end at 65535.
      max_age: Rows whose last update is longer ago, in seconds; None: none.
      now: Seconds since 1970 from which ages count.
    """

    min_count: int = 0
    max_age: float | None = None
    now: float = field(default_factory=time.time)


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
    """A table of the model that is exported.

    Attributes:
      table: Its configuration.
      namespace: Its namespace.
      filter: Which rows are left out.
      kept: After `read`: how many rows there are; None: nobody has read them.
      dropped: After `read`: how many the filter left out.
    """

    table: TableConfig
    namespace: str
    filter: Filter = field(default_factory=Filter)
    kept: int | None = None
    dropped: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.table.name

    def read(self) -> Rows:
        """All rows that the filter lets pass, with everything that was trained so far."""
        columns = Table(self.table.name, self.namespace).scan()
        keep = columns["counts"] >= self.filter.min_count
        if self.filter.max_age is not None:
            keep &= columns["last_used"] >= self.filter.now - self.filter.max_age
        self.kept = int(keep.sum())
        self.dropped = int(keep.size) - self.kept
        values = columns["rows"][:, : self.table.dim]
        if self.dropped == 0:
            return Rows(columns["ids"], np.ascontiguousarray(values))
        return Rows(columns["ids"][keep], values[keep])
