"""Reads Criteo's click logs (Kaggle's train.txt) as a stream; the file may be larger than memory.

    HetReadCriteo ──► lines of some whole batches ──► HetParseCriteo, several at a time ──► batches

Both are ops: no Python runs in the pass, so it is as fast as the processors, and does not wait for the
interpreter when the process ends.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from het_tf.inputs.python.criteo import CATEGORICAL_NAMES, NUMERIC_NAMES, TENTHS, Part
from het_tf.python.files import local_path
from het_tf.python.hashing import salt
from het_tf.zoo.data import streams
from het_tf.zoo.data.checks import check_batch_size, check_shard
from het_tf.zoo.data.examples import (
    NUMERIC,
    Description,
    Examples,
    Field,
    Splits,
)
from het_tf.zoo.data.streams import Stream

if TYPE_CHECKING:
    import tensorflow as tf

log = logging.getLogger("het_tf")

CHUNK_BYTES = 1 << 20
_BLOCK_ROWS = 4096
_MAX_LINE_BYTES = 16 << 20


def criteo(
    path: str | os.PathLike[str],
    part: Part = "all",
    errors: Literal["raise", "skip"] = "raise",
    buckets: int | None = None,
    workers: int | None = None,
) -> CriteoStream:
    r"""Opens a file of Criteo's format: `label \t 13 integers \t 26 hexadecimal categories`, one row a line.

    * A number x becomes log(x + 1); negative numbers (as in DLRM; only I2 has them, -1 to -3) and missing
      numbers count as 0.
    * A category becomes a 64-bit hash of (field, value), which is a bijection within a field. A missing
      category is a separate value. An id's hash includes its field, so all fields can share one table.
    * Parts are drawn by a hash of the line number: 80 % train, 10 % valid, 10 % test, the same each time.

    Args:
      path: the file; gzip if its name ends in ".gz".
      part: "all", "train", "valid" or "test".
      errors: for a bad line (not 40 fields, not UTF-8, a field that is not a number): "raise" a
        ValueError, or "skip" it and count it in `stream.skipped`; `read` logs the number.
      buckets: None for 64-bit ids, or ids in `[0, buckets)` in each field.
      workers: threads that parse; None for the number of processors, at most 8.

    Raises:
      FileNotFoundError: if the file does not exist.
      ValueError: if the file is empty, or an argument has a value that is not listed. While reading: for a
        bad line, with the file, the line number (from 1), the fault and the remedy.
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
    if errors not in ("raise", "skip"):
        raise ValueError(f"errors is {errors!r}; give 'raise' or 'skip'.")
    if buckets is not None and buckets < 1:
        raise ValueError(f"buckets is {buckets}; give a positive number, or None for 64-bit ids.")
    return CriteoStream(file, part, errors == "skip", buckets, workers or min(8, os.cpu_count() or 1))


def criteo_splits(path: str | os.PathLike[str], errors: Literal["raise", "skip"] = "raise") -> Splits:
    """Opens the three parts of a file and describes them; arguments and errors as in `criteo`."""
    train = criteo(path, "train", errors)
    return Splits(train, criteo(path, "valid", errors), criteo(path, "test", errors), train.description)


