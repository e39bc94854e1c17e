"""One table at one moment, in a directory: taking it and putting it back.

The directory is a checkpoint of this table alone. It may be read into a table of another name.
"""

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint import reading, writing
from het_tf.python.checkpoint.collective import Ranks
from het_tf.python.checkpoint.compare import match
from het_tf.python.checkpoint.store import store_info
from het_tf.python.session import native
from het_tf.python.table import layer_state
from het_tf.python.table.table import Table

_FILE_BYTES = 32 << 20  # of rows; small tables are not worth several files


@contextlib.contextmanager
def workspace(near: str | None = None) -> Iterator[Path]:
    """A directory for the time being.

    Args:
      near: Where; None: the system's directory of temporary files.
    """
    path = Path(tempfile.mkdtemp(prefix=".het_tf-", dir=near))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def take(directory: Path, namespace: str, table: str) -> Path:
    """Writes all rows of a table, with slots and clocks, into a directory, which it makes and returns.

    They are as this process sees them, its own unsent updates included.
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
    manifests.write(directory, writing.describe(plan, after, entries))
    return directory


def _info(namespace: str, table: str) -> dict[str, Any]:
    """The store, with this table alone."""
    info = store_info(namespace)
    return {**info, "tables": {name: one for name, one in info["tables"].items() if name == table}}


def put_back(directory: Path, namespace: str, table: str) -> None:
    """Makes the table what `take` has seen: rows, slots, clocks, the step of its schedules, and no other row.

    Args:
      directory: What `take` has written, of whatever namespace and under whatever name.
      namespace: Where the table is.
      table: Its name.

    Raises:
      ValueError: The directory holds a table of another spec, or is damaged; the table is as it was.
    """
    try:
        manifest = manifests.read_manifest(directory)
        (saved,) = manifest.tables
        live = _info(namespace, table)["tables"]
        found = match(manifest, dict(zip([saved], live.values(), strict=False)))
        loader = f"het_tf-{uuid.uuid4().hex}"
        plan = reading.plan_reading([manifest], namespace, dict.fromkeys(found.tables, table), True, loader)
        reading.verify_files([(part.path, part.entry) for part in plan.parts])
        native.call("HetFlush", namespace)  # empties the caches, also of tables that are not loaded
        reading.load(plan, Ranks(alone=True), lambda *_: None)
    except ValueError as error:  # names a file of ours, which nobody knows, and what nobody can give here
        text = (
            str(error).replace(f"the checkpoint {directory}", "what was saved").replace(f"{directory}/", "")
        )
        text = text.replace(", or give slots=False: values stay, and slots begin anew", "")
        raise ValueError(f"table {table!r} is as it was: {text}") from None


def copy(old: Any, new: Any) -> None:
    """Gives the tables of a layer those of another one, which has as many, of the same specs."""
    tables = (layer_state.of(layer).file_keys.values() for layer in (old, new))
    for saved, table in zip(*tables, strict=True):
        with workspace() as place:
            put_back(take(place / "rows", old.namespace, saved), new.namespace, table)
