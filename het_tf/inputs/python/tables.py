"""Reads users' tables, files of CSV or Parquet and frames, batch by batch, as Arrow has them (needs pyarrow).

open_table ─► Table ── batches ─► Part: a `pyarrow.RecordBatch`, and where it comes from

A column has one type in all files: the widest of theirs, so int64 if one file has it as int32.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import glob
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from het_tf.python.files import local_path

ROWS = 1 << 16  # most rows of a batch
_BUFFER = 1 << 16  # bytes of a column of Parquet per read, in place of its whole row group
_KINDS = {".csv": ",", ".tsv": "\t", ".parquet": "", ".pq": ""}
_COMPRESSED = (".gz", ".bz2", ".zst")
_INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")
_LINE = re.compile(r"(?:In CSV column #(\d+): |CSV parse error: )Row #(\d+): (.*)", re.DOTALL)


def pyarrow() -> Any:
    """Returns the module with all parts used here. ImportError: it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"tables are read by pyarrow ({error}); run: {sys.executable} -m pip install pyarrow, or install "
            "het_tf[parquet]"
        ) from None
    return pyarrow


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


def is_index(name: str) -> bool:
    """Whether pandas has written its index as a column of this name: it numbers rows, and is no feature."""
    return _INDEX.fullmatch(name) is not None


class Part(NamedTuple):
    """Some rows of a table.

    Attributes:
      where: Their file.
      first: Number of the first row there, from 0.
      data: A `pyarrow.RecordBatch`.
    """

    where: str
    first: int
    data: Any


class Table:
    """A table that can be read many times from its beginning; made by `open_table`.

    Attributes:
      name: Name of its file, or "table".
      schema: A `pyarrow.Schema`.
      types: Arrow's type of each column.
    """

    def __init__(self, name: str, dataset: Any, is_csv: bool = False, is_parquet: bool = False) -> None:
        self.name, self._dataset, self._is_parquet = name, dataset, is_parquet
        with _told(name):
            self._fragments = list(dataset.get_fragments())
            self.schema = dataset.schema
        for fragment in self._fragments if is_csv else self._fragments[1:]:
            with _told(fragment.path):
                self._add(fragment, is_csv)
        self.types: dict[str, Any] = {field.name: field.type for field in self.schema}

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

    def batches(self, names: Sequence[str]) -> Iterator[Part]:
        """Yields all rows in order, with these columns.

        Raises:
          ValueError: A file is damaged, or a value is not of its column's type.
        """
        for fragment in self._fragments:
            where, first = getattr(fragment, "path", self.name), 0
            with _told(where, list(self.types)):
                for data in self._read(fragment, list(names)):
                    yield Part(where, first, data)
                    first += data.num_rows

    def _read(self, fragment: Any, names: list[str]) -> Iterator[Any]:
        """Yields the record batches of a file; a scan of Parquet would read ahead without a limit."""
        arrow = pyarrow()
        if not self._is_parquet:
            yield from fragment.to_batches(self.schema, columns=names, batch_size=ROWS, batch_readahead=4)
            return
        schema = arrow.schema([self.schema.field(name) for name in names])
        with arrow.parquet.ParquetFile(fragment.path, pre_buffer=False, buffer_size=_BUFFER) as file:
            for data in file.iter_batches(ROWS, columns=names):
                arrays = [data.column(field.name).cast(field.type) for field in schema]
                yield arrow.RecordBatch.from_arrays(arrays, schema=schema)

    def _add(self, fragment: Any, is_csv: bool) -> None:
        """Widens the types of columns to those of a file. ValueError: it has other columns, or of no kin."""
        found = fragment.physical_schema
        for name in {*found.names} ^ {*self.schema.names}:
            missing, other = (self.name, fragment.path)[:: 1 if name in found.names else -1]
            raise ValueError(f"{missing} has no column {name!r}, but {other} has; describe files of one kind")
        for number, field in enumerate(self.schema):
            kind = found.field(field.name).type
            if is_csv and pyarrow().types.is_binary(kind):
                raise pyarrow().ArrowInvalid(f"column {field.name!r} is not UTF-8")
            wide = _widest(field.type, kind) or (field.type if is_csv else None)
            if wide is None:
                raise ValueError(
                    f"{fragment.path}: column {field.name!r} is {kind}, but in files before it {field.type}; "
                    "write both alike"
                )
            self.schema = self.schema.set(number, field.with_type(wide))


