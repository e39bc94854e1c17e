"""`het-ckpt merge`: a checkpoint and increments on it become one checkpoint."""

import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint import directory
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.cli.rowwriter import RowWriter
from het_tf.python.checkpoint.cli.view import Group, View
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.rowfile import COLUMNS

_OF_ROWS = tuple(name for name in COLUMNS if name not in ("keys", "removed"))


def chain_of(paths: list[Path]) -> list[Manifest]:
    """The manifests to be merged, the oldest first.

    Args:
        paths: One checkpoint, which brings along all that it builds on; or several, in any order, of which
            each but one builds on another.

    Raises:
        ValueError: They are no chain.
    """
    found = [directory.resolve(path) for path in paths]
    if len(found) == 1:
        return directory.chain(found[0])
    given = [manifests.read_manifest(path) for path in found]
    by_base = {one.base["id"] if one.base else None: one for one in given}
    ids = {one.id for one in given}
    if len(by_base) < len(given) or len(ids) < len(given):
        raise ValueError("of the checkpoints to be merged, two are the same or build on the same one")
    starts = [one for one in given if one.base is None or one.base["id"] not in ids]
    if len(starts) != 1:
        names = ", ".join(f"{one.path} (on {one.base['name'] if one.base else 'nothing'})" for one in starts)
        raise ValueError(f"one checkpoint has to be the base of all others; these are not: {names}")
    chain = starts
    while len(chain) < len(given):
        chain.append(by_base[chain[-1].id])
    return chain


def merge(target: Path, view: View, advance: Callable[[int], None]) -> dict[str, Any]:
    """Writes what `view` holds as one checkpoint.

    It is full if the view's oldest checkpoint is, else an increment on what that one builds on. The dense
    weights are those of the newest. As in a save, the target appears when all of it is on disk.

    Args:
        target: Its directory, which must not exist.
        view: What is merged.
        advance: Told how many rows more were written.

    Returns:
        The manifest.

    Raises:
        ValueError: A dense file does not have its checksum.
        OSError: A file cannot be read or written; nothing is left of the target.
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
    rows = dict.fromkeys(view.tables, 0)
    removed = dict.fromkeys(view.tables, 0)
    document["files"] = []
    groups = [group for group, _ in view.levels[-1].files]
    for number, group in enumerate(groups):
        name = f"rows-{number:05d}-of-{len(groups):05d}.safetensors"
        entry = _write_file(place / name, view, group, rows, removed, advance)
        document["files"].append({"name": name, "partitions": sorted(group.partitions), **entry})
    document["tables"] = [
        {
            **table,
            "rows": rows[table["name"]],
            "removed": removed[table["name"]],
            "complete": view.tables[table["name"]].whole,
        }
        for table in document["tables"]
    ]
    if newest.dense:
        source = newest.path / newest.dense["name"]
        manifests.verify(source, newest.dense)
        shutil.copyfile(source, place / source.name)
    return manifests.write(place, document)


def _write_file(
    path: Path,
    view: View,
    group: Group,
    rows: dict[str, int],
    removed: dict[str, int],
    advance: Callable[[int], None],
) -> dict[str, Any]:
    # Twice over the keys: how many there are has to be known first.
    gone = {name: None if table.whole else table.removed(group) for name, table in view.tables.items()}
    shape = {
        name: (
            table.count(group),
            table.dim,
            table.slot_floats,
            None if (of := gone[name]) is None else len(of),
        )
        for name, table in view.tables.items()
    }
    writer = RowWriter(path, shape)
    try:
        for name, table in view.tables.items():
            for block in table.blocks(_OF_ROWS, group):
                with manifests.naming(path):
                    writer.append(name, block)
                advance(len(block["keys"]))
            if (keys := gone[name]) is not None:
                with manifests.naming(path):
                    writer.append(name, {"removed": keys})
                removed[name] += len(keys)
            rows[name] += shape[name][0]
        with manifests.naming(path):
            return writer.close()
    except BaseException:
        writer.abandon()
        raise
