"""Files of Criteo's format for `het data`: copies lines unchanged."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from het_tf.ext.placement.python.cli.samples import Samples, Writer
from het_tf.ext.placement.python.placement import Int64Array
from het_tf.inputs.python.criteo import CATEGORICAL_NAMES, NUMERIC_NAMES, TENTHS, Part, parse, read_lines


class CriteoLines(Samples[list[bytes]]):
    """`label, 13 integers, 26 hexadecimal categories`, a sample a line; gzip if a name ends in ".gz".

    Args:
      paths: The files.
      part: As in `het_tf.data.criteo`: all, train, valid or test, by the number of a line in its file.
    """

    suffix = ".tsv"

    def __init__(self, paths: Sequence[Path], part: Part = "all") -> None:
        super().__init__(paths)
        self._part = part
        if not any(path.suffix == ".gz" for path in paths):
            first, end = TENTHS[part]
            share = (end - first) / 10
            self.total = int(share * sum(path.stat().st_size for path in paths))

    def fields(self) -> dict[str, str]:
        """I1 to I13 are numbers."""
        numbers = dict.fromkeys(NUMERIC_NAMES, "is a number, not an id")
        return {**numbers, **dict.fromkeys(CATEGORICAL_NAMES, "")}

    def blocks(self, size: int) -> Iterator[list[bytes]]:
        """See Samples. ValueError: a line cannot be parsed."""
        blocks = itertools.chain.from_iterable(read_lines(path, self._part) for path in self.paths)
        lines = itertools.chain.from_iterable(lines for _, lines in blocks)
        while block := list(itertools.islice(lines, size)):
            yield block

    def columns(self, rows: list[bytes], names: Sequence[str]) -> dict[str, Any]:
        """Ids as in het_tf.data.criteo, int64."""
        found = dict(zip(CATEGORICAL_NAMES, parse(rows)[2], strict=True))
        return {name: found[name] for name in names}

    def take(self, rows: list[bytes], index: Int64Array) -> list[bytes]:
        """See Samples."""
        return [rows[at] for at in index]

    def units(self, rows: list[bytes]) -> int:
        """Bytes."""
        return sum(len(line) + 1 for line in rows)

    def writer(self, path: Path) -> Writer[list[bytes]]:
        """See Samples."""
        return _Lines(path)


class _Lines(Writer[list[bytes]]):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file: BinaryIO = path.open("xb", buffering=1 << 20)

    def append(self, rows: list[bytes]) -> None:
        self._file.write(b"".join(line + b"\n" for line in rows))

    def finish(self) -> None:
        self._file.close()
