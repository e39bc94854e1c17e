"""`het ckpt merge`: merges a checkpoint and increments on it into one checkpoint."""

import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import directory
from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.cli.view import TableView, View
from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.ext.checkpoint.python.row_files import merge_rows


def chain_of(paths: list[Path]) -> list[Manifest]:
    """Returns the manifests to merge, the oldest first.

    Args:
        paths: One checkpoint, to merge with all its bases; or several, in any order, of which all except one
            build on another.

    Raises:
        ValueError: They do not form a chain.
    """
    found = [directory.resolve(path) for path in paths]
    if len(found) == 1:
        return directory.chain(found[0])
    given = [manifests.read_manifest(path) for path in found]
    by_base = {one.base["id"] if one.base else None: one for one in given}
    ids = {one.id for one in given}
    if len(by_base) < len(given) or len(ids) < len(given):
        raise ValueError("two of the checkpoints to merge are the same or have the same base; give a chain")
    starts = [one for one in given if one.base is None or one.base["id"] not in ids]
    if len(starts) != 1:
        names = ", ".join(f"{one.path} (on {one.base['name'] if one.base else 'nothing'})" for one in starts)
        raise ValueError(f"one checkpoint must be the base of all others; these are not: {names}")
    chain = starts
    while len(chain) < len(given):
        chain.append(by_base[chain[-1].id])
    return chain


def merge(target: Path, view: View, advance: Callable[[int], None]) -> dict[str, Any]:
    """Writes the rows of `view` as one checkpoint.

    It is full if the view's oldest checkpoint is, else an increment on the base of that one. The dense
    weights are those of the newest. As in a save, the target appears when all of it is on disk.

    Args:
        target: Its directory, which must not exist.
        view: The checkpoints to merge.
        advance: Called with the number of files just written.

    Returns:
        The manifest.

    Raises:
        ValueError: A dense file does not have its checksum.
        OSError: A file cannot be read or written; the target does not exist then.
    """
    temporary = directory.beside(target)
    try:
        document = _write(temporary, view, advance)
        directory.publish(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return document


def _write(place: Path, view: View, advance: Callable[[int], None]) -> dict[str, Any]:
    newest, oldest = view.manifest, view.chain[0]
    document = {**newest.document, "id": secrets.token_hex(16), "created": time.time(), "base": oldest.base}
    entries = []
    for number, file in enumerate(newest.files):
        name = f"rows-{number:05d}-of-{len(newest.files):05d}.safetensors"
        partitions = sorted(file["partitions"])
        tables = [_table(table, newest.store, partitions) for table in view.tables.values()]
        entry = merge_rows(place / name, newest.store, partitions, tables)
        entries.append({"name": name, "partitions": partitions, **entry})
        advance(1)
    document["files"] = [{name: one[name] for name in one if name != "tables"} for one in entries]
    document["tables"] = [
        {
            **table,
            **{
                kind: sum(one["tables"][table["name"]][kind] for one in entries)
                for kind in ("rows", "removed")
            },
            "complete": view.tables[table["name"]].whole,
        }
        for table in document["tables"]
    ]
    if newest.dense:
        source = newest.path / newest.dense["name"]
        manifests.verify(source, newest.dense)
        shutil.copyfile(source, place / source.name)
    return manifests.write(place, document)


def _table(table: TableView, store: dict[str, int], partitions: list[int]) -> dict[str, Any]:
    """Describes a table for `merge_rows`. Files of another store may have any key."""
    files = [
        str(level.path / file["name"])
        for level in table.levels
        for file in level.files
        if level.store != store or not set(partitions).isdisjoint(file["partitions"])
    ]
    return {
        "name": table.name,
        "dim": table.dim,
        "slot_floats": table.slot_floats,
        "complete": table.whole,
        "files": files,
    }
