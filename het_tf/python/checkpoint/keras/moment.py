"""One table at one moment, in a directory: taking it, putting it back, comparing it with what there is now.

The directory is a checkpoint of this table alone, as `checkpoint.rows` writes and reads it. To read it into a
table of another name, the name is exchanged in it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.rowfile import RowFile, layout
from het_tf.python.checkpoint.rows import FILES, read_tables, write_tables
from het_tf.python.table.table import Table

_COMPARED = ("clocks", "values", "slots")
_FILE_BYTES = 32 << 20  # of rows; small tables are not worth several files
_ROWS = 1 << 16  # that are compared at a time

Array = npt.NDArray[Any]
Columns = dict[str, Array]


@contextlib.contextmanager
def workspace(near: str | None = None) -> Iterator[Path]:
    """A directory for the time being.

    Args:
      near: Where; None: the system's directory of temporary files.
    """
    path = Path(tempfile.mkdtemp(prefix=".het_tf-", dir=near))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def take(directory: Path, namespace: str, table: str) -> Path:
    """Writes all rows of a table, with slots and clocks, into a directory, which it makes and returns."""
    of = Table(table, namespace)
    files = 1 + of.size * of.row_floats * 4 // _FILE_BYTES
    write_tables(directory, namespace, [table], files=min(files, FILES))
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
    with workspace() as place:
        source = directory
        try:
            if table not in manifests.read_manifest(directory).tables:
                source = _renamed(directory, place / "rows", table)
            read_tables(source, namespace, [table])
        except ValueError as error:  # names a file of ours, which nobody knows, and what nobody can give here
            text = str(error).replace(f"the checkpoint {source}", "what was saved").replace(f"{source}/", "")
            text = text.replace(", or give slots=False: values stay, and slots begin anew", "")
            raise ValueError(f"table {table!r} is as it was: {text}") from None


def same(directory: Path, namespace: str, table: str) -> bool:
    """Whether the table has now the rows, slots and clocks that are in the directory."""
    with workspace() as place:
        return _same_rows(_columns(directory), _columns(take(place / "rows", namespace, table)))


def _renamed(directory: Path, target: Path, name: str) -> Path:
    """A copy of the directory in which the table has another name."""
    target.mkdir()
    document = manifests.read_manifest(directory).document
    (table,) = document["tables"]
    before = table["name"]
    table["name"] = table["spec"]["name"] = name
    for entry in document["files"]:
        tensors = list(RowFile(directory / entry["name"]).tensors.values())
        start, _ = layout({_exchange(one.name, before, name): (one.code, one.shape) for one in tensors})
        with (directory / entry["name"]).open("rb") as file, (target / entry["name"]).open("xb") as out:
            out.write(start)
            file.seek(tensors[0].begin)
            shutil.copyfileobj(file, out, 1 << 20)
            entry["bytes"] = out.tell()
        entry["header_xxh3"] = xxhash.xxh3_64_hexdigest(start)
        entry["tensors"] = {_exchange(key, before, name): value for key, value in entry["tensors"].items()}
    manifests.write(target, document)
    return target


def _exchange(key: str, before: str, after: str) -> str:
    """The name of a tensor when its table has another one."""
    table, _, column = key.rpartition("/")
    return f"{after}/{column}" if table == before else key


def _columns(directory: Path) -> list[Columns]:
    """The columns of each row file."""
    found: list[Columns] = []
    for entry in manifests.read_manifest(directory).files:
        file = RowFile(directory / entry["name"])
        for table, of_table in file.tables.items():
            found.append({column: file.column(table, column) for column in of_table.columns})
    return found


def _same_rows(first: list[Columns], second: list[Columns]) -> bool:
    """Compares tables that may be divided into other files, with rows in another order."""
    places = [_places(columns) for columns in (first, second)]
    if not np.array_equal(places[0][0], places[1][0]):
        return False
    for begin in range(0, len(places[0][0]), _ROWS):
        parts = [
            _gather(columns, file[begin : begin + _ROWS], row[begin : begin + _ROWS])
            for columns, (_, file, row) in zip((first, second), places, strict=True)
        ]
        if any(not np.array_equal(a, b) for a, b in zip(*parts, strict=True)):
            return False
    return True


def _places(files: list[Columns]) -> tuple[Array, Array, Array]:
    """The keys in ascending order, and for each the file and the row in it."""
    keys = np.concatenate([np.empty(0, np.int64), *(one["keys"] for one in files)])
    file = np.repeat(np.arange(len(files), dtype=np.int32), [len(one["keys"]) for one in files])
    row = np.concatenate([np.empty(0, np.int64), *(np.arange(len(one["keys"])) for one in files)])
    order = np.argsort(keys, kind="stable")
    return keys[order], file[order], row[order]


def _gather(files: list[Columns], file: Array, row: Array) -> list[Array]:
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
