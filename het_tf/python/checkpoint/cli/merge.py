"""`het-ckpt merge`: merges a checkpoint and increments on it into one checkpoint."""

import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint import directory
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.cli.view import Group, TableView, View
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.store import merge_rows


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
    files = view.levels[-1].files
    entries = []
    for number, (group, _) in enumerate(files):
        name = f"rows-{number:05d}-of-{len(files):05d}.safetensors"
        partitions = sorted(group.partitions)
        tables = [_table(table, group) for table in view.tables.values()]
        shape = {"partitions": group.of, "hash_seed": group.hash_seed}
        entry = merge_rows(place / name, shape, partitions, tables)
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


def _table(table: TableView, group: Group) -> dict[str, Any]:
    """Describes a table for `merge_rows`."""
    files = [
        str(file.path)
        for level in table.levels
        for of, file in level
        if (group.of, group.hash_seed) != (of.of, of.hash_seed) or group.partitions & of.partitions
    ]
    return {
        "name": table.name,
        "dim": table.dim,
        "slot_floats": table.slot_floats,
        "complete": table.whole,
        "files": files,
    }
