"""Users' tables (a DataFrame, CSV or Parquet): describes their columns, and streams their rows.

    about = describe("train.csv", label="clicked")      one pass: types, ranges, missing values
    train = tabular("train.csv", about)                 a stream, like the other data sets

pyarrow reads in its own threads, a row group or a megabyte at a time: a file may be larger than memory.
Distinct values are not counted, since tables have no size: any string, and any int64 except -2^63, is an id.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from het_tf.inputs.python.tables import (
    Table,
    is_index,
    is_list,
    is_number,
    is_text,
    open_table,
    pyarrow,
    value_type,
)
from het_tf.python.checks import whole
from het_tf.zoo.data.arrow import Batch, exact
from het_tf.zoo.data.checks import check_shard, check_thresholds
from het_tf.zoo.data.examples import Column, Description, Examples, Field
from het_tf.zoo.data.streams import Stream

log = logging.getLogger("het_tf")

_WHY_LEFT_OUT = {
    "index": "is an index of pandas (write files by index=False, or give it another name)",
    "left out": "has a type of neither ids nor numbers (convert it, or name it in leave_out=[...])",
}


def describe(
    source: Any,
    label: str | Sequence[str] = "clicked",
    *,
    ids: Sequence[str] = (),
    strings: Sequence[str] = (),
    numeric: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    lengths: Mapping[str, int] | None = None,
    thresholds: Mapping[str, float | None] | None = None,
) -> Description:
    r"""Describes and checks a table in one pass over all of it.

        about = het_tf.data.describe("train.parquet", label="clicked")
        print(*about.columns, sep="\n")
        model = het_tf.models.DeepFM(about)

    Integers, booleans, strings and categories are fields of ids without a size; lists of integers or strings
    are sequences, as long as the longest list, or as `lengths` says. Floats and decimals are numeric columns.
    Dates, times and all other types are listed in `columns`, but left out. A column of floats that has only
    whole numbers, some missing, is taken for ids: pandas stores integers with holes so. A column without a
    name, or one that pandas names so itself (`Unnamed: 0`), is an index of pandas, and left out. Name columns
    to override this.

    Args:
      source: The path of a CSV file in UTF-8 (`*.csv`, `*.tsv`, also `.gz`), of a Parquet file, or of a
        directory of these, a pattern of paths ("day-*.csv"), or a list of all these; a pandas or other
        DataFrame, a `pyarrow.Table`, or a dict of columns. A column has the widest type of all files.
      label: The column of the label, booleans or numbers from 0 to 1; or several.
      ids: Columns of floats that are ids.
      strings: Columns of strings or integers whose values are ids as text ("007"); in CSV any columns.
      numeric: Columns of integers that are numbers.
      leave_out: Columns that models must not see.
      lengths: The most ids of a list, by column: `{"genre": 5}`. Of longer lists the last ids stay; the
        findings count them. None: the longest list of each column.
      thresholds: For labels of other numbers, such as ratings: the least one that counts as 1, {"rating": 4};
        None keeps the numbers, for a regression.

    Returns:
      The description; its `columns` list the findings.

    Raises:
      ImportError: pyarrow is not installed.
      FileNotFoundError: The file does not exist.
      ValueError: A file is damaged, truncated, empty or not UTF-8, lacks a column, or has an infinite number
        or a value of another type than its column; files have other columns than the first; a label without
        a threshold is not from 0 to 1. The message names file and column, and the line of a CSV, else the
        row.
    """
    labels, thresholds = (label,) if isinstance(label, str) else tuple(label), thresholds or {}
    check_thresholds(thresholds, labels)
    table = open_table(source, strings, numeric)
    lengths = {} if lengths is None else dict(lengths)
    table.require([*labels, *ids, *strings, *numeric, *leave_out, *lengths])
    for name, length in lengths.items():
        if not is_list(table.types[name]):
            raise ValueError(
                f"lengths has column {name!r}, which is {table.types[name]}; give columns of lists"
            )
        whole(f"lengths[{name!r}]", length, what="a number of ids")
    uses = {name: _use(name, kind) for name, kind in table.types.items()}
    said = dict.fromkeys([*ids, *strings], "ids") | dict.fromkeys(numeric, "numeric")
    said |= dict.fromkeys(leave_out, "left out") | dict.fromkeys(labels, "label")
    uses |= said
    found = [
        _Found(name, kind, uses[name], name in strings, name in said, lengths.get(name))
        for name, kind in table.types.items()
    ]
    for one in found:
        if not one.said and one.use in _WHY_LEFT_OUT:
            log.warning("%s, column %r %s, and is left out", table.name, one.name, _WHY_LEFT_OUT[one.use])
    rows = 0
    for part in table.batches([one.name for one in found if one.is_read]):
        batch = Batch(*part)
        rows += len(batch)
        for one in found:
            if one.is_read:
                one.see(batch, thresholds)
    _some_rows(table, rows)
    for one in found:
        one.decide(table.name)
    fields = [one.field() for one in found if one.use == "ids"]
    return Description(
        table.name,
        tuple(field for field in fields if field.length is None),
        sequences=tuple(field for field in fields if field.length is not None),
        numeric=tuple(one.name for one in found if one.use == "numeric"),
        labels=labels,
        columns=tuple(one.column() for one in found),
        thresholds=thresholds,
    )


def tabular(source: Any, description: Description) -> TabularStream:
    """Opens a table by its description, and reads its rows anew in each pass.

    A missing number is NaN, which models replace by the mean; a missing id is -1, or "" among strings,
    and has a row like any other. Of a list that is longer than its field the last ids stay; the first such
    list is a line of the log, and `stream.cut` counts them.

    Args:
      source: As in `describe`.
      description: Of this table, or of one with these columns; its labels are names of columns.

    Raises:
      ImportError: pyarrow is not installed.
      FileNotFoundError: The file does not exist.
      ValueError: As in `describe`; while reading, also for an id that is not a whole number and a missing
        label.
    """
    texts = [field.name for field in description.fields if field.dtype == "string" and field.length is None]
    table = open_table(source, texts, description.numeric)
    table.require(_names(description))
    return TabularStream(_some_rows(table, table.rows), description)


def _some_rows(table: Table, rows: int) -> Table:
    if not rows:
        raise ValueError(f"{table.name} has no rows; give a table with some")
    return table


def _names(description: Description) -> list[str]:
    return [*(field.name for field in description.fields), *description.numeric, *description.labels]


def _use(name: str, kind: Any) -> str:
    """Returns the default use of a column by its name and type."""
    if is_index(name):
        return "index"
    types, value = pyarrow().types, value_type(kind)
    if is_text(value) or types.is_integer(value) or types.is_boolean(value):
        return "ids"
    if types.is_temporal(value):
        return "date"
    return "numeric" if is_number(value) and not is_list(kind) else "left out"


@dataclasses.dataclass
class _Found:
    """The findings on a column while `describe` reads it."""

    name: str
    type: Any
    use: str
    as_text: bool
    said: bool
    most: int | None = None
    missing: int = 0
    cut: int = 0
    longest: int = 0
    whole: bool = True
    low: float | None = None
    high: float | None = None

    @property
    def is_read(self) -> bool:
        """Whether `describe` reads the column: also one that is empty as far as its type was looked for."""
        unknown = pyarrow().types.is_null(self.type) and not self.said
        return self.use in ("ids", "numeric", "label") or unknown

    def field(self) -> Field:
        """Returns the field of a column of ids."""
        text = self.as_text or is_text(value_type(self.type))
        length = (self.most or max(1, self.longest)) if is_list(self.type) else None
        return Field(self.name, None, length=length, dtype="string" if text else "int64")

    def column(self) -> Column:
        """Returns the findings."""
        missing = self.missing if self.is_read else None
        return Column(self.name, str(self.type), self.use, missing, self.low, self.high, self.cut)

    def see(self, batch: Batch, thresholds: Mapping[str, float | None]) -> None:
        """Adds a batch. ValueError: a value does not fit the column's use."""
        compute, column = pyarrow().compute, batch.column(self.name)
        if self.use == "label":
            batch.label(self.name, thresholds)
        if self.use == "numeric":
            batch.floats(self.name)
        if self.use == "ids":
            if is_list(self.type):
                lengths = batch.lengths(self.name)
                self.longest = max(self.longest, int(lengths.max(initial=0)))
                self.cut += 0 if self.most is None else int((lengths > self.most).sum())
            batch.ids(self.field())
        if not is_number(value_type(self.type)) or is_list(self.type):
            self.missing += column.null_count
            if is_text(column.type):  # a CSV has no null
                self.missing += compute.sum(compute.equal(column, "")).as_py() or 0
            return
        values = batch.numbers(self.name)
        self.missing += values.null_count
        bounds = compute.min_max(values).as_py()
        if bounds["min"] is not None:
            self.low = min(bounds["min"], bounds["min"] if self.low is None else self.low)
            self.high = max(bounds["max"], bounds["max"] if self.high is None else self.high)
        self.whole = (
            self.whole and compute.all(compute.equal(compute.floor(values), values)).as_py() is not False
        )

    def decide(self, where: str) -> None:
        """Takes floats for ids if pandas has made them from integers. ValueError: they may have been ids."""
        if self.said or self.use != "numeric" or self.low is None or not self.whole:
            return
        if max(-self.low, self.high or 0) >= exact(self.type):
            raise ValueError(
                f"{where}, column {self.name!r}: whole numbers up to {self.high:.0f}, which {self.type} "
                "cannot tell apart; if they are ids, write them as integers, or read a CSV by "
                f"strings=[{self.name!r}], else give numeric=[{self.name!r}]"
            )
        if self.missing:
            self.use = "ids"
            log.warning(
                "%s, column %r: whole numbers as %s, %d missing: taken for ids, as pandas writes integers "
                "with holes; give ids=[%r] or numeric=[%r]",
                where, self.name, self.type, self.missing, self.name, self.name,
            )  # fmt: skip