@dataclasses.dataclass(eq=False)
class CriteoStream(Stream):
    """A part of a Criteo file, read anew in each pass; made by `criteo`.

    Attributes:
      rows: None: unknown without a full pass over the file.
    """

    path: Path
    part: Part
    skip: bool
    buckets: int | None
    workers: int
    shard_index: int = 0
    shard_count: int = 1
    rows: None = dataclasses.field(default=None, init=False)

    @functools.cached_property
    def _skipped(self) -> tf.Variable:
        import tensorflow as tf

        with tf.init_scope(), tf.device("/CPU:0"):
            return tf.Variable(0, dtype=tf.int64, trainable=False, name="skipped_lines")

    @property
    def skipped(self) -> int:
        """Number of bad lines that the latest pass has skipped so far."""
        return int(self._skipped.numpy())

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
        import tensorflow as tf

        try:
            for label, numeric, ids in self._batches(_BLOCK_ROWS).as_numpy_iterator():
                yield Examples(dict(zip(CATEGORICAL_NAMES, ids, strict=True)), {}, numeric, label)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(self._message(error.message)) from None
        if self.skipped:
            log.warning("%s: skipped %d bad lines of part %r", self.path, self.skipped, self.part)

    def like(self) -> Examples:
        """Returns examples of no rows, with this stream's columns."""
        none = np.zeros(0, np.int64)
        return Examples(
            dict.fromkeys(CATEGORICAL_NAMES, none),
            {},
            np.zeros((0, len(NUMERIC_NAMES)), np.float32),
            none.astype(np.float32),
        )

    def to_tf(
        self, batch_size: int, shuffle: bool = False, seed: int = 0, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        """Returns a `tf.data.Dataset` of `(inputs, label)` batches; arguments and errors as `Examples.to_tf`.

        Shuffles within windows of some `SHUFFLE_WINDOW` rows, and the last, smaller batch by itself. A
        bad line raises `tf.errors.InvalidArgumentError`, with the message of `criteo`.
        """
        import tensorflow as tf

        check_batch_size(batch_size)
        rows = self._batches(batch_size, seed if shuffle else None)
        size = batch_size if drop_remainder else None
        if drop_remainder:
            rows = rows.filter(lambda label, *_: tf.size(label) == batch_size)

        def named(label: tf.Tensor, numeric: tf.Tensor, ids: tf.Tensor) -> tuple[Any, Any]:
            columns = tf.unstack(tf.ensure_shape(ids, [len(CATEGORICAL_NAMES), size]))
            inputs = dict(zip(CATEGORICAL_NAMES, columns, strict=True))
            inputs[NUMERIC] = tf.ensure_shape(numeric, [size, len(NUMERIC_NAMES)])
            return inputs, tf.ensure_shape(label, [size])

        return rows.map(named).prefetch(tf.data.AUTOTUNE)

    def _batches(self, size: int, seed: int | None = None) -> tf.data.Dataset:
        """Returns batches of labels `[size]`, numeric `[size, 13]` and ids `[26, size]`; the last is smaller.

        Counts skipped lines. With a seed, shuffles within windows of some `SHUFFLE_WINDOW` rows.
        """
        import tensorflow as tf

        from het_tf.inputs.python.native import ops

        path = str(self.path)
        counter = self._skipped
        window = _BLOCK_ROWS if seed is None else streams.SHUFFLE_WINDOW
        selection = [
            *TENTHS[self.part],
            self.shard_index,
            self.shard_count,
            int(salt("criteo", "split").astype(np.int64)),
        ]
        salts = np.array([salt("criteo", name) for name in CATEGORICAL_NAMES], np.uint64)

        def read(at: tuple[tf.Tensor, tf.Tensor], seed: tf.Tensor) -> Any:
            if self.skip:
                tf.cond(at[0] == 0, lambda: counter.assign(0), lambda: counter)
            text, offset, line, skipped = ops.het_read_criteo(
                path=path,
                offset=at[0],
                line=at[1],
                selection=tf.constant(selection, tf.int64),
                batch=size,
                batches=-(-window // size),
                chunk_bytes=CHUNK_BYTES,
                longest_line=_MAX_LINE_BYTES,
                skip=self.skip,
            )
            if self.skip:
                counter.assign_add(skipped)
            return (offset, line), (text, at[1], seed)

        def parse(text: tf.Tensor, first_line: tf.Tensor, seed: tf.Tensor) -> Any:
            rows = ops.het_parse_criteo(
                text=text,
                first_line=first_line,
                selection=tf.constant(selection, tf.int64),
                salts=tf.constant(salts),
                buckets=tf.constant(self.buckets or 0, tf.int64),
                seed=seed,
                path=path,
                batch=size,
                shuffle=shuffled,
            )
            return tuple(rows)

        begin = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))
        shuffled = seed is not None
        seeds = (
            tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
            if shuffled
            else tf.data.Dataset.range(2**62)
        )
        texts = seeds.scan(begin, read).take_while(lambda text, *_: tf.size(text) > 0)
        return texts.map(parse, num_parallel_calls=self.workers, deterministic=True).unbatch()

    def _message(self, text: str) -> str:
        """Returns the message of an op without the places in the graph that TensorFlow adds."""
        return text[max(text.find(str(self.path)), 0) :].split("\n\t [[")[0]
