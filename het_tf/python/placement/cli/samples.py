"""Files of samples, whatever their format, as `het-data` reads and writes them."""

import abc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from het_tf.python.checkpoint import directory
from het_tf.python.files import open_file
from het_tf.python.placement.placement import Int64Array

Rows = TypeVar("Rows")

SEVERAL = "has several values a sample"  # why samples are not placed by a field of lists of ids


class Writer(abc.ABC, Generic[Rows]):
    """A file that is being written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abc.abstractmethod
    def append(self, rows: Rows) -> None:
        """Writes samples behind those before. OSError: it cannot."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Closes the file, also after an error; a second time does nothing. OSError: it cannot."""

    def close(self) -> int:
        """Waits until the file is on disk; returns its bytes. OSError: it is not."""
        self.finish()
        directory.sync(self.path)
        return self.path.stat().st_size


class Samples(abc.ABC, Generic[Rows]):
    """The samples of files of one format, one file after the other.

    Args:
      paths: The files.

    Attributes:
      suffix: Of the names of files that are written.
      total: What `units` sums up to; None if that is not known.

    Raises:
      ValueError: There is no file, or one is none of the format.
      OSError: One cannot be read.
    """

    suffix: str
    total: int | None = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._found = [_state(path) for path in self.paths]

    @abc.abstractmethod
    def fields(self) -> dict[str, str]:
        """The fields, and why samples are not placed by one; "" if they can be."""

    @abc.abstractmethod
    def blocks(self, size: int) -> Iterator[Rows]:
        """All samples in their order, `size` a block; the last block may have fewer."""

    @abc.abstractmethod
    def columns(self, rows: Rows, names: Sequence[str]) -> dict[str, Any]:
        """Integers, or strings, of fields by which samples can be placed."""

    def only(self, names: Sequence[str]) -> None:
        """Of the fields, `columns` and `lists` will be asked for these."""

    def lists(self, rows: Rows, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Integers or strings of fields that are `SEVERAL`, one after the other, and each sample's number."""
        return {}

    @abc.abstractmethod
    def take(self, rows: Rows, index: Int64Array) -> Rows:
        """Some of the samples."""

    @abc.abstractmethod
    def units(self, rows: Rows) -> int:
        """How far these samples bring a pass."""

    @abc.abstractmethod
    def writer(self, path: Path) -> Writer[Rows]:
        """A new file of the format."""

    def require(self, by: str) -> None:
        """Samples can be placed by a field.

        Raises:
          ValueError: They cannot.
        """
        fields = self.fields()
        if fields.get(by, "missing"):
            fit = ", ".join(name for name, reason in fields.items() if not reason) or "none"
            fault = f"which {fields[by]}" if by in fields else f"which {self.paths[0]} has not"
            raise ValueError(f"--by is {by!r}, {fault}; fields of one integer or string a sample: {fit}")

    def require_unchanged(self) -> None:
        """The files are what they were when reading began.

        Raises:
          ValueError: One is not.
        """
        for path, before in zip(self.paths, self._found, strict=True):
            if _state(path) != before:
                raise ValueError(
                    f"{path} has changed while it was read: samples would be missing, or there twice; begin "
                    "again when nothing writes to it"
                )


def _state(path: Path) -> tuple[int, ...]:
    with open_file(path) as file:
        found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
