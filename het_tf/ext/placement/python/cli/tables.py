"""Files of Parquet and CSV for `het data` and `het plan` (needs pyarrow)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.placement.python.cli.samples import SEVERAL, Samples, Writer
from het_tf.ext.placement.python.placement import Int64Array
from het_tf.inputs.python.tables import is_index, is_list, open_table, pyarrow

_GROUP = 1 << 16  # rows per row group that is written


class TableRows(Samples[Any]):
    """Rows of Parquet or CSV files with the same columns; written as Parquet.

    A missing value counts as 0, or as an empty string.
    """

    suffix = ".parquet"

    def __init__(self, paths: Sequence[Path], kind: str) -> None:
        super().__init__(paths)
        self._pa = pyarrow()
        self._table = open_table(self.paths, kind=f".{kind}")
        self._schema = self._table.schema
        if kind == "parquet":
            self.total = self._table.rows

    def fields(self) -> dict[str, str]:
        """Columns of integers and of strings fit, but no index of pandas."""
        reasons = {field.name: self._reason(field.type) for field in self._schema}
        return {name: "is an index of pandas" if is_index(name) else why for name, why in reasons.items()}

    def _reason(self, kind: Any) -> str:
        types = self._pa.types
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind):
            return ""
        if types.is_binary(kind) or types.is_large_binary(kind):
            return ""
        if is_list(kind) and not self._reason(kind.value_type):
            return SEVERAL
        return f"is {kind}, not an id"

    def only(self, names: Sequence[str]) -> None:
        """See Samples."""
        self._schema = self._pa.schema([self._schema.field(name) for name in names])

    def blocks(self, size: int) -> Iterator[Any]:
        """See Samples. ValueError: a file is damaged, or has a value of another type than its column."""
        held = self._schema.empty_table()
        for _, _, batch in self._table.batches(self._schema.names):
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
