"""The rows that a checkpoint means: its own, and those of its bases that no later increment has touched."""

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
    """Some partitions of a store: the keys that one file holds."""

    partitions: frozenset[int]
    of: int  # partitions of the store
    hash_seed: int

    def has(self, keys: Keys, table: str) -> npt.NDArray[np.bool_]:
        """Which keys of a table belong to it."""
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
        """Opens the files; their headers are checked, their tensors are not."""
        store = manifest.document["store"]
        of, seed = store["partitions"], store["hash_seed"]
        if not (1 <= of <= 65536 and seed.isdecimal() and int(seed) < 1 << 64):
            raise ValueError(f"{manifest.path} is no valid checkpoint: its manifest's store is {store}")
        listed = sorted(one for entry in manifest.files for one in entry["partitions"])
        if listed != list(range(of)) and (listed or manifest.tables):
            raise ValueError(
                f"{manifest.path} is no valid checkpoint: by its manifest the store has {of} partitions, and"
                f" the files have {listed}"
            )
        files = [
            (Group(frozenset(entry["partitions"]), of, int(seed)), RowFile(manifest.path / entry["name"]))
            for entry in manifest.files
        ]
        return cls(manifest, files)


@dataclass
class TableView:
    """One table of a chain: blocks of the rows that are current, each row once.

    Attributes:
        document: What the newest manifest says of the table.
        levels: From the last complete one to the newest; each with the files that have the table.
        whole: Whether the oldest of them is complete. Only parts of a chain are not.
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
                f"the manifest says too little of table {self.name!r}: {self.document}"
            ) from None

    @property
    def row_bytes(self) -> int:
        """What a row takes in a file."""
        return 8 + 8 + 4 * (self.dim + self.slot_floats) + 4 + 2

    def touched(self, level: int) -> Keys:
        """Keys, sorted, of which a later level than this one has the row or the removal."""
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
            columns: Of rowfile.COLUMNS; "keys" always comes along.

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
    """What one checkpoint, or several that follow one another, hold together.

    Args:
        chain: Manifests, the oldest first; each builds on the one before it.

    Raises:
        ValueError: A file is damaged, or lacks what the manifest says.
        OSError: A file cannot be read.
    """

    def __init__(self, chain: Sequence[Manifest]) -> None:
        self.levels = [Level.open(manifest) for manifest in chain]
        self.manifest = chain[-1]
        self.tables = {name: self._table(name) for name in self.manifest.tables}

    @classmethod
    def open(cls, path: str | Path) -> "View":
        """The checkpoint at `path`, or the newest in the directory `path`, with all that it builds on."""
        return cls(directory.chain(directory.resolve(path)))

    @property
    def chain(self) -> list[Manifest]:
        """The manifests, the oldest first."""
        return [level.manifest for level in self.levels]

    def select(self, table: str | None) -> list[TableView]:
        """All tables, or the one of that name.

        Raises:
            ValueError: There is none of that name.
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
        """Its files have rows of the width that its spec says."""
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
    """All keys that a file has rows of, in its order."""
    return np.concatenate([NO_KEYS, *(block["keys"] for block in file.blocks(table, ("keys",)))])


def _among(keys: Keys, ordered: Keys) -> npt.NDArray[np.bool_]:
    """Which keys are among those of a sorted array."""
    if not len(ordered):
        return np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    among: npt.NDArray[np.bool_] = ordered[place] == keys
    return among
