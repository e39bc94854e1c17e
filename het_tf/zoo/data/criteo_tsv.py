"""Reads Criteo's click logs (Kaggle's train.txt) as a stream; the file may be larger than memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from het_tf.inputs.python.criteo import CATEGORICAL_NAMES, NUMERIC_NAMES, TENTHS, Part, parse, read_lines
from het_tf.python.checks import whole_or_none
from het_tf.python.files import local_path
from het_tf.zoo.data.checks import check_shard
from het_tf.zoo.data.examples import Description, Examples, Field, Splits
from het_tf.zoo.data.streams import Stream


def criteo(path: str | os.PathLike[str], part: Part = "all", buckets: int | None = None) -> CriteoStream:
    r"""Opens a file of Criteo's format: `label \t 13 integers \t 26 hexadecimal categories`, one row a line.

    * A number x becomes log(x + 1); negative numbers (as in DLRM; only I2 has them, -1 to -3) and missing
      numbers count as 0.
    * A category becomes a 64-bit hash of (field, value), which is a bijection within a field. A missing
      category is a separate value. An id's hash includes its field, so all fields can share one table.
    * Parts are drawn by a hash of the line number: 80 % train, 10 % valid, 10 % test, the same each time.

    Args:
      path: the file; gzip if its name ends in ".gz".
      part: "all", "train", "valid" or "test".
      buckets: None for 64-bit ids, or ids in `[0, buckets)` in each field.

    Raises:
      FileNotFoundError: if the file does not exist.
      ValueError: if the file is empty, or an argument has a value that is not listed. While reading: for a
        bad line (not 40 fields, or a field that is not a number), with the file, the line number (from 1),
        the fault and the remedy.
    """
    file = local_path("path", path)
    if not file.is_file():
        kind = "is not a regular file" if file.exists() else "does not exist"
        kind = "is a directory" if file.is_dir() else kind
        raise FileNotFoundError(
            f"{file} {kind}; give the path of Criteo's train.txt (or a .gz of it), for example "
            "--data criteo:/data/criteo/train.txt. The data set is your own download, under Criteo's terms."
        )
    if file.stat().st_size == 0:
        raise ValueError(f"{file} is empty; download or unpack it again.")
    if part not in TENTHS:
        raise ValueError(f"part is {part!r}; give one of {', '.join(map(repr, TENTHS))}.")
    whole_or_none("buckets", buckets, otherwise="None for 64-bit ids")
    return CriteoStream(file, part, buckets)


def criteo_splits(path: str | os.PathLike[str]) -> Splits:
    """Opens the three parts of a file and describes them; errors as in `criteo`."""
    train = criteo(path, "train")
    return Splits(train, criteo(path, "valid"), criteo(path, "test"), train.description)


@dataclasses.dataclass(frozen=True)
class CriteoStream(Stream):
    """A part of a Criteo file, read anew in each pass; made by `criteo`.

    Attributes:
      rows: None: unknown without a full pass over the file.
    """

    path: Path
    part: Part
    buckets: int | None
    shard_index: int = 0
    shard_count: int = 1
    rows: None = dataclasses.field(default=None, init=False)

    @property
    def description(self) -> Description:
        """The fields: 26 categorical ones, hashed, and 13 numeric columns."""
        fields = tuple(Field(name, self.buckets) for name in CATEGORICAL_NAMES)
        return Description(f"criteo:{self.path}", fields, numeric=NUMERIC_NAMES)

    def shard(self, index: int, count: int) -> CriteoStream:
        """Returns the `index`-th of `count` disjoint parts.

        Their sizes differ a little (parts are drawn by line): if workers must take equal numbers of steps,
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
        """Yields the rows in the order of the file, in blocks of some thousands."""
        for _, lines in read_lines(self.path, self.part, self.shard_index, self.shard_count):
            yield self._examples(lines)

    def like(self) -> Examples:
        """Returns examples of no rows, with this stream's columns."""
        return self._examples([])

    def _examples(self, lines: list[bytes]) -> Examples:
        label, numeric, ids = parse(lines)
        if self.buckets is not None:
            ids = (ids.view(np.uint64) % np.uint64(self.buckets)).view(np.int64)
        return Examples(dict(zip(CATEGORICAL_NAMES, ids, strict=True)), {}, numeric, label)
