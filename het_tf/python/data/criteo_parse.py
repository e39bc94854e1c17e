"""Parses lines of Criteo's format, a chunk of whole lines at a time, in numpy: no Python loop over lines."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from het_tf.python.data.examples import Examples, Int64Array
from het_tf.python.data.hashing import GAMMA, into_buckets, mix, salt

NUMERIC_NAMES = tuple(f"I{number}" for number in range(1, 14))
CATEGORICAL_NAMES = tuple(f"C{number}" for number in range(1, 27))
FIELDS = 1 + len(NUMERIC_NAMES) + len(CATEGORICAL_NAMES)

_TAB, _NEWLINE, _RETURN, _MINUS = b"\t\n\r-"
_MAX_INTEGER, _MAX_HEX = 18, 15
_MISSING = np.uint64(1 << 63)
"""What a missing category hashes as: beyond every value of 15 hex digits."""

_DIGIT = np.full(256, 255, np.uint8)
_DIGIT[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGIT[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


class BadLine(ValueError):
    """A line that is not of Criteo's format.

    Attributes:
      line: its index in the chunk, from 0.
      reason: what is wrong with it.
    """

    def __init__(self, line: int, reason: str):
        super().__init__(line, reason)
        self.line = line
        self.reason = reason


def parse(
    chunk: bytes,
    keep: npt.NDArray[np.bool_] | None = None,
    skip: bool = False,
    buckets: int | None = None,
) -> tuple[Examples, int]:
    """Parses whole lines.

    Args:
      chunk: lines, each with its newline (the last one may lack it).
      keep: which lines to parse, bool `[lines]`; None for all. Others are not even looked at.
      skip: whether to leave out bad lines, rather than raise.
      buckets: None for 64-bit ids, or ids in `[0, buckets)`.

    Returns:
      The examples, and the number of bad lines that were left out.

    Raises:
      BadLine: for the first bad line, unless `skip`.
    """
    data = np.frombuffer(chunk if chunk.endswith(b"\n") else chunk + b"\n", np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    begins = np.concatenate([[0], ends[:-1] + 1])
    tabs = np.flatnonzero(data == _TAB)
    line_tabs = np.searchsorted(tabs, np.append(begins, len(data)))
    columns = np.diff(line_tabs) + 1

    wanted = np.ones(len(ends), bool) if keep is None else keep
    reasons: dict[int, str] = {}
    for line in np.flatnonzero(wanted & (columns != FIELDS)).tolist():
        empty = ends[line] - begins[line] <= (data[ends[line] - 1] == _RETURN)
        what = "is empty" if empty else f"has {columns[line]} fields, not {FIELDS}"
        reasons[line] = f"{what} (label, 13 integers, 26 categories, separated by tabs)"
    lines = np.flatnonzero(wanted & (columns == FIELDS))

    last = ends[lines] - (data[ends[lines] - 1] == _RETURN)
    inner = tabs[line_tabs[lines][:, None] + np.arange(FIELDS - 1)]
    begin = np.concatenate([begins[lines][:, None], inner + 1], axis=1)
    end = np.concatenate([inner, last[:, None]], axis=1)

    digit = np.full((len(data) + 15) // 8 * 8, 255, np.uint8)
    np.take(_DIGIT, data, out=digit[: len(data)], mode="clip")
    label, label_ok = _integers(data, digit, begin[:, :1], end[:, :1])
    integers, integers_ok = _integers(data, digit, begin[:, 1:14], end[:, 1:14])
    values, values_ok = _hexadecimals(digit, begin[:, 14:], end[:, 14:])
    label_ok &= (end[:, :1] > begin[:, :1]) & (label >= 0) & (label <= 1)
    ok = np.concatenate([label_ok, integers_ok, values_ok], axis=1)
    good = ok.all(axis=1)
    for row in np.flatnonzero(~good).tolist():
        column = int(np.argmin(ok[row]))
        reasons[int(lines[row])] = _reason(data[begin[row, column] : end[row, column]].tobytes(), column)

    if reasons and not skip:
        first = min(reasons)
        line_bytes = data[begins[first] : ends[first]].tobytes()
        raise BadLine(first, _not_utf8(line_bytes) or reasons[first])
    integers, values = integers[good], values[good]
    numeric = np.log1p(np.maximum(integers, 0).astype(np.float32))
    return Examples(_ids(values, buckets), {}, numeric, label[good, 0].astype(np.float32)), len(reasons)


def _ids(values: npt.NDArray[np.uint64], buckets: int | None) -> dict[str, Int64Array]:
    """Hashes values (uint64 `[N, 26]`) to ids by field; within a field no two values share a 64-bit id."""
    by_field = np.ascontiguousarray(values.T)
    return {
        name: into_buckets(mix(by_field[column] * GAMMA + _salts()[column]).view(np.int64), buckets)
        for column, name in enumerate(CATEGORICAL_NAMES)
    }


@functools.cache
def _salts() -> list[np.uint64]:
    return [salt("criteo", name) for name in CATEGORICAL_NAMES]


def _integers(
    data: npt.NDArray[np.uint8], digit: npt.NDArray[np.uint8], begin: Int64Array, end: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Parses decimal integers at `[begin, end)`; a missing one is 0. Returns values and which are valid."""
    length = end - begin
    negative = (length > 0) & (np.take(data, begin, mode="clip") == _MINUS)
    begin = begin + negative
    digits = length - negative
    valid = (digits <= _MAX_INTEGER) & ((digits > 0) | (length == 0))
    value = np.zeros(begin.shape, np.int64)
    for place in range(int(min(digits.max(initial=0), _MAX_INTEGER))):
        present = place < digits
        here = np.take(digit, begin + place, mode="clip")
        valid &= ~present | (here < 10)
        value = np.where(present, value * 10 + here, value)
    return np.where(negative, -value, value), valid


