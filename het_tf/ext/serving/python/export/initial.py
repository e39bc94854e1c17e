"""Rows of unwritten ids as TensorFlow ops: core/row/initializer.cc and stored_format.cc, bit for bit.

The core uses only integer arithmetic and IEEE's exactly rounded operations, in a fixed order.
TensorFlow's uint64 and float64 ops do the same, so the rows are equal to the last bit. But
Grappler adds and multiplies adjacent constants ahead of time, in a different order.
So the numbers of the formulas are read from a variable, not constants of the graph.
"""

from typing import Any

import numpy as np

from het_tf.ext.checkpoint.python.row_files import place_of
from het_tf.ext.serving.python.export.uint64 import mix64, shift, u64, xor
from het_tf.python.session.native import tf
from het_tf.python.table.config import TableConfig

GOLDEN = 0x9E3779B97F4A7C15

_CONSTANT, _UNIFORM = "constant", "uniform"

# Coefficients of the normal quantile and its logarithm, in the order of `_quantile`.
_UNIT = (0.5, 2.0**-32)
_CENTRE = (5.9109374720e01, 1.5929113202e02, 5.0434271938e01, 3.3871327179e00,
           6.7187563600e01, 7.8757757664e01, 1.7895169469e01, 1.0)  # fmt: skip
_NEAR = (1.7023821103e-01, 1.3067284816e00, 2.7568153900e00, 1.4234372777e00,
         1.2021132975e-01, 7.3700164250e-01, 1.0)  # fmt: skip
_FAR = (1.7337203997e-02, 4.2868294337e-01, 3.0812263860e00, 6.6579051150e00,
        1.2258202635e-02, 2.4197894225e-01, 1.0)  # fmt: skip
_LOG = (1.4142135623730951, 0.6931471805599453, *(1.0 / k for k in range(21, 0, -2)))
_EDGES = (0.425, 0.180625, 1.6, 5.0)


class Form:
    """The form of a table's unknown rows. Tables of one `kind`, `stored` alike, use the same ops.

    Attributes:
      stored: How the store would keep them: "float32", "bfloat16" or "int8".
      kind: "constant", "uniform" or "normal".
      stream: Stream of random bits, by seed and name of the table, without the number of a layer's own table.
      a, b: float32. A constant; the two bounds; mean and standard deviation.
    """

    def __init__(self, table: TableConfig) -> None:
        spec = {"a": 0.0, "b": 0.0, **table.spec["initializer"]}
        with np.errstate(over="ignore"):
            self.stream = mix64(mix64(u64(int(table.seed) + GOLDEN)) ^ u64(place_of(table.base)["id"]))
        self.a, self.b = np.float32(spec["a"]), np.float32(spec["b"])
        self.stored = table.stored
        self.kind = spec["name"]
        if self.kind == "zeros" or (self.kind == _UNIFORM and self.a == self.b):
            self.kind = _CONSTANT


