"""Rows of one table in a file: ids, and floats that are read in chunks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import ids as ids_lib
from het_tf.python.session import native

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """Rows in the order of a file.

    Attributes:
      where: File and array, for messages.
      ids: Integers or strings [N] of the file; None: the number of a row is its id.
      parts: Arrays of floats [n, width], N rows together; in memory or mapped.
    """

    where: str
    ids: Array | None
    parts: list[Array]

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(len(part) for part in self.parts)

    @property
    def width(self) -> int:
        """Floats of a row."""
        return int(self.parts[0].shape[1]) if self.parts else 0

    def moved(self, row_ids: Callable[[Array], Array]) -> "Rows":
        """Returns the same rows with their ids mapped by `row_ids`."""
        ids = np.arange(self.count, dtype=np.int64) if self.ids is None else self.ids
        return replace(self, ids=np.asarray(row_ids(ids)))

    def floats(self, numbers: native.Int64Array) -> native.FloatArray:
        """Returns rows by their numbers, float32 [n, width]."""
        out = np.empty((len(numbers), self.width), np.float32)
        begin = 0
        for part in self.parts:
            mine = (numbers >= begin) & (numbers < begin + len(part))
            out[mine] = part[numbers[mine] - begin]
            begin += len(part)
        return out


def checked_parts(where: str, arrays: list[Array]) -> list[Array]:
    """Returns arrays of floats as parts of rows; those of one dimension are one float wide.

    Raises:
      ValueError: They are not floats, have more than two dimensions, or different widths.
    """
    parts = []
    for array in arrays:
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise ValueError(f"{where} is {array.dtype}, but rows are floats; name another array by rows=")
        if array.ndim not in (1, 2):
            raise ValueError(
                f"{where} has shape {list(array.shape)}, but rows [N, dim]; reshape it, or name another one"
            )
        parts.append(array.reshape(len(array), -1) if array.ndim == 1 else array)
    if len({part.shape[1] for part in parts}) > 1:
        widths = ", ".join(str(part.shape[1]) for part in parts)
        raise ValueError(f"{where} has parts of widths {widths}; they are of different tables")
    return parts


def int64_ids(rows: Rows) -> native.Int64Array:
    """Returns the ids of rows: integers, hashes of strings, or the numbers of the rows.

    Raises:
      ValueError: They have another type, are out of range, not one per row, or one occurs twice.
    """
    if rows.ids is None:
        return np.arange(rows.count, dtype=np.int64)
    given, kind = rows.ids, rows.ids.dtype.kind
    if given.shape != (rows.count,):
        raise ValueError(
            f"{rows.where}: there are ids of shape {list(given.shape)} and {rows.count} rows; give one a row"
        )
    if kind in "USO" and all(isinstance(one, (str, bytes)) for one in given.flat):
        ids = ids_lib.array_of(given.tolist(), rows.where)
    elif kind in "iu":
        if kind == "u" and given.size and int(given.max()) >= 2**63:
            raise ValueError(
                f"{rows.where}: id {given.max()} is above 2**63 - 1; save them as "
                "int64, for example ids.view('int64')"
            )
        ids = np.asarray(given, np.int64)
    else:
        raise ValueError(f"{rows.where}: ids are {given.dtype}, not integers or strings; save them as int64")
    unique, counts = np.unique(ids, return_counts=True)
    if len(unique) < len(ids):
        twice = ", ".join(str(one) for one in unique[counts > 1][:3])
        raise ValueError(
            f"{rows.where}: {len(ids) - len(unique)} ids occur again, the first {twice}; keep one row of each"
        )
    return ids
