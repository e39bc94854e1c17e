"""`het ckpt verify`: reads every byte of a checkpoint and of its bases."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import directory
from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.manifest import Manifest
from het_tf.ext.checkpoint.python.row_files import verify_rows
from het_tf.ext.checkpoint.python.tensors import TensorFile

Advance = Callable[[int], None]


def total_bytes(chain: list[Manifest]) -> int:
    """Number of bytes of all files of a chain."""
    return sum(manifest.bytes for manifest in chain)


def _check(chain: list[Manifest], advance: Advance) -> list[str]:
    """Checks every file of a chain. Returns the faults, a line each."""
    faults: list[str] = []
    for manifest in chain:
        counted = {name: {"rows": 0, "removed": 0} for name in manifest.tables}
        before = len(faults)
        for entry in manifest.files:
            path = manifest.path / entry["name"]
            try:
                found = verify_rows(path, entry, manifest.store)
                if strange := found["tables"].keys() - counted.keys():
                    names = ", ".join(sorted(strange))
                    raise ValueError(f"{path} is damaged: it has tables that the manifest lacks: {names}")
                faults += found["faults"]
                for name, of in found["tables"].items():
                    dim, slot_floats = _widths(manifest.tables[name])
                    if (of["dim"], of["slot_floats"]) != (dim, slot_floats):
                        raise ValueError(
                            f"{path} is damaged: rows of table {name!r} have {of['dim']} floats and"
                            f" {of['slot_floats']} of slots, and by the manifest {dim} and {slot_floats}"
                        )
                    for kind in counted[name]:
                        counted[name][kind] += of[kind]
            except (ValueError, OSError) as error:
                faults.append(_line(error))
            advance(entry["bytes"])
        faults += _totals(manifest, counted) if len(faults) == before else []
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
    return chain, [*_lacking(chain), *_check(chain, advance)]


def _widths(table: dict[str, Any]) -> tuple[int, int]:
    """Floats of a value and of the slots of a row."""
    return int(table["spec"]["dim"]), sum(int(floats) for _, floats in table["slots"])


def _lacking(chain: list[Manifest]) -> list[str]:
    """Bases that lack a table with rows that the next checkpoint builds on."""
    return [
        f"{base.path} has no table {name!r}, whose rows {manifest.path} builds on"
        for base, manifest in itertools.pairwise(chain)
        for name, table in manifest.tables.items()
        if not table["complete"] and name not in base.tables
    ]


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _totals(manifest: Manifest, counted: dict[str, dict[str, int]]) -> list[str]:
    return [
        f"{manifest.path}: table {name!r} has {of['rows']} rows and {of['removed']} removals in its files,"
        f" and the manifest says {said['rows']} and {said['removed']}"
        for name, said in manifest.tables.items()
        for of in [counted[name]]
        if (of["rows"], of["removed"]) != (said["rows"], said["removed"])
    ]
