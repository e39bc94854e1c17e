"""Reads users' tables: files and frames by pyarrow, batch by batch, and their columns as arrays.

open_table ─► Table ── batches ─► Batch ── integers, texts, lists, numbers, label ─► arrays
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.files import local_path
from het_tf.zoo.data.examples import PADDING, Field, FloatArray, IdArray, Int64Array

ROWS = 1 << 16  # most rows of a batch
_KINDS = {".csv": ",", ".tsv": "\t", ".parquet": ""}
_COMPRESSED = (".gz", ".bz2", ".zst")
_NAN = np.iinfo(np.int64).min
_LINE = re.compile(r"(?:In CSV column #(\d+): |CSV parse error: )Row #(\d+): (.*)", re.DOTALL)


def pyarrow() -> Any:
    """Returns the module with all parts used here. ImportError: it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError(
            f"tables are read by pyarrow ({error}); run: {sys.executable} -m pip install pyarrow, or install "
            "het_tf[parquet]"
        ) from None
    return pyarrow


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes:
      where: Their source.
      first: Number of the first row there, from 0.
      data: A `pyarrow.RecordBatch`.
    """

    where: str
    first: int
    data: Any

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def column(self, name: str) -> Any:
        """Returns a column; categories as their values."""
        column = self.data.column(name)
        return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column

    def numbers(self, name: str) -> Any:
        """Returns a column of numbers as a float64 Arrow array, null for a missing one."""
        return self._numbers(name, self.column(name))

    def floats(self, name: str) -> FloatArray:
        """Returns a column of numbers as float32 `[N]`, NaN for a missing one."""
        return np.asarray(self.numbers(name).to_numpy(zero_copy_only=False), np.float32)

    def label(self, name: str) -> FloatArray:
        """Returns a label, float32 `[N]`; ValueError if one is missing."""
        values = self.floats(name)
        self._refuse(name, np.isnan(values), "a label is missing; leave the row out")
        return values

    def ids(self, field: Field) -> IdArray:
        """Returns the ids of a field: int64 or strings, `[N]`; or the last of each list, `[N, L]`, padded."""
        column = self.column(field.name)
        read = self._texts if field.dtype == "string" else self._integers
        if field.length is None:
            return read(field.name, column)
        if not is_list(column.type):
            raise self.error(field.name, f"is {column.type}, but the field has lists of ids")
        lengths = self.lengths(field.name)
        flat = read(field.name, pyarrow().compute.list_flatten(column))
        left = np.minimum(lengths, field.length)
        flat = flat[np.arange(len(flat)) >= np.repeat(np.cumsum(lengths) - left, lengths)]
        found = np.full((len(column), field.length), field.padding, flat.dtype)
        found[np.arange(field.length) < left[:, None]] = flat
        return found

    def lengths(self, name: str) -> Int64Array:
        """Returns the lengths of a column's lists, int64 `[N]`; 0 for a missing one."""
        lengths = pyarrow().compute.list_value_length(self.column(name))
        return np.asarray(lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64)

    def error(self, name: str, what: str, row: int | None = None) -> ValueError:
        """Returns an error that names file, row and column."""
        at = "" if row is None else f", row {self.first + row + 1}"
        return ValueError(f"{self.where}{at}, column {name!r}: {what}")

    def _refuse(self, name: str, bad: npt.NDArray[np.bool_], what: str) -> None:
        if bad.any():
            raise self.error(name, f"{what} ({bad.sum()} of {len(bad)} here)", int(bad.argmax()))

    def _numbers(self, name: str, column: Any) -> Any:
        arrow = pyarrow()
        types, compute = arrow.types, arrow.compute
        if not (is_number(column.type) or types.is_boolean(column.type) or types.is_null(column.type)):
            raise self.error(name, f"is {column.type}, not a number; convert it, or leave it out")
        if types.is_boolean(column.type):
            column = column.cast(arrow.uint8())
        values = column.cast(arrow.float64(), safe=False)
        return compute.if_else(compute.is_nan(values), arrow.scalar(None, arrow.float64()), values)

    def _integers(self, name: str, column: Any) -> Int64Array:
        """Converts to int64: missing ones are PADDING; uint64 wraps around."""
        arrow = pyarrow()
        kind = column.type
        if arrow.types.is_floating(kind) or arrow.types.is_decimal(kind):
            values = self._numbers(name, column).to_numpy(zero_copy_only=False)
            there = np.where(np.isnan(values), PADDING, values)
            self._refuse(name, there != np.floor(there), "an id is not a whole number")
            most = exact(kind)
            self._refuse(
                name, np.abs(there) >= most, f"an id is {most:.0f} or more, which {kind} cannot tell apart"
            )
            return np.asarray(there, np.int64)
        if not (arrow.types.is_integer(kind) or arrow.types.is_boolean(kind) or arrow.types.is_null(kind)):
            raise self.error(
                name, f"is {kind}, but ids are int64; describe it by strings=[{name!r}], or convert it"
            )
        values = column.cast(arrow.int64(), safe=False).fill_null(PADDING).to_numpy(zero_copy_only=False)
        self._refuse(name, values == _NAN, "an id is -2^63, which NaN becomes as an integer")
        return np.asarray(values, np.int64)

    def _texts(self, name: str, column: Any) -> IdArray:
        """Converts to strings: missing ones are empty."""
        arrow = pyarrow()
        types = arrow.types
        if not (is_text(column.type) or types.is_integer(column.type) or types.is_null(column.type)):
            raise self.error(name, f"is {column.type}, but ids are strings; convert it")
        column = column.cast(arrow.string()).fill_null("")
        return np.asarray(column.to_numpy(zero_copy_only=False), object)


