"""Reads Criteo's click logs (Kaggle's train.txt) as a stream; the file may be larger than memory."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import gzip
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from het_tf.python.data.criteo_parse import CATEGORICAL_NAMES, NUMERIC_NAMES, BadLine, parse
from het_tf.python.data.examples import Description, Examples, Field, Splits, check_shard
from het_tf.python.data.hashing import GAMMA, mix, salt
from het_tf.python.data.streams import Stream

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger("het_tf")

CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 16 << 20
Part = Literal["all", "train", "valid", "test"]
_TENTHS = {"all": (0, 10), "train": (0, 8), "valid": (8, 9), "test": (9, 10)}


def criteo(
    path: str | os.PathLike[str],
    part: Part = "all",
    errors: Literal["raise", "skip"] = "raise",
    buckets: int | None = None,
    workers: int | None = None,
) -> CriteoStream:
    r"""Opens a file of Criteo's format: `label \t 13 integers \t 26 hexadecimal categories`, one row a line.

    * A number x becomes log(x + 1); a negative one counts as 0 (as in DLRM; only I2 has them, -1 to -3), and
      so does a missing one.
    * A category becomes a 64-bit hash of (field, value), which is a bijection within a field. A missing
      category is a value of its own. An id's field is in its hash, so all fields can share one table.
    * Parts are drawn by a hash of the line number: 80 % train, 10 % valid, 10 % test, the same each time.

    Args:
      path: the file; gzip if its name ends in ".gz".
      part: "all", "train", "valid" or "test".
      errors: what to do with a bad line (not 40 fields, not UTF-8, a field that is no number): "raise" a
        ValueError, or "skip" it and count it in `stream.skipped`; a pass logs how many it skipped.
      buckets: None for 64-bit ids, or ids in `[0, buckets)` in each field.
      workers: threads that parse; None for the number of processors, at most 8.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is empty, or an argument has a value that is not listed. While reading: for a
        bad line, naming the file, the line number (from 1), what is wrong and the remedy.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        kind = "is a directory" if file.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"{file} {kind}; give the path of Criteo's train.txt (or a .gz of it), for example "
            "--data criteo:/data/criteo/train.txt. The data set is your own download, under Criteo's terms."
        )
    if file.stat().st_size == 0:
        raise ValueError(f"{file} is empty; download or unpack it again.")
    if part not in _TENTHS:
        raise ValueError(f"part is {part!r}; give one of {', '.join(map(repr, _TENTHS))}.")
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors is {errors!r}; give 'raise' or 'skip'.")
    if buckets is not None and buckets < 1:
        raise ValueError(f"buckets is {buckets}; give a positive number, or None for 64-bit ids.")
    return CriteoStream(file, part, errors == "skip", buckets, workers or min(8, os.cpu_count() or 1))


def criteo_splits(path: str | os.PathLike[str], errors: Literal["raise", "skip"] = "raise") -> Splits:
    """Opens the three parts of a file and describes them; arguments and errors as for `criteo`."""
    train = criteo(path, "train", errors)
    return Splits(train, criteo(path, "valid", errors), criteo(path, "test", errors), train.description)


