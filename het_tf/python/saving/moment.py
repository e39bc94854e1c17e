"""One table at one moment, in a directory: taking it, putting it back, comparing it with what there is now."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.saving import pack, rowfile
from het_tf.python.saving._rows_stub import read_tables, write_tables

_COMPARED = ("clocks", "values", "slots")
_ROWS = 1 << 16  # that are compared at a time


@contextlib.contextmanager
def workspace(near: str | None = None) -> Iterator[Path]:
    """A directory for the time being.

    Args:
      near: Where; None: the system's directory of temporary files.
    """
    path = Path(tempfile.mkdtemp(prefix=f".het_tf-{uuid.uuid4().hex[:8]}-", dir=near))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def take(directory: Path, namespace: str, table: str) -> Path:
    """Writes all rows of a table, with slots and clocks, into a directory that is not there yet; returns it."""
    write_tables(directory, namespace, [table])
    return directory


def put_back(directory: Path, namespace: str, table: str) -> None:
    """Makes the table what `take` has seen: rows, slots, clocks, the step of its schedules, and no other row.

    Args:
      directory: What `take` has written, of whatever namespace and under whatever name.
      namespace: Where the table is.
      table: Its name.

    Raises:
      ValueError: The directory holds a table of another spec, or is damaged; the table is as it was.
    """
    read_tables(directory, namespace, {name_of(directory): table})


def name_of(directory: Path) -> str:
    """The name of the table in a directory."""
    (table,) = json.loads((directory / pack.MANIFEST).read_text())["tables"]
    return str(table["name"])


def same(directory: Path, namespace: str, table: str) -> bool:
    """Whether the table has now the rows, slots and clocks that are in the directory."""
    with workspace() as place:
        return _same_rows(_files(directory), _files(take(place / "rows", namespace, table)))


Columns = dict[str, npt.NDArray[Any]]


def _files(directory: Path) -> list[Columns]:
    """The columns of each row file."""
    files = json.loads((directory / pack.MANIFEST).read_text())["files"]
    found: list[Columns] = []
    for file in files:
        found.extend(rowfile.columns(directory / file["name"]).values())
    return found


def _same_rows(first: list[Columns], second: list[Columns]) -> bool:
    """Compares tables that may be divided into other files, with rows in another order."""
    places = [_places(columns) for columns in (first, second)]
    if len(places[0][0]) != len(places[1][0]) or not np.array_equal(places[0][0], places[1][0]):
        return False
    for begin in range(0, len(places[0][0]), _ROWS):
        parts = [
            _gather(columns, file[begin : begin + _ROWS], row[begin : begin + _ROWS])
            for columns, (_, file, row) in zip((first, second), places, strict=True)
        ]
        if any(not np.array_equal(a, b) for a, b in zip(*parts, strict=True)):
            return False
    return True


def _places(files: list[Columns]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The keys in ascending order, and for each the file and the row in it."""
    keys = np.concatenate([np.empty(0, np.int64), *(one["keys"] for one in files)])
    file = np.repeat(np.arange(len(files), dtype=np.int32), [len(one["keys"]) for one in files])
    row = np.concatenate([np.empty(0, np.int64), *(np.arange(len(one["keys"])) for one in files)])
    order = np.argsort(keys, kind="stable")
    return keys[order], file[order], row[order]


def _gather(
    files: list[Columns], file: npt.NDArray[Any], row: npt.NDArray[Any]
) -> list[npt.NDArray[Any]]:
    """Rows of each compared column."""
    gathered = []
    for column in _COMPARED:
        if column not in files[0]:
            gathered.append(np.empty(0))
            continue
        example = files[0][column]
        out = np.empty((len(row), *example.shape[1:]), example.dtype)
        for number in np.unique(file):
            chosen = file == number
            out[chosen] = files[number][column][row[chosen]]
        gathered.append(out)
    return gathered
