"""Files of Parquet for `het-data` (needs pyarrow)."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.python.placement.cli.samples import SEVERAL, Samples, Writer
from het_tf.python.placement.placement import Int64Array

_READ, _GROUP = 1 << 14, 1 << 16  # rows per read, and per row group that is written
_BUFFER = 1 << 16  # bytes of a column per read, in place of its whole row group


def _pyarrow() -> Any:
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            f"files of Parquet need pyarrow ({error}); run: {sys.executable} -m pip install pyarrow, or "
            "install het_tf[parquet]"
        ) from None
    return pyarrow


class ParquetRows(Samples[Any]):
    """Rows of Parquet files with one schema. A missing value counts as 0, or as an empty string."""

    suffix = ".parquet"

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self._pa = _pyarrow()
        self._schema: Any = None
        self.total = 0
        for path in paths:
            with self._open(path) as file:
                self.total += file.metadata.num_rows
                if self._schema is not None and not file.schema_arrow.equals(self._schema):
                    raise ValueError(f"{path} has another schema than {paths[0]}; place them separately")
                self._schema = file.schema_arrow

    def _open(self, path: Path) -> Any:
        try:
            return self._pa.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        except self._pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a file of Parquet: {error}") from None

    def fields(self) -> dict[str, str]:
        """Columns of integers and of strings fit."""
        return {field.name: self._reason(field.type) for field in self._schema}

    def _reason(self, kind: Any) -> str:
        types = self._pa.types
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind):
            return ""
        if types.is_binary(kind) or types.is_large_binary(kind):
            return ""
        if self._is_list(kind) and not self._reason(kind.value_type):
            return SEVERAL
        return f"is {kind}, not an id"

    def _is_list(self, kind: Any) -> bool:
        types = self._pa.types
        return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))

    def only(self, names: Sequence[str]) -> None:
        """See Samples."""
        self._schema = self._pa.schema([self._schema.field(name) for name in names])

    def blocks(self, size: int) -> Iterator[Any]:
        """See Samples."""
        held = self._schema.empty_table()
        for path in self.paths:
            with self._open(path) as file:
                for batch in file.iter_batches(_READ, columns=self._schema.names):
                    held = self._pa.concat_tables([held, self._pa.Table.from_batches([batch], self._schema)])
                    whole = held.num_rows - held.num_rows % size
                    for begin in range(0, whole, size):
                        yield held.slice(begin, size)
                    held = held.slice(whole)
        if held.num_rows:
            yield held

    def columns(self, rows: Any, names: Sequence[str]) -> dict[str, Any]:
        """See Samples."""
        return {name: self._values(rows.column(name).combine_chunks()) for name in names}

    def _values(self, column: Any) -> Any:
        if self._pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self._pa.types.is_integer(column.type):
            return column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return np.array([one or "" for one in column.to_pylist()], object)

    def lists(self, rows: Any, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """See Samples. A missing list has no values."""
        found = {}
        for name in names:
            column = rows.column(name).combine_chunks()
            ends = self._pa.compute.list_value_length(column).fill_null(0)
            found[name] = self._values(column.flatten()), ends.to_numpy(zero_copy_only=False)
        return found

    def take(self, rows: Any, index: Int64Array) -> Any:
        """See Samples."""
        return rows.take(index)

    def units(self, rows: Any) -> int:
        """Rows."""
        return int(rows.num_rows)

    def writer(self, path: Path) -> Writer[Any]:
        """See Samples."""
        return _Groups(path, self._pa, self._schema)


class _Groups(Writer[Any]):
    def __init__(self, path: Path, pa: Any, schema: Any) -> None:
        super().__init__(path)
        self._pa = pa
        self._held: list[Any] = []
        self._rows = 0
        self._file = path.open("xb")
        self._writer: Any = pa.parquet.ParquetWriter(self._file, schema)

    def append(self, rows: Any) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        if self._rows >= _GROUP:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(self._pa.concat_tables(self._held))
        self._held, self._rows = [], 0

    def finish(self) -> None:
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                if self._held:
                    writer.write_table(self._pa.concat_tables(self._held))
                writer.close()
        finally:
            self._file.close()
