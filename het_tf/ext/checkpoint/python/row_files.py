"""Files of rows, read by the native library without TensorFlow (capi/tools/files.h)."""

import json
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python.manifest import open_part
from het_tf.python.calling import tools


def verify_rows(path: Path, entry: dict[str, Any], store: dict[str, int] | None = None) -> dict[str, Any]:
    """Reads all of a file, and compares it with the manifest.

    Args:
      path: The file.
      entry: Its entry in the manifest.
      store: Its shape, "partitions" and "hash_seed", to look at keys and floats too.

    Returns:
      "faults" of keys and floats, a line each, and "tables": "rows", "removed", "dim", "slot_floats" of each.

    Raises:
      FileNotFoundError, OSError: It is missing, or cannot be read.
      ValueError: It is not the file of this entry; the message says how it differs.
    """
    open_part(path).close()
    request = {"entry": entry} if store is None else {"entry": entry, "store": store}
    return dict(json.loads(tools()("HetVerifyRows", str(path), json.dumps(request))))


def place_of(table: str, partitions: int = 1) -> dict[str, int]:
    """Returns the "id" of a table, its "first" partition in a store, and the number of its "group"."""
    return dict(json.loads(tools()("HetTablePlace", table, partitions)))