def _hexadecimals(
    digit: npt.NDArray[np.uint8], begin: Int64Array, end: Int64Array
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Parses hexadecimal numbers at `[begin, end)`; a missing one is `_MISSING`."""
    length = end - begin
    # Eight digits, Criteo's own width, are read as one unaligned word, the first digit in its lowest byte.
    words = np.lib.stride_tricks.as_strided(digit.view("<u8")[:1], (len(digit) - 7,), (1,), writeable=False)
    value = np.take(words, begin, mode="clip")
    valid = value & np.uint64(0xF0F0F0F0F0F0F0F0) == 0
    for shift, mask in ((4, 0x00FF00FF00FF00FF), (8, 0x0000FFFF0000FFFF), (16, 0x00000000FFFFFFFF)):
        high = value << np.uint64(shift)
        value >>= np.uint64(2 * shift)
        value |= high
        value &= np.uint64(mask)

    other = length != 8
    begin, length = begin[other], length[other]
    other_valid = length <= _MAX_HEX
    other_value = np.zeros(begin.shape, np.uint64)
    for place in range(int(min(length.max(initial=0), _MAX_HEX))):
        present = place < length
        here = np.take(digit, begin + place, mode="clip")
        other_valid &= ~present | (here < 16)
        other_value = np.where(present, other_value << np.uint64(4) | here, other_value)
    value[other] = np.where(length == 0, _MISSING, other_value)
    valid[other] = other_valid
    return value, valid


def _reason(text: bytes, column: int) -> str:
    """Says what is wrong with the text of a column."""
    shown = repr(text[:40].decode("utf-8", "backslashreplace"))
    if column == 0:
        return f"has label {shown}, not 0 or 1 (test files without labels cannot be used)"
    if column <= len(NUMERIC_NAMES):
        return f"has {shown} in {NUMERIC_NAMES[column - 1]}, not an integer of up to {_MAX_INTEGER} digits"
    name = CATEGORICAL_NAMES[column - 1 - len(NUMERIC_NAMES)]
    return f"has {shown} in {name}, not a hexadecimal number of up to {_MAX_HEX} digits"


def _not_utf8(line: bytes) -> str:
    """Returns the reason for a line that is not UTF-8, else ''."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte 0x{line[error.start]:02x} at position {error.start})"
    return ""