@dataclasses.dataclass(eq=False)
class CriteoStream(Stream):
    """A part of a Criteo file, read anew in each pass; made by `criteo`.

    Attributes:
      rows: None; only a full pass over the file would tell.
      skipped: bad lines that the latest pass left out so far.
    """

    path: Path
    part: Part
    skip: bool
    buckets: int | None
    workers: int
    shard_index: int = 0
    shard_count: int = 1
    rows: None = dataclasses.field(default=None, init=False)
    skipped: int = dataclasses.field(default=0, init=False)

    @property
    def description(self) -> Description:
        """The fields: 26 categorical ones, hashed, and 13 numeric columns."""
        fields = tuple(Field(name, self.buckets) for name in CATEGORICAL_NAMES)
        return Description(f"criteo:{self.path}", fields, numeric=NUMERIC_NAMES)

    def shard(self, index: int, count: int) -> CriteoStream:
        """Returns the `index`-th of `count` disjoint parts.

        Their sizes differ a little (parts are drawn by line): where workers must take equal numbers of steps,
        use `to_tf(...).repeat()` and `steps_per_epoch`.

        Raises:
          ValueError: if `index` is not in `[0, count)`.
        """
        check_shard(index, count)
        return dataclasses.replace(
            self,
            shard_index=self.shard_index + self.shard_count * index,
            shard_count=self.shard_count * count,
        )

    def blocks(self) -> Iterator[Examples]:
        """Yields the rows in the order of the file, in blocks of some thousands; a block may be empty."""
        self.skipped = 0
        with concurrent.futures.ThreadPoolExecutor(self.workers) as pool:
            waiting: collections.deque[tuple[int, Future[tuple[Examples, int]]]] = collections.deque()
            chunks = self._chunks()
            try:
                for line, chunk in chunks:
                    waiting.append((line, pool.submit(self._parse, line, chunk)))
                    if len(waiting) > 2 * self.workers:
                        yield self._result(*waiting.popleft())
                while waiting:
                    yield self._result(*waiting.popleft())
            finally:
                for _, future in waiting:
                    future.cancel()
        if self.skipped:
            log.warning("%s: skipped %d bad lines of part %r", self.path, self.skipped, self.part)

    def like(self) -> Examples:
        """Returns examples of no rows, with this stream's columns."""
        return parse(b"", keep=np.zeros(1, bool), buckets=self.buckets)[0]

    def _parse(self, first_line: int, chunk: bytes) -> tuple[Examples, int]:
        return parse(chunk, self._keep(first_line, chunk), self.skip, self.buckets)

    def _result(self, first_line: int, future: Future[tuple[Examples, int]]) -> Examples:
        try:
            examples, skipped = future.result()
        except BadLine as bad:
            raise ValueError(
                f"{self.path}, line {first_line + bad.line + 1}: {bad.reason}. Repair the file, or pass "
                "errors='skip' to leave such lines out."
            ) from None
        self.skipped += skipped
        return examples

    def _keep(self, first_line: int, chunk: bytes) -> npt.NDArray[np.bool_] | None:
        """Returns which lines of the chunk belong to this part and shard; None for all."""
        if self.part == "all" and self.shard_count == 1:
            return None
        count = chunk.count(b"\n") + (not chunk.endswith(b"\n"))
        lines = np.arange(first_line, first_line + count, dtype=np.uint64)
        tenth = mix(lines * GAMMA + salt("criteo", "split")) % np.uint64(10)
        low, high = _TENTHS[self.part]
        here = lines % np.uint64(self.shard_count) == np.uint64(self.shard_index)
        mine: npt.NDArray[np.bool_] = (tenth >= low) & (tenth < high) & here
        return mine

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yields (number of its first line from 0, whole lines)."""
        line, rest = 0, b""
        with self._open() as file:
            while True:
                try:
                    data = file.read(CHUNK_BYTES)
                except (gzip.BadGzipFile, EOFError, OSError) as error:
                    raise ValueError(
                        f"{self.path}, after line {line}: cannot be read ({error}). Is it complete, and gzip "
                        "exactly if its name ends in .gz? Download it again, or rename it."
                    ) from error
                cut = data.rfind(b"\n") + 1
                if not data:
                    break
                if not cut:
                    rest += data
                    if len(rest) > _MAX_LINE_BYTES:
                        raise ValueError(
                            f"{self.path}, line {line + 1}: has more than {_MAX_LINE_BYTES} bytes. This is "
                            "no text file of Criteo's format; if it is an archive, unpack it first."
                        )
                    continue
                chunk, rest = rest + data[:cut], data[cut:]
                yield line, chunk
                line += chunk.count(b"\n")
        if rest:
            yield line, rest

    def _open(self) -> BinaryIO:
        if self.path.suffix == ".gz":
            return gzip.open(self.path, "rb")  # type: ignore[return-value]
        return open(self.path, "rb")