class InitialRows:
    """Makes the initial rows of a group of tables of one kind and dim.

    Args:
      forms: One per table, of one kind, not "constant".
      dim: Floats of a row.
    """

    def __init__(self, forms: list[Form], dim: int) -> None:
        self.kind, self.stored = forms[0].kind, forms[0].stored
        self.dim = dim
        self._streams = np.array([form.stream for form in forms], np.uint64)
        if self.kind == _UNIFORM:
            numbers = [
                [form.a, np.float64(form.b - form.a) * 2.0**-24, np.nextafter(form.b, form.a)]
                for form in forms
            ]
        else:
            numbers = [[form.a, form.b] for form in forms]
        with tf.device("CPU:0"):
            self._numbers = tf.Variable(np.array(numbers, np.float64), trainable=False, name="initial")
            self._formula = None
            if self.kind != _UNIFORM:
                values = np.array([*_UNIT, *_CENTRE, *_NEAR, *_FAR, *_LOG, *_EDGES], np.float64)
                self._formula = tf.Variable(values, trainable=False, name="quantile")

    @property
    def variables(self) -> list[Any]:
        """The variables to save."""
        return [self._numbers] if self._formula is None else [self._numbers, self._formula]

    def make(self, ids: Any, tables: Any) -> Any:
        """Returns the rows, as ops.

        Args:
          ids: int64 [n].
          tables: The table of each id, int32 [n]; None: there is only one.

        Returns:
          float32 [n, dim].
        """
        bits = tf.bitcast(ids, tf.uint64)
        if tables is None:
            stream = self._streams[0]
            numbers = tf.unstack(self._numbers[0], num=self._numbers.shape[1])
        else:
            stream = tf.gather(tf.constant(self._streams), tables)
            numbers = tf.split(tf.gather(self._numbers, tables), self._numbers.shape[1], axis=1)
        half = self._halves(mix64(xor(bits, stream)))
        if self.kind == _UNIFORM:
            low, step, last = numbers
            drawn = tf.cast(tf.bitcast(shift(half, 8), tf.int64), tf.float64)
            rows = tf.minimum(tf.cast(low + drawn * step, tf.float32), tf.cast(last, tf.float32))
        else:
            mean, deviation = numbers
            rows = tf.cast(mean + deviation * self._normal(half), tf.float32)
        return rounded(rows, self.stored)

    def _halves(self, state: Any) -> Any:
        """Returns 32 random bits per element, as uint64 [n, dim]: one splitmix64 serves two elements."""
        pairs = (self.dim + 1) // 2
        offsets = np.array([u64((pair + 1) * GOLDEN) for pair in range(pairs)], np.uint64)
        both = mix64(state[:, None] + offsets)
        upper, lower = shift(both, 32), tf.bitwise.bitwise_and(both, u64(0xFFFFFFFF))
        return tf.reshape(tf.stack([upper, lower], -1), [-1, 2 * pairs])[:, : self.dim]

    def _normal(self, half: Any) -> Any:
        """Returns standard normal numbers, by the quantile of numbers in (0, 1)."""
        values = iter(tf.unstack(tf.convert_to_tensor(self._formula)))

        def take(count: int) -> list[Any]:
            return [next(values) for _ in range(count)]

        centred, scale = take(len(_UNIT))
        numbers = [take(len(part)) for part in (_CENTRE, _NEAR, _FAR, _LOG, _EDGES)]
        unit = (tf.cast(tf.bitcast(half, tf.int64), tf.float64) + centred) * scale
        return _quantile(unit, centred, *numbers)


def rounded(rows: Any, stored: str) -> Any:
    """Returns rows, float32 [n, dim], to the nearest numbers of a format of stored rows."""
    if stored == "bfloat16":
        return tf.cast(tf.cast(rows, tf.bfloat16), tf.float32)
    if stored != "int8":
        return rows
    largest = tf.reduce_max(tf.bitcast(tf.abs(rows), tf.int32), axis=1, keepdims=True)
    fraction = tf.bitwise.bitwise_and(largest, 0x7FFFFF)
    exponent = tf.bitwise.right_shift(largest, 23) + tf.cast(fraction > 0x7E0000, tf.int32)
    scale = tf.maximum(exponent - 6, 1)
    unit, inverse = (
        tf.bitcast(tf.bitwise.left_shift(power, 23), tf.float32) for power in (scale, 254 - scale)
    )
    return tf.round(rows * inverse) * unit


def _horner(coefficients: list[Any], x: Any) -> Any:
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _quantile(p: Any, half: Any, centre: Any, near: Any, far: Any, log: Any, edges: Any) -> Any:
    """Returns the normal quantile of p in (0, 1): Wichura's PPND7, as in core/row/initializer.cc."""
    edge, middle, offset, limit = edges
    q = p - half
    r = middle - q * q
    inner = q * _horner(centre[:4], r) / _horner(centre[4:], r)
    r = tf.sqrt(-_log(tf.where(q < 0, p, 1 - p), log))
    r_near, r_far = r - offset, r - limit
    outer = tf.where(
        r <= limit,
        _horner(near[:4], r_near) / _horner(near[4:], r_near),
        _horner(far[:4], r_far) / _horner(far[4:], r_far),
    )
    return tf.where(tf.abs(q) <= edge, inner, tf.where(q < 0, -outer, outer))


def _log(x: Any, numbers: list[Any]) -> Any:
    """Returns the logarithm of normal x > 0 by the series of atanh, as in core/row/initializer.cc."""
    root_two, log_two, *series = numbers
    bits = tf.bitcast(x, tf.int64)
    exponent = tf.bitwise.right_shift(bits, np.int64(52)) - 1023
    mantissa = tf.bitwise.bitwise_and(bits, np.int64(0x000FFFFFFFFFFFFF))
    m = tf.bitcast(tf.bitwise.bitwise_or(mantissa, np.int64(0x3FF0000000000000)), tf.float64)
    above = m > root_two
    m = tf.where(above, m * 0.5, m)
    exponent = tf.where(above, exponent + 1, exponent)
    t = (m - 1) / (m + 1)
    return tf.cast(exponent, tf.float64) * log_two + 2 * t * _horner(series, t * t)
