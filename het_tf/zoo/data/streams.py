"""The base of all streams of examples: batches of an exact size, shuffling in a window, tf.data."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from het_tf.python.checks import whole
from het_tf.zoo.data.examples import Examples, to_tf_dataset

if TYPE_CHECKING:
    import tensorflow as tf

SHUFFLE_WINDOW = 1 << 16
"""Rows held in memory for shuffling (about 16 MB of 26 ids and 13 numbers)."""


class Stream(abc.ABC):
    """Rows that are made or read on demand; the counterpart of `Examples`, with its methods.

    Attributes:
      rows: the number of rows; None if it is unknown without a full pass.
    """

    rows: int | None

    @abc.abstractmethod
    def shard(self, index: int, count: int) -> Stream:
        """Returns the `index`-th of `count` disjoint parts."""

    @abc.abstractmethod
    def blocks(self) -> Iterator[Examples]:
        """Yields all rows in order, in blocks of any size; each call starts a new pass."""

    @abc.abstractmethod
    def like(self) -> Examples:
        """Returns examples (of any number of rows) with this stream's columns."""

    def read(self, rows: int | None = None) -> Examples:
        """Returns the first `rows` rows in memory (None: all of them, which must fit)."""
        parts, missing = [self.like().take(slice(0, 0))], rows
        for block in self.blocks():
            if missing is not None:
                block = block.read(missing)
                missing -= len(block)
            parts.append(block)
            if missing == 0:
                break
        return concatenate(parts)

    def batches(
        self, batch_size: int, rng: np.random.Generator | None = None, drop_remainder: bool = False
    ) -> Iterator[Examples]:
        """Yields batches of exactly `batch_size` rows (the last may be smaller), shuffled if `rng`.

        Shuffling is within windows of `SHUFFLE_WINDOW` rows: rows stay near their place in a longer stream.
        """
        window = batch_size if rng is None else -(-SHUFFLE_WINDOW // batch_size) * batch_size
        pending: list[Examples] = []
        count = 0
        for block in self.blocks():
            pending.append(block)
            count += len(block)
            if count >= window:
                held = concatenate(pending)
                full = count - count % window
                for begin in range(0, full, window):
                    order = None if rng is None else begin + rng.permutation(window)
                    part = held.take(slice(begin, begin + window) if order is None else order)
                    yield from part.batches(batch_size)
                pending, count = [held.take(slice(full, None))], count - full
        if count:
            rest = concatenate(pending)
            yield from rest.batches(
                batch_size, None if rng is None else rng.permutation(count), drop_remainder
            )

    def to_tf(
        self, batch_size: int, shuffle: bool = False, seed: int = 0, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        """Returns a `tf.data.Dataset` of `(inputs, label)` batches; arguments and errors as `Examples.to_tf`.

        Shuffling is within windows of `SHUFFLE_WINDOW` rows.
        """
        whole("batch_size", batch_size, what="the rows of a batch")

        def epoch(number: int) -> Iterator[Examples]:
            rng = np.random.default_rng([seed, number]) if shuffle else None
            return self.batches(batch_size, rng, drop_remainder)

        count = None
        if self.rows is not None:
            count = self.rows // batch_size if drop_remainder else -(-self.rows // batch_size)
        return to_tf_dataset(epoch, self.like(), count, batch_size if drop_remainder else None)


def concatenate(parts: list[Examples]) -> Examples:
    """Concatenates the rows of all `parts`, which must have the same columns."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Examples(
        {name: np.concatenate([part.categorical[name] for part in parts]) for name in first.categorical},
        {name: np.concatenate([part.sequences[name] for part in parts]) for name in first.sequences},
        np.concatenate([part.numeric for part in parts]),
        np.concatenate([part.label for part in parts]),
    )