def _widest(a: Any, b: Any) -> Any:
    """Returns the type for values of two types; None: there is none. Categories of two kinds are values."""
    arrow = pyarrow()
    if a != b and not is_list(a):
        a, b = value_type(a), value_type(b)
    try:
        schemas = [arrow.schema([("", kind)]) for kind in (a, b)]
        return arrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    except arrow.ArrowException:
        return None


def _line_not_utf8(path: str) -> tuple[int, bytes] | None:
    """Returns the number and the text of the first line of a file that is not UTF-8."""
    try:
        with io.BufferedReader(pyarrow().input_stream(path)) as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    return number, line
    except (pyarrow().ArrowException, OSError):  # a damaged file
        pass
    return None


@contextlib.contextmanager
def _told(where: str, names: Sequence[str] = ()) -> Iterator[None]:
    """Converts Arrow's errors to one that names the file, and the line and column of a CSV."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pyarrow().ArrowException, OSError, UnicodeDecodeError) as error:
        is_csv = bool(_KINDS.get(str(_kind(Path(where)))))
        if is_csv and (bad := _line_not_utf8(where)):
            old = "UTF-16" if bad[1][:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"
            raise ValueError(
                f"{where}, line {bad[0]} is not UTF-8: {bad[1][:60]!r}; convert the file, for example by "
                f"`iconv -f {old} -t UTF-8 OLD > NEW`"
            ) from None
        found = _LINE.search(str(error))
        if found is None:
            remedy = "write the column alike in all files" if "not in range" in str(error) else (
                "copy it again, or write it anew")  # fmt: skip
            raise ValueError(f"{where} cannot be read: {error}; {remedy}") from None
        column, line, what = found.groups()
        place, remedy = f"{where}, line {line}", "correct the line"
        if column is not None:
            name = names[int(column)] if names else "..."
            place += f", column {name!r}" if names else f", column number {int(column) + 1}"
            remedy += f"; het_tf.data.describe also takes it by numeric=[{name!r}] or strings=[{name!r}]"
        raise ValueError(f"{place}: {what}; {remedy}") from None


def open_table(
    source: Any, strings: Sequence[str] = (), numeric: Sequence[str] = (), kind: str = ""
) -> Table:
    """Opens a source of `describe`. Reads CSV columns as `strings`, as `numeric`, or by their look.

    `kind` is that of files with other names, ".csv" or ".parquet"; "": there are none.

    Raises:
      ImportError, FileNotFoundError, ValueError: See `describe`.
    """
    arrow = pyarrow()
    several = isinstance(source, (list, tuple))
    if not several and not isinstance(source, (str, Path)):
        return Table("table", arrow.dataset.dataset(_frame(source)))
    paths = [local_path("source", path) for path in (source if several else [source])]
    files = paths if kind else [file for path in paths for file in _files(path)]
    kinds = {_KINDS[_kind(file) or kind] for file in files}
    if len(kinds) != 1:
        raise ValueError(
            f"{source} are files of CSV and Parquet, or of commas and tabs; give files of one kind"
        )
    delimiter = kinds.pop()
    form: Any = arrow.dataset.ParquetFileFormat()
    if delimiter:
        types = dict.fromkeys(strings, arrow.string()) | dict.fromkeys(numeric, arrow.float64())
        form = arrow.dataset.CsvFileFormat(
            parse_options=arrow.csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow.csv.ConvertOptions(column_types=types),
        )
    name = str(source) if not several else str(files[0])
    with _told(str(files[0])):
        dataset = arrow.dataset.dataset([str(file) for file in files], format=form)
    return Table(name, dataset, bool(delimiter), not delimiter)


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
    """Returns the files of a path, which may be a directory or a pattern of names."""
    found = [path] if path.exists() else sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    if not found:
        raise FileNotFoundError(f"there is no file {path}")
    files = [file for one in found for file in (sorted(one.rglob("*")) if one.is_dir() else [one])]
    files = [file for file in files if file.is_file() and _kind(file)]
    if not files:
        raise ValueError(f"{path} is neither a file *.csv, *.tsv or *.parquet, nor a directory of these")
    return files
