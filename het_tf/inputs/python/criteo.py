r"""Reads Criteo's format of click logs: `label \t 13 integers \t 26 hexadecimal categories`, a row a line."""

import gzip
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from het_tf.python.files import open_file
from het_tf.python.hashing import GAMMA, mix, salt

NUMERIC_NAMES = tuple(f"I{number}" for number in range(1, 14))
CATEGORICAL_NAMES = tuple(f"C{number}" for number in range(1, 27))
Part = Literal["all", "train", "valid", "test"]
# Tenths of the lines in each part: the first one, and the end.
TENTHS = {"all": (0, 10), "train": (0, 8), "valid": (8, 9), "test": (9, 10)}

_NAMES = ("label", *NUMERIC_NAMES, *CATEGORICAL_NAMES)
_FIELDS = (
    (b"[01]", "0 or 1"),
    *[(b"(?:-?[0-9]{1,18})?", "an integer of up to 18 digits")] * len(NUMERIC_NAMES),
    *[(b"[0-9a-fA-F]{0,15}", "a hexadecimal number of up to 15 digits")] * len(CATEGORICAL_NAMES),
)
_LINE = re.compile(b"\t".join(pattern for pattern, _ in _FIELDS))
_LONGEST = 1 << 16  # a longer line is read in pieces, and the first one is refused
_LINES = 4096
_MISSING = np.uint64(1 << 63)
_SALTS = np.array([salt("criteo", name) for name in CATEGORICAL_NAMES])[:, None]
_DIGITS = np.zeros(256, np.uint8)
_DIGITS[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]

Floats = npt.NDArray[np.float32]
Lines = tuple[npt.NDArray[np.int64], list[bytes]]


def read_lines(path: Path, part: Part = "all", shard: int = 0, shards: int = 1) -> Iterator[Lines]:
    """Yields the lines of a part, without their ends, and their numbers in the file from 0, in blocks.

    Parts are drawn by a hash of a line's number, shards by the number modulo `shards`. A name that ends in
    ".gz" is a gzip file's.

    Raises:
      ValueError: A line cannot be parsed, or the file is damaged.
      OSError: The file cannot be read.
    """
    first, end = TENTHS[part]
    with open_file(path) as plain:
        file: Any = gzip.open(plain) if path.suffix == ".gz" else plain
        pieces = iter(lambda: file.readline(_LONGEST), b"")
        for begin in itertools.count(0, _LINES):
            try:
                lines = [line.rstrip(b"\r\n") for line in itertools.islice(pieces, _LINES)]
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{path} is damaged: {error}; unpack or download it again") from None
            if not lines:
                return
            numbers = np.arange(begin, begin + len(lines))
            tenths = mix(numbers.view(np.uint64) * GAMMA + salt("criteo", "split")) % np.uint64(10)
            wanted = (first <= tenths) & (tenths < end) & (numbers % shards == shard)
            found = list(itertools.compress(lines, wanted))
            if not all(map(_LINE.fullmatch, found)):
                at, line = next(pair for pair in zip(numbers[wanted], found, strict=True) if _fault(pair[1]))
                raise ValueError(f"{path}, line {at + 1}: {_fault(line)}; correct the line, or remove it")
            yield numbers[wanted], found


def _fault(line: bytes) -> str:
    fields = line.split(b"\t")
    if len(fields) != len(_FIELDS):
        return f"has {len(fields)} fields, not {len(_FIELDS)}"
    for name, field, (pattern, what) in zip(_NAMES, fields, _FIELDS, strict=True):
        if not re.fullmatch(pattern, field):
            return f"has {field.decode(errors='replace')[:40]!r} in {name}, not {what}"
    return ""


def parse(lines: Sequence[bytes]) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Returns labels, float32 `[N]`, numbers, float32 `[N, 13]`, and ids, int64 `[26, N]`, of checked lines.

    A number x becomes log(x + 1); a negative or missing number counts as 0. A category becomes a 64-bit hash
    of field and value, a bijection within a field; a missing one is a value of its own.
    """
    text = np.frombuffer(b"\n".join([*lines, b""]), np.uint8)
    ends = np.flatnonzero((text == ord("\t")) | (text == ord("\n"))) if lines else np.zeros(0, np.int64)
    starts = np.concatenate([[0], ends + 1])[:-1]
    starts, lengths = (array.reshape(-1, len(_FIELDS)).T for array in (starts, ends - starts))
    digits = np.append(_DIGITS[text], np.zeros(_LONGEST, np.uint8))

    def values(fields: slice, base: int) -> npt.NDArray[np.int64]:
        at, length = starts[fields].copy(), lengths[fields].copy()
        result = np.zeros(at.shape, np.int64)
        for place in range(int(length.max(initial=0))):
            result = np.where(place < length, result * base + digits[at + place], result)
        return result

    integers = slice(1, 1 + len(NUMERIC_NAMES))
    categories = slice(integers.stop, None)
    numbers = np.where(text[starts[integers]] == ord("-"), 0, values(integers, 10))
    hashes = np.where(lengths[categories] == 0, _MISSING, values(categories, 16).view(np.uint64)) * GAMMA
    ids = mix(hashes + _SALTS).view(np.int64)
    return digits[starts[0]].astype(np.float32), np.log1p(numbers.T).astype(np.float32), ids
