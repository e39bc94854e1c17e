"""The function `het_tf.checkpoint.load_rows`: loads rows from files into a table."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from het_tf.ext.convert.python.files import tfra
from het_tf.ext.convert.python.files.arrays import Array, Arrays, Checkpoint, Npz, Parquet, Safetensors
from het_tf.ext.convert.python.files.rows import Rows, checked_parts, int64_ids
from het_tf.python.files import local_path
from het_tf.python.session import collective, native, settings
from het_tf.python.table.table import Table

_KINDS: dict[str, type[Arrays]] = {
    "npz": Npz,
    "safetensors": Safetensors,
    "parquet": Parquet,
    "checkpoint": Checkpoint,
}
FORMATS = (*_KINDS, "tfra")
_IDS = ("ids", "keys", "id", "key")
_VALUES = ("values", "rows", "value", "row")
_CHUNK = 1 << 22  # floats per read
Names = str | Sequence[str]


def load_rows(
    table: str | Table,
    path: str | os.PathLike[str],
    *,
    rows: Names | None = None,
    ids: str | None = None,
    slots: str | Sequence[str | float] = (),
    format: Literal["npz", "safetensors", "parquet", "checkpoint", "tfra"] | None = None,
    row_ids: Callable[[Array], Array] | None = None,
) -> int:
    """Sets rows of a table from a file of another system, another program, or pretrained rows.

        from het_tf.checkpoint import load_rows

        load_rows("item", "rows.npz")                                       # arrays ids, values
        load_rows("item", "model.safetensors", rows="item_embedding.weight")  # row number = id
        load_rows("item", "rows.parquet", ids="sku", rows="vector")
        load_rows("item", "ckpts/model-7", rows="item/embeddings/.ATTRIBUTES/VARIABLE_VALUE")
        load_rows("item", "model/TFRADynamicEmbedding", rows="item")        # of TFRA

    It checks everything before it sets the first row, so a bad file changes nothing. Rows of other ids stay.
    All workers of a job must call it; the first sets rows at a parameter server.

    Args:
      table: The table, or its name; a layer must have made it.
      path: A file `*.npz`, `*.safetensors`, `*.parquet`; a checkpoint of TensorFlow (its prefix, or the
        directory with its file "checkpoint"); or a directory with files `*-keys` and `*-values` of
        `tfra.dynamic_embedding`.
      rows: The array of the rows, floats [N, dim]; several are concatenated by columns. For a checkpoint the
        key of a variable (`tf.train.list_variables`), for TFRA the name of the table. None: TABLE/values,
        values, rows, value or row; for TFRA the only table.
      ids: The array of the ids, integers or strings [N]; strings are hashed as in the layers. None:
        TABLE/ids, TABLE/keys, ids, keys, id or key, if `rows` is None, too; else the number of a row is its
        id.
      slots: The arrays of the optimizer's slots in the order of a row, together
        `table.row_floats - table.dim` wide; a number stands for a slot that is equal in all rows (the step of
        Adam). For TFRA the names of the slots' tables, matched by id. Empty: slots start anew.
      format: "npz", "safetensors", "parquet", "checkpoint" or "tfra"; None: by the path.
      row_ids: Maps ids of the file to ids of the table, for tables that several fields read:
        `lambda ids: model.rows.row_ids("deep", "user", ids)`. None: they are equal.

    Returns:
      The number of rows that were set.

    Raises:
      LookupError: The table does not exist.
      FileNotFoundError: The file does not exist.
      ValueError: The file is damaged, of another format, lacks an array, has rows of another width, an id
        twice, ids that are not integers or strings, NaN or Inf. The table is unchanged.
    """
    into = Table(table) if isinstance(table, str) else table
    with collective.together("load_rows", "load rows"):
        if settings.parameter_server() and not settings.is_first_worker():
            return 0
        source = _Source(local_path("path", path), format, into.name)
        values = source.values(rows, ids)
        wanted = [slots] if isinstance(slots, str) else list(slots)
        found = [source.slot(each, values) for each in wanted]
        if row_ids is not None:
            values = values.moved(row_ids)
            found = [
                each if isinstance(each, float) or each.ids is None else each.moved(row_ids) for each in found
            ]
        return _Loading(into, values, int64_ids(values), found).run()


class _Source:
    """A file, and the names of its arrays."""

    def __init__(self, path: Path, format: str | None, table: str) -> None:
        if format is not None and format not in FORMATS:
            raise ValueError(f"format is {format!r}; give one of {FORMATS}, or None to take it from the path")
        self.path, self.table = path, table
        self.format = format or _format_of(path)
        self.arrays = _KINDS[self.format](path) if self.format in _KINDS else None
        self.tables: dict[str, Any] = {}
        if self.arrays is None:
            self.tables = tfra.tables_of_directory(path)
        elif self.format == "checkpoint":
            self.tables = tfra.tables_of_checkpoint(self.arrays)

    def values(self, rows: Names | None, ids: str | None) -> Rows:
        """Returns the requested rows."""
        if rows is None and ids is None and (self.arrays is None or len(self.tables) == 1):
            if len(self.tables) != 1:
                raise ValueError(f"{self.path} has {self._known()}; name one by rows=")
            return self._of_tfra(next(iter(self.tables)))
        if isinstance(rows, str) and (rows in self.tables or self.arrays is None):
            return self._of_tfra(rows)
        names = self._first(_VALUES, "rows") if rows is None else rows
        where = f"{self.path}: {names!r}"
        parts = [self._side_by_side(names, "rows")]
        if ids is None and rows is None and self.format != "checkpoint":
            ids = self._first(_IDS, "ids")
        return Rows(where, None if ids is None else self._read(ids, "ids"), checked_parts(where, parts))

    def slot(self, name: str | float, values: Rows) -> Rows | float:
        """Returns a slot: separate rows, or a number."""
        if not isinstance(name, str):
            return float(name)
        if name in self.tables or self.arrays is None:
            return self._of_tfra(name)
        where = f"{self.path}: {name!r}"
        found = Rows(where, None, checked_parts(where, [self._read(name, "slots")]))
        if found.count != values.count:
            raise ValueError(
                f"{where} has {found.count} rows, but the values {values.count}; give slots of these"
            )
        return found

    def _of_tfra(self, table: str) -> Rows:
        if table not in self.tables:
            raise ValueError(f"{self.path} has no table {table!r}; it has {self._known()}")
        if self.arrays is None:
            return tfra.read_files(table, self.tables[table])
        return tfra.read_tensors(table, self.tables[table], self.arrays)

    def _known(self) -> str:
        known = self.tables if self.arrays is None else {**self.tables, **self.arrays.shapes}
        shown = ", ".join(map(repr, list(known)[:20])) or "none"
        return f"{'tables' if self.arrays is None else 'arrays'} {shown}{', ...' if len(known) > 20 else ''}"

    def _first(self, names: Sequence[str], argument: str) -> str:
        assert self.arrays is not None
        for name in (*(f"{self.table}/{name}" for name in names), *names):
            if name in self.arrays.shapes:
                return name
        raise ValueError(
            f"{self.path} has no array {', '.join(names)}; name one by {argument}=. It has {self._known()}"
        )

    def _read(self, name: str, argument: str) -> Array:
        assert self.arrays is not None
        try:
            return self.arrays.read(name)
        except KeyError:
            raise ValueError(f"{self.path}: {argument} is {name!r}, but it has {self._known()}") from None

    def _side_by_side(self, names: Names, argument: str) -> Array:
        if isinstance(names, str):
            return self._read(names, argument)
        arrays = [self._read(name, argument) for name in names]
        if len({len(array) for array in arrays}) > 1:
            raise ValueError(f"{self.path}: {list(names)} have different lengths; name columns of one table")
        return np.concatenate([array.reshape(len(array), -1) for array in arrays], 1)


def _format_of(path: Path) -> str:
    """Returns the format of a path. FileNotFoundError: it does not exist. ValueError: unknown format."""
    if path.is_dir():
        if (path / "checkpoint").exists():
            return "checkpoint"
        if next(path.glob("*-keys"), None) is not None:
            return "tfra"
        if next(path.rglob("*.parquet"), None) is not None:
            return "parquet"
        raise ValueError(
            f"{path} is a directory without a file 'checkpoint', '*-keys' or '*.parquet'; give the path of a "
            "file"
        )
    kind = path.suffix.lstrip(".")
    if kind in _KINDS and kind != "checkpoint":
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        return kind
    if path.with_name(f"{path.name}.index").exists():
        return "checkpoint"
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}, and no checkpoint of that prefix")
    raise ValueError(f"{path} does not end in .npz, .safetensors or .parquet; give its format=")


class _Loading:
    """Loads rows into a table: checks all of them, then sets all.

    Args:
      table: The table.
      values: The rows.
      ids: Ids of the rows, int64 [N], each once.
      slots: The slots, in the order of a row.
    """

    def __init__(
        self, table: Table, values: Rows, ids: native.Int64Array, slots: Sequence[Rows | float]
    ) -> None:
        self._table, self._values, self._ids, self._slots = table, values, ids, slots
        self._places = [
            None if isinstance(slot, float) or slot.ids is None else self._match(slot) for slot in slots
        ]

    def run(self) -> int:
        """Sets the rows; returns their number."""
        self._check_widths()
        step = max(1, _CHUNK // self._table.row_floats)
        begins = range(0, len(self._ids), step)
        for begin in begins:
            self._block(np.arange(begin, min(begin + step, len(self._ids))), check=True)
        for begin in begins:
            self._block(np.arange(begin, min(begin + step, len(self._ids))), check=False)
        return len(self._ids)

    def _check_widths(self) -> None:
        table, values = self._table, self._values
        if values.count and values.width != table.dim:
            raise ValueError(
                f"{values.where} has rows of {values.width} floats, but table {table.name!r} has dim "
                f"{table.dim}; load them into a table of that dim"
            )
        wanted = table.row_floats - table.dim
        widths = [1 if isinstance(slot, float) else slot.width for slot in self._slots]
        if self._slots and values.count and sum(widths) != wanted:
            raise ValueError(
                f"slots are {widths} floats wide, but those of table {table.name!r} "
                f"({table.spec['optimizer']['name']}) {wanted} together; leave slots out, or name others"
            )

    def _match(self, slot: Rows) -> native.Int64Array:
        """Index of each row's slot in `slot`; -1: it has none."""
        theirs = int64_ids(slot)
        if not len(theirs):
            return np.full(len(self._ids), -1, np.int64)
        order = np.argsort(theirs, kind="stable")
        found = np.minimum(np.searchsorted(theirs, self._ids, sorter=order), len(theirs) - 1)
        places = order[found]
        return np.where(theirs[places] == self._ids, places, -1).astype(np.int64)

    def _block(self, numbers: native.Int64Array, check: bool) -> None:
        """Checks or sets some rows: those with all slots, then those without."""
        whole = np.ones(len(numbers), bool)
        for places in self._places:
            if places is not None:
                whole &= places[numbers] >= 0
        for some, with_slots in ((numbers[whole], bool(self._slots)), (numbers[~whole], False)):
            if not len(some):
                continue
            floats = self._floats(some, with_slots)
            if check:
                self._check_finite(some, floats)
            else:
                self._table.assign(self._ids[some], floats, with_slots=with_slots)

    def _floats(self, numbers: native.Int64Array, with_slots: bool) -> native.FloatArray:
        parts = [self._values.floats(numbers)]
        for slot, places in zip(self._slots, self._places, strict=True) if with_slots else ():
            if isinstance(slot, float):
                parts.append(np.full((len(numbers), 1), slot, np.float32))
            else:
                parts.append(slot.floats(numbers if places is None else places[numbers]))
        return np.concatenate(parts, 1)

    def _check_finite(self, numbers: native.Int64Array, floats: native.FloatArray) -> None:
        bad = ~np.isfinite(floats)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            what = "row" if column < self._table.dim else "slots"
            raise ValueError(
                f"{self._values.where}: the {what} of id {self._ids[numbers[row]]} hold "
                f"{floats[row, column]} as float32; leave the row out, or find its cause"
            )
