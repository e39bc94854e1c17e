"""Native export: rows in files that serving processes map, read by the op HetServe.

    SavedModel/
      assets/rows-000.het        one file a table (het_tf/core/serve/serve_format.h)
      saved_model.pb             HetServe(ids, path of the asset): one op for all features of a layer

The files are mapped in place: a SavedModel still works after it is moved or copied as a whole, processes
that serve it share one copy of its rows in memory, and unused rows take no memory. Loading it
needs het_tf's library: `import het_tf`, or `tf.load_op_library(".../het_tf/lib/libhet_tf.so")`.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from het_tf.python.export import redirect
from het_tf.python.export.rows import Source
from het_tf.python.layer import ops
from het_tf.python.session import native
from het_tf.python.session.native import tf


class Backend(redirect.Backend):
    """Lookups by HetServe. See `redirect.Backend`."""

    def __init__(self, sources: Sequence[Source], options: redirect.Options, directory: Path) -> None:
        super().__init__(sources, options, directory)
        self._assets: dict[tuple[str, str], Any] = {}
        self._bytes: dict[tuple[str, str], int] = {}
        self.files: dict[tuple[str, str], Path] = {}
        for number, source in enumerate(sources):
            path = directory / f"rows-{number:03d}.het"
            written = write(path, source, options)
            self.files[source.key] = path
            self._assets[source.key] = tf.saved_model.Asset(str(path))
            self._bytes[source.key] = written["rows"] * written["row_bytes"]

    def lookup(self, requests: Sequence[redirect.Request]) -> list[Any]:
        """Makes one op for all features, whose waits for memory overlap. See `redirect.Backend`."""
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


def write(path: Path, source: Source, options: redirect.Options) -> dict[str, Any]:
    """Writes the rows of a table to a serving file in chunks.

    Args:
      path: The new file.
      source: The table and its filter; gets the number of dropped rows.
      options: The type of stored rows, and the rows of unknown ids.

    Returns:
      As `inspect`, and "dropped".

    Raises:
      ValueError: A value is too large for float16.
      LookupError: The table does not exist.
      OSError: `path` exists, or cannot be written.
    """
    how: dict[str, Any] = {
        "rows": options.row_dtype,
        "unknown": options.unknown,
        "min_count": source.filter.min_count,
    }
    if source.filter.max_age is not None:
        how["last_used"] = max(0, math.ceil(source.filter.now - source.filter.max_age))
    text = native.call("HetServeWrite", source.namespace, source.table.name, str(path), json.dumps(how))
    written = dict(json.loads(text))
    source.kept, source.dropped = written["rows"], written["dropped"]
    return written


def inspect(path: Path | str, verify: bool = False) -> dict[str, Any]:
    """Returns the header of a serving file.

    Args:
      path: The file.
      verify: Whether to read all of it and compare its checksums.

    Returns:
      "spec" of the table, "rows", "row_type" ("float32", ...), "row_bytes", "unknown" ("initial" or "zeros"),
      "bytes" of the file.

    Raises:
      LookupError: The file does not exist.
      RuntimeError: It is damaged, or of a newer version.
    """
    return dict(json.loads(native.call("HetServeInspect", str(path), int(verify))))
