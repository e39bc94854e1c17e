"""Writes files of rows: the partitions of each file, the rows of an increment, and the manifest."""

import time
import uuid
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.ext.checkpoint.python.store import changes_since, in_parallel, save_rows, sources
from het_tf.python.table.notes import HetWarning

FILES = 16  # files of rows in a checkpoint, if it has enough partitions
_ROW_BYTES = 8 + 8 + 4 + 2  # key, clock, last used, count


@dataclass(frozen=True)
class Writing:
    """The plan of a save; equal on all ranks, which get its fields as JSON.

    Attributes:
      path: The directory of the files.
      namespace: Namespace of the tables.
      tables: Names of the tables.
      groups: Name and partitions of each file.
      since: For each table written as an increment: the base's positions.
      size: Approximate bytes.
    """

    path: str
    namespace: str
    tables: list[str]
    groups: list[tuple[str, list[int]]]
    since: dict[str, list[str]]
    size: int


def plan_writing(
    path: Path,
    namespace: str,
    info: dict[str, Any],
    base: Manifest | None = None,
    ranks: int = 1,
    files: int = FILES,
) -> Writing:
    """Chooses the partitions of each file, and the tables that are written as increments.

    Args:
      path: The directory of the files.
      namespace: Namespace of the tables.
      info: The result of `store_info`; its tables are written.
      base: The manifest of the base.
      ranks: Number of ranks that write.
      files: Approximate number of files.
    """
    names = list(info["tables"])
    groups = _groups(info["partitions"], ranks, files)
    since = {} if base is None else _since(namespace, info, base)
    size = sum(
        info["tables"][name]["rows"] * (_ROW_BYTES + 4 * info["tables"][name]["row_floats"]) for name in names
    )
    return Writing(str(path), namespace, names, groups, since, size)


def _groups(partitions: int, ranks: int, files: int) -> list[tuple[str, list[int]]]:
    """Splits the partitions evenly, neighbours together: they are often on one server."""
    number = max(1, min(partitions, files if ranks == 1 else max(files, 2 * ranks)))
    bounds = [index * partitions // number for index in range(number + 1)]
    return [
        (f"rows-{index:05d}-of-{number:05d}.safetensors", list(range(bounds[index], bounds[index + 1])))
        for index in range(number)
    ]


def _since(namespace: str, info: dict[str, Any], base: Manifest) -> dict[str, list[str]]:
    """Returns the base's positions, of the tables whose changes since then are known."""
    positions = {}
    for name, live in info["tables"].items():
        there = base.tables.get(name)
        if there is not None and there["spec"] == live["spec"]:
            *loaded, after_load = sources.get((namespace, name), ("", "", []))
            positions[name] = after_load if loaded == [base.id, name] else there["positions"]
    known = changes_since(namespace, positions)
    return {name: of_table for name, of_table in positions.items() if known[name] == "changes"}


def write_files(
    writing: Writing, numbers: Iterable[int], done: Callable[[dict[str, Any]], None] | None = None
) -> list[dict[str, Any]]:
    """Writes the files of some groups and waits until they are on disk. Returns entries with "tables".

    A file that is there already is replaced.

    Raises:
      OSError: A file cannot be written.
      ConnectionError, TimeoutError: The parameter server does not answer.
    """

    def write(number: int) -> dict[str, Any]:
        name, partitions = writing.groups[number]
        path = Path(writing.path, name)
        path.unlink(missing_ok=True)
        entry = save_rows(writing.namespace, path, writing.tables, partitions, writing.since)
        return {**entry, "name": name, "partitions": partitions}

    return in_parallel(write, numbers, done)


def files_to_repeat(writing: Writing, entries: list[dict[str, Any]]) -> tuple[Writing, list[int]]:
    """Finds tables of which a file has all rows though it was to have the changes: the store has lost them.

    The other files of such a table must have all rows, too.

    Args:
      writing: The plan.
      entries: The entries of all files.

    Returns:
      The plan without those increments, and the numbers of the files to be written again.
    """

    def whole(entry: dict[str, Any], table: str) -> bool:
        return bool(entry["tables"][table]["complete"])

    lost = {table for table in writing.since for one in entries if whole(one, table)}
    again = {one["name"] for one in entries for table in lost if not whole(one, table)}
    since = {table: positions for table, positions in writing.since.items() if table not in lost}
    numbers = [number for number, (name, _) in enumerate(writing.groups) if name in again]
    return replace(writing, since=since), numbers


def warn_of_whole(planned: Writing, written: Writing) -> None:
    """Warns of tables that were planned as increments and written whole."""
    for table in sorted(planned.since.keys() - written.since.keys()):
        warnings.warn(
            f"table {table!r} is written whole, not as an increment: meanwhile more rows were removed than a "
            "partition remembers (het.max-tombstones at a server; 16384 by default)",
            HetWarning,
            stacklevel=3,
        )


def describe(
    writing: Writing,
    before: dict[str, Any],
    info: dict[str, Any],
    entries: list[dict[str, Any]],
    step: int | None = None,
    base: Manifest | None = None,
) -> dict[str, Any]:
    """Returns the manifest of the written files; its "dense" is null.

    Args:
      writing: The plan.
      before: The result of `store_info` before writing: the next increment begins at its positions.
      info: The result of `store_info` after writing.
      entries: The entries of all files.
      step: The training step.
      base: The manifest of the base.
    """
    entries = sorted(entries, key=lambda one: one["name"])
    tables = []
    for name in writing.tables:
        live = info["tables"][name]
        tables.append(
            {
                "name": name,
                "spec": live["spec"],
                "limits": live["limits"],
                "applies": live["applies"],
                "rows": sum(one["tables"][name]["rows"] for one in entries if name in one["tables"]),
                "removed": sum(one["tables"][name]["removed"] for one in entries if name in one["tables"]),
                "complete": name not in writing.since,
                "clock_floor": live["clock_floor"],
                "slots": live["slots"],
                "positions": before["tables"][name]["positions"],
            }
        )
    return {
        "format": manifests.FORMAT,
        "version": manifests.VERSION,
        "id": uuid.uuid4().hex,
        "created": time.time(),
        "step": step,
        "namespace": writing.namespace,
        "base": {"name": base.path.name, "id": base.id} if base is not None and writing.since else None,
        "store": {"partitions": info["partitions"], "hash_seed": info["hash_seed"]},
        "tables": tables,
        "files": [{name: value for name, value in one.items() if name != "tables"} for one in entries],
        "dense": None,
    }


def require_same(writing: Writing, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Checks that the tables are still those of the plan.

    Raises:
      RuntimeError: One was cleared, loaded or dropped meanwhile, or its server was restarted.
    """
    there = {name: before["tables"][name]["positions"] for name in writing.tables if name in after["tables"]}
    known = changes_since(writing.namespace, there)
    for name in writing.tables:
        if known.get(name, "whole") == "whole":
            raise RuntimeError(
                f"table {name!r} was cleared, loaded or dropped while it was saved, or a server of it was "
                "restarted; save again"
            )
