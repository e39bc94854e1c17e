"""Native export: rows in files that serving processes map, read by the op HetServe.

    SavedModel/
      assets/rows-000.het        one file a table (het_tf/core/serve/serve_format.h)
      saved_model.pb             HetServe(ids, path of the asset): one op for all features of a layer

The files are read where they lie: a SavedModel that is moved or copied as a whole goes on working, processes
that serve the same one share one copy of its rows in memory, and rows that nobody asks for take none. Whoever
loads it needs het_tf's library: `import het_tf`, or `tf.load_op_library(".../het_tf/lib/libhet_tf.so")`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from het_tf.python import native, ops
from het_tf.python.config import TableConfig
from het_tf.python.export import redirect
from het_tf.python.export.rows import Source
from het_tf.python.native import tf

_CHUNK = 1 << 16  # rows handed over at once


class Backend(redirect.Backend):
    """Lookups by HetServe. See `redirect.Backend`."""

    format: ClassVar[str] = "native"

    def __init__(self, sources: Sequence[Source], options: redirect.Options, directory: Path) -> None:
        super().__init__(sources, options, directory)
        self._assets: dict[tuple[str, str], Any] = {}
        self._bytes: dict[tuple[str, str], int] = {}
        for number, source in enumerate(sources):
            path = directory / f"rows-{number:03d}.het"
            rows = source.read()
            written = write(path, source.table, rows.keys, rows.values, options)
            self._assets[source.key] = tf.saved_model.Asset(str(path))
            self._bytes[source.key] = written["rows"] * written["row_bytes"]

    def lookup(self, table: TableConfig, namespace: str, ids: Any) -> Any:
        """See `redirect.Backend`."""
        return self.lookup_many([redirect.Request(table, namespace, ids)])[0]

    def lookup_many(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """One op for all features: their waits for memory overlap. See `redirect.Backend`."""
        with tf.device("CPU:0"):
            return list(
                native.ops.het_serve(
                    ids=[request.ids for request in requests],
                    paths=[self._assets[request.key].asset_path for request in requests],
                    hints=[ops.hint(request.table.dim) for request in requests],
                    tables=[request.table.name for request in requests],
                )
            )

    def trackables(self) -> Any:
        """The files."""
        return list(self._assets.values())

    def row_bytes(self) -> dict[tuple[str, str], int]:
        """Bytes of each table's rows, without the index."""
        return self._bytes


def write(
    path: Path,
    table: TableConfig,
    keys: native.Int64Array,
    values: native.FloatArray,
    options: redirect.Options | None = None,
) -> dict[str, Any]:
    """Writes a serving file.

    Args:
      path: Where there is nothing yet.
      table: Whose rows they are.
      keys: int64 [N]. Of equal ones the last counts.
      values: float32 [N, dim].
      options: How rows are stored, and what unknown ids read.

    Returns:
      As `inspect`.

    Raises:
      ValueError: There is something at `path`, or keys and values do not belong together.
      OSError: It cannot be written.
    """
    options = options or redirect.Options()
    if keys.shape != (len(keys),) or values.shape != (len(keys), table.dim):
        raise ValueError(
            f"table {table.name!r}: keys have shape {keys.shape} and values {values.shape}; they must be [N] "
            f"and [N, {table.dim}]"
        )
    with _writer(path, table, options) as writer:
        for begin in range(0, len(keys), _CHUNK):
            some = np.ascontiguousarray(keys[begin : begin + _CHUNK], np.int64)
            rows = np.ascontiguousarray(values[begin : begin + _CHUNK], np.float32)
            native.call("HetServeAdd", writer, some, len(some), rows, table.dim)
        return dict(json.loads(native.call("HetServeFinish", writer)))


@contextlib.contextmanager
def _writer(path: Path, table: TableConfig, options: redirect.Options) -> Iterator[ctypes.c_void_p]:
    writer = ctypes.c_void_p()
    how = json.dumps({"rows": options.rows, "unknown": options.unknown})
    native.call("HetServeCreate", str(path), json.dumps(table.spec), how, ctypes.byref(writer))
    try:
        yield writer
    finally:
        native.library.HetServeFree(writer)


def inspect(path: Path | str, verify: bool = False) -> dict[str, Any]:
    """What a serving file holds.

    Args:
      path: The file.
      verify: Whether to read all of it and compare its checksums.

    Returns:
      "spec" of the table, "rows", "row_type" ("float32", ...), "row_bytes", "unknown" ("initial" or "zeros"),
      "bytes" of the file.

    Raises:
      LookupError: There is no file.
      RuntimeError: It is damaged, or of a newer version.
    """
    return dict(json.loads(native.call("HetServeInspect", str(path), int(verify))))


def open_files() -> int:
    """How many serving files this process has mapped."""
    return native.call_int("HetServeOpenFiles")
