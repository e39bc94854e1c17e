"""Tables into a directory and back, for one process and without a directory of checkpoints around.

What other ways of saving are built on; `save` and `restore` take the same steps with all ranks.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint import directory as directories
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint import reading, writing
from het_tf.python.checkpoint.collective import Ranks
from het_tf.python.checkpoint.compare import match
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.progress import Progress
from het_tf.python.checkpoint.store import store_info
from het_tf.python.checkpoint.writing import FILES
from het_tf.python.session import native

__all__ = ["FILES", "read_tables", "write_tables"]


def write_tables(
    directory: str | os.PathLike[str],
    namespace: str,
    tables: Iterable[str] | None = None,
    since: list[Manifest] | None = None,
    files: int = FILES,
) -> dict[str, Any]:
    """Writes tables as this process sees them, its own unsent updates included. Not collective.

    The directory appears when all is on disk; a process that dies before leaves at most a directory beside it
    whose name begins with ".tmp-".

    Args:
      directory: Must not exist yet.
      namespace: Whose tables.
      tables: Their names; None: all.
      since: Writes what has changed since this checkpoint: its manifests, the full one first, all next to
        `directory`.
      files: How many files of rows there are to be; there is at most one for each partition.

    Returns:
      The manifest.

    Raises:
      FileExistsError: There is such a directory.
      ValueError: There is no such table.
      OSError: A file cannot be written.
      ConnectionError, TimeoutError: The parameter server does not answer.
    """
    target = Path(directory)
    path = directories.beside(target)
    try:
        native.call("HetFlush", namespace)
        info = store_info(namespace)
        plan = writing.plan_writing(path, namespace, info, tables, since, files=files)
        entries = writing.write_files(plan, range(len(plan.groups)))
        after = store_info(namespace)
        writing.require_same(plan, info, after)
        described = writing.describe(plan, after, entries, base=since[-1] if since else None)
        document = manifests.write(path, described)
        directories.publish(path, target)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return document


def read_tables(
    directory: str | os.PathLike[str],
    namespace: str,
    tables: Iterable[str] | None = None,
    strict: bool = True,
    slots: bool = True,
) -> Manifest:
    """Gives live tables the rows that `write_tables` or `save` has written. Not collective.

    All files are verified before a table is touched.

    Args:
      directory: The directory with the manifest.
      namespace: Whose tables.
      tables: Names; None: all that the checkpoint has and all live ones.
      strict: Both sides must have these tables.
      slots: Whether the slots of the optimizers come along.

    Returns:
      The manifest, with the names of tables that only one side has.

    Raises:
      FileNotFoundError, NotADirectoryError: There is no such checkpoint, or a file of it is missing.
      ValueError: It is damaged, or does not fit the live tables.
    """
    ranks = Ranks(alone=True)
    chain = directories.chain(Path(directory))
    found = match(chain[-1], store_info(namespace)["tables"], tables, strict, slots)
    loader = f"het_tf-{uuid.uuid4().hex}"
    plan = reading.plan_reading(chain, namespace, found.tables, slots, loader)
    reading.verify_files([(part.path, part.entry) for part in plan.parts])
    native.call("HetFlush", namespace)  # caches are emptied, also those of tables that are not loaded
    reading.load(plan, ranks, Progress(False, "", 0))
    return replace(chain[-1], only_in_checkpoint=found.only_in_checkpoint, only_live=found.only_live)
