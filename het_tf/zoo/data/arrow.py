"""Columns of users' tables as arrays: integers, strings, lists of them, numbers and labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.tables import is_list, is_number, is_text, pyarrow
from het_tf.zoo.data.examples import PADDING, Field, FloatArray, IdArray, Int64Array

_NAN = np.iinfo(np.int64).min


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

    def floats(self, name: str, remedy: str = "write it as a missing one") -> FloatArray:
        """Returns numbers as float32 `[N]`, NaN for a missing one; ValueError if one is infinite."""
        with np.errstate(over="ignore"):
            values = np.asarray(self.numbers(name).to_numpy(zero_copy_only=False), np.float32)
        self._refuse(name, np.isinf(values), f"a number is infinite as float32; correct it, or {remedy}")
        return values

    def label(self, name: str, thresholds: Mapping[str, float | None]) -> FloatArray:
        """Returns a label, float32 `[N]`: 1 from its threshold on. ValueError: it is not in [0, 1]."""
        values = self.floats(name, "leave the row out")
        self._refuse(name, np.isnan(values), "a label is missing; leave the row out")
        bad = (values < 0) | (values > 1)
        if name not in thresholds and bad.any():
            high = f"{values.max():g}"
            raise self.error(
                name,
                f"a label is {values[bad.argmax()]:g}, but models predict the probability of 1; describe it "
                f"by thresholds={{{name!r}: {high}}}, which makes {high} and more 1, others 0; or by "
                f"thresholds={{{name!r}: None}} for a regression",
                int(bad.argmax()),
            )
        bound = thresholds.get(name)
        return values if bound is None else (values >= np.float32(bound)).astype(np.float32)

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


def exact(kind: Any) -> float:
    """The bound below which floats of a type represent all whole numbers."""
    return 2.0 ** (24 if kind in (pyarrow().float16(), pyarrow().float32()) else 53)