def is_list(kind: Any) -> bool:
    """Whether values of an Arrow type are lists."""
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether values of an Arrow type are strings."""
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_number(kind: Any) -> bool:
    """Whether values of an Arrow type are integers, floats or decimals."""
    types = pyarrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def value_type(kind: Any) -> Any:
    """The type of the elements of lists and of the values of categories; else the type itself."""
    return kind.value_type if is_list(kind) or pyarrow().types.is_dictionary(kind) else kind


def exact(kind: Any) -> float:
    """The bound below which floats of a type represent all whole numbers."""
    return 2.0 ** (24 if kind in (pyarrow().float16(), pyarrow().float32()) else 53)


class Table:
    """A table that can be read many times from its beginning; made by `open_table`.

    Attributes:
      name: Name of its file, or "table".
      types: Arrow's type of each column.
    """

    def __init__(self, name: str, dataset: Any, is_csv: bool) -> None:
        self.name, self._dataset = name, dataset
        self.types: dict[str, Any] = {field.name: field.type for field in dataset.schema}
        with _told(name):
            self._fragments = list(dataset.get_fragments())
            for fragment in self._fragments[1:]:
                self._compare(fragment, is_csv)

    @functools.cached_property
    def rows(self) -> int:
        """Number of rows; for CSV the first call needs a pass over the lines."""
        with _told(self.name):
            return int(self._dataset.count_rows())

    def require(self, names: Sequence[str]) -> None:
        """Raises ValueError if a column does not exist."""
        missing = [name for name in names if name not in self.types]
        if missing:
            raise ValueError(f"{self.name} has no columns {missing}; it has {list(self.types)}")

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yields all rows in order, with these columns.

        Raises:
          ValueError: A file is damaged, or a value is not of its column's type.
        """
        for fragment in self._fragments:
            where, first = getattr(fragment, "path", self.name), 0
            with _told(where, list(self.types)):
                for data in fragment.to_batches(
                    self._dataset.schema, columns=list(names), batch_size=ROWS, batch_readahead=4
                ):
                    yield Batch(where, first, data)
                    first += data.num_rows

    def _compare(self, fragment: Any, is_csv: bool) -> None:
        schema = fragment.physical_schema
        for name in {*schema.names} ^ {*self.types}:
            missing, other = (
                (self.name, fragment.path) if name in schema.names else (fragment.path, self.name)
            )
            raise ValueError(f"{missing} has no column {name!r}, but {other} has; describe files of one kind")
        for field in schema if not is_csv else ():
            if not _alike(self.types[field.name], field.type):
                raise ValueError(
                    f"{fragment.path}: column {field.name!r} is {field.type}, but in the first file "
                    f"{self.types[field.name]}; write both alike"
                )


