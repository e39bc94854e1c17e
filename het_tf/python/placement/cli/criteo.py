"""Files of Criteo's format for `het-data`: copies lines unchanged."""

import gzip
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from het_tf.inputs.python.criteo import CATEGORICAL_NAMES, NUMERIC_NAMES, TENTHS, Part
from het_tf.python.hashing import GAMMA, mix, salt
from het_tf.python.placement.cli.samples import Samples, Writer
from het_tf.python.placement.placement import Int64Array

_FIRST = 1 + len(NUMERIC_NAMES)
_TABS = _FIRST + len(CATEGORICAL_NAMES) - 1
_HEX = re.compile(rb"[0-9a-fA-F]{0,15}\Z")
_MISSING = 1 << 63
_CHUNK = 1 << 14

Line = tuple[int, int, bytes]  # number of the file, number of the line in it from 0, the line without its end


class CriteoLines(Samples[list[Line]]):
    """`label, 13 integers, 26 hexadecimal categories`, a sample a line; gzip if a name ends in ".gz".

    Args:
      paths: The files.
      part: As in `het_tf.data.criteo`: all, train, valid or test, by the number of a line in its file.
    """

    suffix = ".tsv"

    def __init__(self, paths: Sequence[Path], part: Part = "all") -> None:
        super().__init__(paths)
        self._tenths = TENTHS[part]
        if not any(path.suffix == ".gz" for path in paths):
            share = (self._tenths[1] - self._tenths[0]) / 10
            self.total = int(share * sum(path.stat().st_size for path in paths))

    def fields(self) -> dict[str, str]:
        """I1 to I13 are numbers."""
        numbers = dict.fromkeys(NUMERIC_NAMES, "is a number, not an id")
        return {**numbers, **dict.fromkeys(CATEGORICAL_NAMES, "")}

    def blocks(self, size: int) -> Iterator[list[Line]]:
        """See Samples. ValueError: a line does not have 40 fields."""
        lines = itertools.chain.from_iterable(map(self._lines, range(len(self.paths))))
        while block := list(itertools.islice(lines, size)):
            yield block

    def _lines(self, number: int) -> Iterator[Line]:
        path = self.paths[number]
        opened: Any = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
        with opened as file:
            try:
                for at, (line, wanted) in enumerate(zip(file, self._wanted(), strict=False)):
                    if not wanted:
                        continue
                    line = line.rstrip(b"\r\n")
                    if line.count(b"\t") != _TABS:
                        raise self._bad(
                            (number, at, line), f"has {line.count(9) + 1} fields, not {_TABS + 1}"
                        )
                    yield number, at, line
            except (EOFError, gzip.BadGzipFile) as error:
                raise ValueError(f"{path} is damaged: {error}; unpack or download it again") from None

    def _wanted(self) -> Iterator[bool]:
        """Yields whether each line is in the part; does not end."""
        for begin in itertools.count(0, _CHUNK):
            lines = np.arange(begin, begin + _CHUNK, dtype=np.uint64)
            tenth = mix(lines * GAMMA + salt("criteo", "split")) % np.uint64(10)
            yield from ((self._tenths[0] <= tenth) & (tenth < self._tenths[1])).tolist()

    def _bad(self, line: Line, what: str) -> ValueError:
        return ValueError(f"{self.paths[line[0]]}, line {line[1] + 1}: {what}; mend it, or take it out")

    def columns(self, rows: list[Line], names: Sequence[str]) -> dict[str, Any]:
        """Ids as in het_tf.data.criteo, int64. ValueError: one is not a hexadecimal number."""
        split = [line[2].split(b"\t") for line in rows]
        found = {}
        for name in names:
            at = _FIRST + CATEGORICAL_NAMES.index(name)
            texts = [fields[at] for fields in split]
            for line, text in zip(rows, texts, strict=True):
                if not _HEX.match(text):
                    what = f"has {text[:40]!r} in {name}, not a hexadecimal number of up to 15 digits"
                    raise self._bad(line, what)
            values = np.array([int(text, 16) if text else _MISSING for text in texts], np.uint64)
            found[name] = mix(values * GAMMA + salt("criteo", name)).view(np.int64)
        return found

    def take(self, rows: list[Line], index: Int64Array) -> list[Line]:
        """See Samples."""
        return [rows[at] for at in index]

    def units(self, rows: list[Line]) -> int:
        """Bytes."""
        return sum(len(line[2]) + 1 for line in rows)

    def writer(self, path: Path) -> Writer[list[Line]]:
        """See Samples."""
        return _Lines(path)


class _Lines(Writer[list[Line]]):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file: BinaryIO = path.open("xb", buffering=1 << 20)

    def append(self, rows: list[Line]) -> None:
        self._file.write(b"".join(line[2] + b"\n" for line in rows))

    def finish(self) -> None:
        self._file.close()
