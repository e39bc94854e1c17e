"""The rows of a checkpoint: its own, and those of its bases that no later increment has touched."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.checkpoint import directory
from het_tf.python.checkpoint.manifest import Manifest
from het_tf.python.checkpoint.places import partition_of
from het_tf.python.checkpoint.rowfile import Array, RowFile

Keys = npt.NDArray[np.int64]
NO_KEYS: Keys = np.empty(0, np.int64)


@dataclass(frozen=True)
class Group:
    """The partitions of a store whose keys one file holds."""

    partitions: frozenset[int]
    of: int  # partitions of the store
    hash_seed: int

    def has(self, keys: Keys, table: str) -> npt.NDArray[np.bool_]:
        """Mask of the keys of a table that belong to it."""
        wanted = np.zeros(self.of, bool)
        wanted[list(self.partitions)] = True
        return wanted[partition_of(keys, table, self.of, self.hash_seed)]


@dataclass
class Level:
    """One checkpoint of a chain, with its files open."""

    manifest: Manifest
    files: list[tuple[Group, RowFile]]

    @classmethod
    def open(cls, manifest: Manifest) -> "Level":
        """Opens the files; checks their headers, but not their tensors."""
        store = manifest.document["store"]
        of, seed = store["partitions"], store["hash_seed"]
        if not (1 <= of <= 65536 and seed.isdecimal() and int(seed) < 1 << 64):
            raise ValueError(f"{manifest.path} is not a valid checkpoint: its manifest's store is {store}")
        listed = sorted(one for entry in manifest.files for one in entry["partitions"])
        if listed != list(range(of)) and (listed or manifest.tables):
            raise ValueError(
                f"{manifest.path} is not a valid checkpoint: its manifest has {of} partitions, but its files"
                f" have {listed}"
            )
        files = [
            (Group(frozenset(entry["partitions"]), of, int(seed)), RowFile(manifest.path / entry["name"]))
            for entry in manifest.files
        ]
        return cls(manifest, files)


@dataclass
class TableView:
    """One table of a chain: blocks of the current rows, each row once.

    Attributes:
        document: The table's entry in the newest manifest.
        levels: From the last complete one to the newest; each with the files that have the table.
        whole: Whether the oldest of them is complete. False only for a part of a chain.
    """

    name: str
    document: dict[str, Any]
    levels: list[list[tuple[Group, RowFile]]]
    whole: bool
    _touched: list[Keys] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            #: Floats of a value, and of the slots of a row.
            self.dim = int(self.document["spec"]["dim"])
            self.slot_floats = sum(int(floats) for _, floats in self.document["slots"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"the manifest's entry of table {self.name!r} is incomplete: {self.document}"
            ) from None

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in a file."""
        return 8 + 8 + 4 * (self.dim + self.slot_floats) + 4 + 2

    def touched(self, level: int) -> Keys:
        """Sorted keys whose row or removal is in a later level than this one."""
        if not self._touched:
            later = NO_KEYS
            found = [later]
            for files in reversed(self.levels[1:]):
                own = [
                    keys for _, file in files for keys in (keys_of(file, self.name), file.removed(self.name))
                ]
                later = np.unique(np.concatenate([later, *own]))
                found.append(later)
            self._touched = found[::-1]
        return self._touched[level]

    def blocks(self, columns: Sequence[str]) -> Iterator[dict[str, Array]]:
        """The current rows, some megabytes at a time, in the order of the files.

        Args:
            columns: Names of rowfile.COLUMNS; "keys" is always included.

        Yields:
            Arrays of equal length by column.
        """
        for number, files in enumerate(self.levels):
            touched = self.touched(number)
            for _, file in files:
                for block in file.blocks(self.name, ("keys", *columns)):
                    keep = ~_among(block["keys"], touched)
                    if not keep.all():
                        block = {name: column[keep] for name, column in block.items()}
                    if len(block["keys"]):
                        yield block

    def count(self) -> int:
        """Number of current rows."""
        if len(self.levels) == 1:
            return sum(file.tables[self.name].rows for _, file in self.levels[0])
        return sum(len(block["keys"]) for block in self.blocks(()))


class View:
    """The rows of one checkpoint, or of consecutive ones together.

    Args:
        chain: Manifests, the oldest first; each builds on the one before it.

    Raises:
        ValueError: A file is damaged, or does not match the manifest.
        OSError: A file cannot be read.
    """

    def __init__(self, chain: Sequence[Manifest]) -> None:
        self.levels = [Level.open(manifest) for manifest in chain]
        self.manifest = chain[-1]
        self.tables = {name: self._table(name) for name in self.manifest.tables}

    @classmethod
    def open(cls, path: str | Path) -> "View":
        """Opens the checkpoint at `path`, or the newest in the directory `path`, with all its bases."""
        return cls(directory.chain(directory.resolve(path)))

    @property
    def chain(self) -> list[Manifest]:
        """The manifests, the oldest first."""
        return [level.manifest for level in self.levels]

    def select(self, table: str | None) -> list[TableView]:
        """Returns all tables, or the named one.

        Raises:
            ValueError: The named table does not exist.
        """
        if table is None:
            return list(self.tables.values())
        if table not in self.tables:
            names = ", ".join(repr(name) for name in self.tables) or "none"
            raise ValueError(f"{self.manifest.path} has no table {table!r}; its tables: {names}")
        return [self.tables[table]]

    def _table(self, name: str) -> TableView:
        levels = []
        whole = False
        for level in reversed(self.levels):
            levels.append([(group, file) for group, file in level.files if name in file.tables])
            document = level.manifest.tables.get(name)
            if document is None:
                raise ValueError(
                    f"{level.manifest.path} has no table {name!r}, whose rows {self.manifest.path} builds on"
                )
            if document["complete"]:
                whole = True
                break
        return self._checked(TableView(name, self.manifest.tables[name], levels[::-1], whole))

    def _checked(self, table: TableView) -> TableView:
        """Checks that rows in its files have the width of its spec."""
        for files in table.levels:
            for _, file in files:
                of = file.tables[table.name]
                if (of.dim, of.slot_floats) != (table.dim, table.slot_floats):
                    raise file.damaged(
                        f"rows of table {table.name!r} have {of.dim} floats and {of.slot_floats} of slots,"
                        f" and by the manifest {table.dim} and {table.slot_floats}"
                    )
        return table


def keys_of(file: RowFile, table: str) -> Keys:
    """Keys of all rows of a file, in its order."""
    return np.concatenate([NO_KEYS, *(block["keys"] for block in file.blocks(table, ("keys",)))])


def _among(keys: Keys, ordered: Keys) -> npt.NDArray[np.bool_]:
    """Mask of the keys that are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    among: npt.NDArray[np.bool_] = ordered[place] == keys
    return among
