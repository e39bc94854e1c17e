"""The tables of a checkpoint and of its bases, by their manifests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from het_tf.ext.checkpoint.python import directory
from het_tf.ext.checkpoint.python.manifest import Manifest


@dataclass
class TableView:
    """One table of a chain.

    Attributes:
        document: The table's entry in the newest manifest.
        levels: The checkpoints with its rows: from the last complete one to the newest.
        whole: Whether the oldest of them is complete. False only for a part of a chain.
    """

    name: str
    document: dict[str, Any]
    levels: list[Manifest] = field(default_factory=list)
    whole: bool = True

    @property
    def dim(self) -> int:
        """Floats of a value."""
        return int(self.document["spec"]["dim"])

    @property
    def slot_floats(self) -> int:
        """Floats of the slots of a row."""
        return sum(int(floats) for _, floats in self.document["slots"])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in a file."""
        return 8 + 8 + 4 * (self.dim + self.slot_floats) + 4 + 2


class View:
    """The tables of one checkpoint, or of consecutive ones together.

    Args:
        chain: Manifests, the oldest first; each builds on the one before it.

    Raises:
        ValueError: A base lacks a table.
    """

    def __init__(self, chain: Sequence[Manifest]) -> None:
        self.chain = list(chain)
        self.manifest = chain[-1]
        self.tables = {name: self._table(name) for name in self.manifest.tables}

    @classmethod
    def open(cls, path: str | Path) -> "View":
        """Opens the checkpoint at `path`, or the newest in the directory `path`, with all its bases."""
        return cls(directory.chain(directory.resolve(path)))

    def _table(self, name: str) -> TableView:
        levels: list[Manifest] = []
        whole = False
        for manifest in reversed(self.chain):
            document = manifest.tables.get(name)
            if document is None:
                raise ValueError(
                    f"{manifest.path} has no table {name!r}, whose rows {self.manifest.path} builds on"
                )
            levels.insert(0, manifest)
            if whole := document["complete"]:
                break
        return TableView(name, self.manifest.tables[name], levels, whole)
