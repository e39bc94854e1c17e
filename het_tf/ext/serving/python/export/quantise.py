"""Storage of rows in an export: 32, 16 or 8 bits per element.

    float32    as trained, to the bit
    float16    11 bits of precision, up to 65504; half the bytes
    bfloat16   8 bits of precision, the range of float32; half the bytes
    int8       round(x / scale), with scale = max |x| / 127 of each row: a quarter, and 4 bytes a row

The graph gathers the stored rows and converts these few to float32.
"""

from typing import Any

import numpy as np

from het_tf.ext.serving.python.export import arrays
from het_tf.python.session.native import FloatArray, tf

_CHUNK = 1 << 16  # rows converted at a time


class RowArray:
    """Rows of equal dim: filled first, then read by ops.

    Args:
      row_dtype: Type of stored rows, as in `formats.Portable`.
      count: Number of rows.
      dim: Floats of a row.
    """

    def __init__(self, row_dtype: str, count: int, dim: int) -> None:
        self.row_dtype = row_dtype
        self.dim = dim
        self._values = arrays.zeros((count, dim), tf.as_dtype(row_dtype).as_numpy_dtype)
        self._scales = arrays.zeros((count,), np.float32) if row_dtype == "int8" else None
        self._stored: list[Any] = []

    def put(self, at: Any, values: FloatArray, table: str) -> None:
        """Stores float32 values [n, dim] at the positions `at` [n].

        Raises:
          ValueError: A value is too large for float16; the message names the table.
        """
        for start in range(0, len(values), _CHUNK):
            chunk, where = values[start : start + _CHUNK], at[start : start + _CHUNK]
            if self._scales is not None:
                stored, self._scales[where] = to_int8(chunk)
            else:
                with np.errstate(over="ignore"):
                    stored = chunk.astype(self._values.dtype)
                if self.row_dtype == "float16" and not np.isfinite(stored).all():
                    raise ValueError(
                        f"row_dtype is 'float16', and table {table!r} has values up to "
                        f"{np.abs(chunk).max():g}; float16 ends at 65504, use row_dtype='bfloat16'"
                    )
            self._values[where] = stored

    def freeze(self, name: str) -> None:
        """Makes variables of the rows."""
        self._stored = [arrays.variable(self._values, name)]
        if self._scales is not None:
            self._stored.append(arrays.variable(self._scales, f"{name}_scales"))
        del self._values, self._scales

    @property
    def variables(self) -> list[Any]:
        """The variables to save; after `freeze`."""
        return self._stored

    def gather(self, at: Any) -> Any:
        """Returns the rows at the positions `at` (int64), float32 `at.shape + [dim]`, as ops."""
        stored = tf.gather(self._stored[0], at)
        if self.row_dtype == "float32":
            return stored
        wide = tf.cast(stored, tf.float32)
        return wide if self.row_dtype != "int8" else wide * tf.gather(self._stored[1], at)[..., None]


def row_bytes(row_dtype: str, dim: int) -> int:
    """Bytes of one stored row."""
    return dim * int(tf.as_dtype(row_dtype).size) + (4 if row_dtype == "int8" else 0)


def to_int8(values: FloatArray) -> tuple[Any, FloatArray]:
    """Converts float32 [n, dim] to int8 [n, dim] and float32 scales [n]; zeros have the scale 0.

    Each element is off by at most half a scale.
    """
    scales = np.abs(values).max(1) / np.float32(127)
    divisors = np.where(scales > 0, scales, np.float32(1))
    return np.rint(values / divisors[:, None]).clip(-127, 127).astype(np.int8), scales
