"""`het-ckpt verify`: reads every byte of a checkpoint and of its bases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.python.checkpoint import directory, rowfile
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.cli.view import Group, View, keys_of
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.places import partition_of
from het_tf.python.checkpoint.rowfile import Array, RowFile, TensorFile

Advance = Callable[[int], None]


def total_bytes(chain: list[Manifest]) -> int:
    """Number of bytes that `checksums` reads."""
    return sum(manifest.bytes for manifest in chain)


def checksums(chain: list[Manifest], advance: Advance, contents: bool = False) -> list[str]:
    """Checks every file of a chain against its manifest.

    Args:
        chain: The manifests.
        advance: Called with the number of bytes just read.
        contents: Whether to check keys, clocks and floats, too.

    Returns:
        The faults, a line each.
    """
    faults: list[str] = []
    for manifest in chain:
        counted = {name: [0, 0] for name in manifest.tables}
        whole = True
        for entry in manifest.files:
            found: list[str] = []
            try:
                _row_file(manifest, entry, counted, advance, contents, found)
            except (ValueError, OSError) as error:
                found.append(_line(error))
            faults += found
            whole &= not found
        faults += _totals(manifest, counted) if whole else []
        if manifest.dense:
            path = manifest.path / manifest.dense["name"]
            try:
                manifests.verify(path, manifest.dense, advance)
                TensorFile(path)
            except (ValueError, OSError) as error:
                faults.append(_line(error))
    return faults


def verify(
    path: str | Path, advance: Advance, begin: Callable[[int], None]
) -> tuple[list[Manifest], list[str]]:
    """Finds all faults of a checkpoint.

    Args:
        path: The checkpoint, or a directory: then its newest one.
        advance: Called with the number of bytes just read.
        begin: Called first, with the number of bytes in total.

    Returns:
        The manifests, the oldest first, and the faults, a line each; the checkpoint is sound without any.

    Raises:
        ValueError, OSError: A manifest is missing or damaged.
    """
    chain = directory.chain(directory.resolve(path))
    begin(total_bytes(chain))
    faults = checksums(chain, advance, contents=True)
    if not faults:
        try:
            View(chain)
        except ValueError as error:
            faults.append(str(error))
    return chain, faults


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _row_file(
    manifest: Manifest,
    entry: dict[str, Any],
    counted: dict[str, list[int]],
    advance: Advance,
    contents: bool,
    faults: list[str],
) -> None:
    path = manifest.path / entry["name"]
    odd: dict[str, str] = {}  # report a tensor once

    def look(name: str, block: Array) -> None:
        table, _, column = name.rpartition("/")
        if contents and column in ("values", "slots") and not np.isfinite(block).all():
            odd[name] = f"{path}: {column} of table {table!r} hold NaN or Inf"

    file = rowfile.verify(path, entry, advance, look)
    faults += odd.values()
    if strange := file.tables.keys() - counted.keys():
        raise file.damaged(f"it has tables that the manifest lacks: {', '.join(sorted(strange))}")
    store = manifest.document["store"]
    for table, of in file.tables.items():
        counted[table][0] += of.rows
        counted[table][1] += of.removed
        if contents:
            group = Group(frozenset(entry["partitions"]), int(store["partitions"]), int(store["hash_seed"]))
            faults += _keys(file, table, group)


def _keys(file: RowFile, table: str, group: Group) -> list[str]:
    """Checks that each key is in the file of its partition, and there once."""
    out = []
    known = {"row": np.sort(keys_of(file, table)), "removal": np.sort(file.removed(table))}
    for kind, keys in known.items():
        twice = keys[1:][keys[1:] == keys[:-1]]
        if len(twice):
            out.append(f"{file.path}: table {table!r} has id {twice[0]} in more than one {kind}")
        alien = keys[~group.has(keys, table)]
        if len(alien):
            partition = partition_of(alien[:1], table, group.of, group.hash_seed)[0]
            out.append(
                f"{file.path}: table {table!r} has a {kind} of id {alien[0]}, of partition {partition}"
            )
    both = np.intersect1d(known["row"], known["removal"], assume_unique=True)
    if len(both):
        out.append(f"{file.path}: table {table!r} has id {both[0]} both as a row and as a removal")
    return out


def _totals(manifest: Manifest, counted: dict[str, list[int]]) -> list[str]:
    return [
        f"{manifest.path}: table {name!r} has {rows} rows and {removed} removals in its files, and the"
        f" manifest says {of['rows']} and {of['removed']}"
        for name, of in manifest.tables.items()
        for rows, removed in [counted[name]]
        if (rows, removed) != (of["rows"], of["removed"])
    ]
