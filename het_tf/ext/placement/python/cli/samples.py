"""The interface of files of samples that `het data` reads and writes, for all formats."""

import abc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from het_tf.ext.checkpoint.python import directory
from het_tf.ext.placement.python.placement import Int64Array
from het_tf.python.files import open_file

Rows = TypeVar("Rows")

SEVERAL = "has several values a sample"  # why a field of lists of ids cannot place samples


class Writer(abc.ABC, Generic[Rows]):
    """A file being written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abc.abstractmethod
    def append(self, rows: Rows) -> None:
        """Appends samples. OSError: it cannot."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Closes the file, also after an error; a second call does nothing. OSError: it cannot."""

    def close(self) -> int:
        """Waits until the file is on disk; returns its bytes. OSError: it cannot."""
        self.finish()
        directory.sync(self.path)
        return self.path.stat().st_size


class Samples(abc.ABC, Generic[Rows]):
    """The samples of files of one format, one file after the other.

    Args:
      paths: The files.

    Attributes:
      suffix: Suffix of files that are written.
      total: The sum of `units` over all samples; None if unknown.

    Raises:
      ValueError: No file is given, or a file has another format.
      OSError: A file cannot be read.
    """

    suffix: str
    total: int | None = None

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._found = [_state(path) for path in self.paths]

    @abc.abstractmethod
    def fields(self) -> dict[str, str]:
        """Returns the fields, each with the reason why it cannot place samples; "" if it can."""

    @abc.abstractmethod
    def blocks(self, size: int) -> Iterator[Rows]:
        """Yields all samples in order, `size` per block; the last block may have fewer."""

    @abc.abstractmethod
    def columns(self, rows: Rows, names: Sequence[str]) -> dict[str, Any]:
        """Returns the integers or strings of fields that can place samples."""

    def only(self, names: Sequence[str]) -> None:
        """Restricts `columns` and `lists` to these fields."""

    def lists(self, rows: Rows, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Returns the concatenated values of fields that are `SEVERAL`, and each sample's number of them."""
        return {}

    @abc.abstractmethod
    def take(self, rows: Rows, index: Int64Array) -> Rows:
        """Returns some of the samples."""

    @abc.abstractmethod
    def units(self, rows: Rows) -> int:
        """Returns these samples' share of `total`."""

    @abc.abstractmethod
    def writer(self, path: Path) -> Writer[Rows]:
        """Opens a new file of the format."""

    def require(self, by: str) -> None:
        """Checks that a field can place samples.

        Raises:
          ValueError: It cannot.
        """
        fields = self.fields()
        if fields.get(by, "missing"):
            fit = ", ".join(name for name, reason in fields.items() if not reason) or "none"
            fault = f"which {fields[by]}" if by in fields else f"which {self.paths[0]} has not"
            raise ValueError(f"--by is {by!r}, {fault}; fields of one integer or string a sample: {fit}")

    def require_unchanged(self) -> None:
        """Checks that no file has changed since reading began.

        Raises:
          ValueError: A file has.
        """
        for path, before in zip(self.paths, self._found, strict=True):
            if _state(path) != before:
                raise ValueError(
                    f"{path} has changed while it was read: samples would be missing or twice; start "
                    "again when nothing writes to it"
                )


def _state(path: Path) -> tuple[int, ...]:
    with open_file(path) as file:
        found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