@dataclasses.dataclass(eq=False)
class TabularStream(Stream):
    """Rows of a table, read anew in each pass; made by `tabular`.

    Attributes:
      table: The table.
      description: Description of its columns.
      cut: Number of lists of each sequence that were cut in the pass that began last.
    """

    table: Table
    description: Description
    shard_index: int = 0
    shard_count: int = 1
    cut: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:  # type: ignore[override]
        """Number of rows; for CSV the first call needs a pass over the lines."""
        return self.table.rows // self.shard_count

    def shard(self, index: int, count: int) -> TabularStream:
        """Returns the `index`-th of `count` disjoint equal parts (the last `rows % count` rows drop out).

        Raises:
          ValueError: if `index` is not in `[0, count)`.
        """
        check_shard(index, count)
        index, count = self.shard_index + self.shard_count * index, self.shard_count * count
        return dataclasses.replace(self, shard_index=index, shard_count=count)

    def blocks(self) -> Iterator[Examples]:
        """Yields the rows in the order of the files, in blocks of at most 65,536."""
        seen = 0
        self.cut = cut = dict.fromkeys((field.name for field in self.description.sequences), 0)
        for part in self.table.batches(_names(self.description)):
            batch = Batch(*part)
            stop = max(0, self.rows * self.shard_count - seen)
            begin = (self.shard_index - seen) % self.shard_count
            for field in self.description.sequences:
                self._count(batch, field, cut)
            yield self._examples(batch).take(slice(begin, min(stop, len(batch)), self.shard_count))
            seen += len(batch)

    def _count(self, batch: Batch, field: Field, cut: dict[str, int]) -> None:
        """Counts the lists of a batch that are cut; logs the first one."""
        if not is_list(self.table.types[field.name]):
            return  # refused when its ids are read
        longer = batch.lengths(field.name) > (field.length or 0)
        if longer.any() and not cut[field.name]:
            text = f"a list has more than {field.length} ids; of such lists the last ids are read"
            log.warning("%s", batch.error(field.name, text, int(longer.argmax())))
        cut[field.name] += int(longer.sum())

    def like(self) -> Examples:
        """Returns examples of no rows, with this stream's columns."""
        arrays = {
            field.name: np.zeros(
                (0,) if field.length is None else (0, field.length),
                np.int64 if field.dtype == "int64" else object,
            )
            for field in self.description.fields
        }
        labels, numbers = len(self.description.labels), len(self.description.numeric)
        label = np.zeros((0, labels) if labels > 1 else 0, np.float32)
        return self._made(arrays, np.zeros((0, numbers), np.float32), label)

    def _examples(self, batch: Batch) -> Examples:
        ids = {field.name: batch.ids(field) for field in self.description.fields}
        numeric = np.zeros((len(batch), len(self.description.numeric)), np.float32)
        for number, name in enumerate(self.description.numeric):
            numeric[:, number] = batch.floats(name)
        labels = [batch.label(name, self.description.thresholds) for name in self.description.labels]
        return self._made(ids, numeric, labels[0] if len(labels) == 1 else np.stack(labels, axis=1))

    def _made(self, ids: dict[str, Any], numeric: Any, label: Any) -> Examples:
        names = {field.name for field in self.description.sequences}
        single = {name: column for name, column in ids.items() if name not in names}
        return Examples(single, {name: ids[name] for name in names}, numeric, label)
