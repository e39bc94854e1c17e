"""Saves one table at one moment into a directory, and restores it.

The directory is a checkpoint of only this table. It may be read into a table of another name.
"""

import uuid
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python import reading, writing
from het_tf.ext.checkpoint.python.compare import match
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.checkpoint.python.store import store_info
from het_tf.python.session import native
from het_tf.python.table.table import Table

_FILE_BYTES = 32 << 20  # of rows per file; small tables need one file


def take(directory: Path, namespace: str, table: str) -> Path:
    """Makes a directory with all rows of a table, slots and clocks, and returns it.

    Rows include this process's unsent updates.
    """
    of = Table(table, namespace)
    files = min(1 + of.size * of.row_floats * 4 // _FILE_BYTES, writing.FILES)
    directory.mkdir()
    native.call("HetFlush", namespace)
    before = _info(namespace, table)
    plan = writing.plan_writing(directory, namespace, before, files=files)
    entries = writing.write_files(plan, range(len(plan.groups)))
    after = _info(namespace, table)
    writing.require_same(plan, before, after)
    manifests.write(directory, writing.describe(plan, before, after, entries))
    return directory


def _info(namespace: str, table: str) -> dict[str, Any]:
    """The store with only this table."""
    info = store_info(namespace)
    return {**info, "tables": {name: one for name, one in info["tables"].items() if name == table}}


def put_back(directory: Path, namespace: str, table: str) -> None:
    """Restores the state that `take` saved: exactly its rows, slots, clocks, and step of schedules.

    Args:
      directory: Written by `take`, from any namespace and table.
      namespace: Namespace of the table.
      table: Its name.

    Raises:
      ValueError: The directory is damaged, or of a table of another spec; the table is unchanged.
    """
    try:
        manifest = manifests.read_manifest(directory)
        (saved,) = manifest.tables
        live = _info(namespace, table)["tables"]
        found = match(manifest, dict(zip([saved], live.values(), strict=False)))
        loader = f"het_tf-{uuid.uuid4().hex}"
        plan = reading.plan_reading([manifest], namespace, dict.fromkeys(found.tables, table), True, loader)
        reading.verify_files([(part.path, part.entry) for part in plan.parts])
        native.call("HetFlush", namespace)  # empties all caches of the namespace
        reading.load(plan, Ranks(alone=True), lambda *_: None)
    except ValueError as error:  # do not name a temporary file, or an argument that users cannot give here
        text = (
            str(error).replace(f"the checkpoint {directory}", "what was saved").replace(f"{directory}/", "")
        )
        text = text.replace(", or give slots=False to restore only the values", "")
        raise ValueError(f"table {table!r} is unchanged: {text}") from None