def _alike(first: Any, other: Any) -> bool:
    """Whether Arrow reads a column of the other type as the first type."""
    types, a, b = pyarrow().types, value_type(first), value_type(other)
    kin = (is_text(a) and is_text(b)) or (types.is_floating(a) and is_number(b))
    kin = kin or (types.is_integer(a) and types.is_integer(b))
    return is_list(first) == is_list(other) and (a == b or kin)


@contextlib.contextmanager
def _told(where: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Converts Arrow's errors to one that names the file, and the line and column of a CSV."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pyarrow().ArrowException, OSError) as error:
        found = _LINE.search(str(error))
        if found is None:
            raise ValueError(f"{where} cannot be read: {error}; copy it again, or write it anew") from None
        column, line, what = found.groups()
        place, remedy = f"{where}, line {line}", "correct the line"
        if column is not None:
            place += f", column {names[int(column)]!r}" if names else f", column number {int(column) + 1}"
            remedy += ", or read the column as text by strings=[...]"
        raise ValueError(f"{place}: {what}; {remedy}") from None


def open_table(source: Any, strings: Sequence[str] = (), numeric: Sequence[str] = ()) -> Table:
    """Opens a source of `describe`. Reads CSV columns as `strings`, as `numeric`, or by their look.

    Raises:
      ImportError, FileNotFoundError, ValueError: See `describe`.
    """
    arrow = pyarrow()
    several = isinstance(source, (list, tuple))
    if not several and not isinstance(source, (str, Path)):
        return Table("table", arrow.dataset.dataset(_frame(source)), False)
    paths = [local_path("source", path) for path in (source if several else [source])]
    files = [file for path in paths for file in _files(path)]
    kinds = {_kind(file) for file in files}
    if len(kinds) != 1:
        raise ValueError(f"{source} are files {sorted(map(str, kinds))}; give files of one kind")
    delimiter = _KINDS[str(kinds.pop())]
    scan = arrow.dataset.ParquetFragmentScanOptions(pre_buffer=False)  # it would keep all of a file
    form: Any = arrow.dataset.ParquetFileFormat(default_fragment_scan_options=scan)
    if delimiter:
        types = dict.fromkeys(strings, arrow.string()) | dict.fromkeys(numeric, arrow.float64())
        form = arrow.dataset.CsvFileFormat(
            parse_options=arrow.csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow.csv.ConvertOptions(column_types=types),
        )
    name = str(source) if not several else str(files[0])
    with _told(name):
        return Table(name, arrow.dataset.dataset([str(file) for file in files], format=form), bool(delimiter))


def _frame(source: Any) -> Any:
    """Converts a table in memory to Arrow's; NaN becomes null."""
    arrow = pyarrow()
    where = "table"
    try:
        if isinstance(source, Mapping):
            columns = {}
            for name, values in source.items():
                where = f"column {name!r}"
                columns[name] = arrow.array(values, from_pandas=True)
            return arrow.table(columns)
        if type(source).__module__.split(".")[0] == "pandas":
            return arrow.Table.from_pandas(source, preserve_index=False)
        return arrow.table(source)
    except arrow.ArrowException as error:
        raise ValueError(
            f"{where}: {error}; a column has one type: convert it, for example by .astype(str)"
        ) from None
    except TypeError:
        raise ValueError(
            f"source is a {type(source).__name__}; give a path, paths, a DataFrame, a pyarrow.Table or a dict"
        ) from None


def _kind(file: Path) -> str | None:
    name = file.with_suffix("") if file.suffix in _COMPRESSED else file
    return name.suffix if name.suffix in _KINDS else None


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    files = [file for file in files if _kind(file)]
    if not files:
        raise ValueError(f"{path} is neither a file *.csv, *.tsv or *.parquet, nor a directory of these")
    return files
