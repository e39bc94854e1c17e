"""Places samples on workers: the rule of placed streams.

A global batch is `workers * batch` samples of the stream in their order; each worker takes `batch` of them:

* hash: a sample's owner is `hash(value of the field) mod workers`;
* quota: an owner takes its first `batch` samples, in the order of the stream;
* spill: the rest goes, in the order of the stream, to workers that have too few, the first worker first;
* order: each worker's samples keep the order of the stream.

The rule uses a few operations (`Numpy`) that numpy and TensorFlow share: het_tf.workers.shard runs it in a
graph, `het data` on arrays. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.checks import whole
from het_tf.python.hashing import FACTORS, GAMMA, SHIFTS

RULE = 1
"""The number of the rule; change it with the hash, quota, spill or order."""

Int64Array = npt.NDArray[np.int64]


class Numpy:
    """The operations of the rule, on numpy arrays."""

    arange: Any = staticmethod(np.arange)
    bitwise_xor: Any = staticmethod(np.bitwise_xor)
    concat: Any = staticmethod(np.concatenate)
    cumprod: Any = staticmethod(np.cumprod)
    cumsum: Any = staticmethod(np.cumsum)
    minimum: Any = staticmethod(np.minimum)
    reshape: Any = staticmethod(np.reshape)
    right_shift: Any = staticmethod(np.right_shift)
    searchsorted: Any = staticmethod(np.searchsorted)
    size: Any = staticmethod(np.size)
    sort: Any = staticmethod(np.sort)
    take: Any = staticmethod(np.take)

    @staticmethod
    def mask(values: Any, wanted: Any) -> Any:
        """The values where `wanted` is true."""
        return values[wanted]

    @staticmethod
    def row_sums(values: Any) -> Any:
        """Sums over the last axis."""
        return values.sum(axis=-1, dtype=values.dtype)

    @staticmethod
    def full(size: Any, value: Any) -> Any:
        """A vector of one value."""
        return np.full(size, value)

    @staticmethod
    def signed(words: Any) -> Any:
        """Words below 2^63 as int64."""
        return words.astype(np.int64)

    @staticmethod
    def width(values: Any) -> Any:
        """The size of the last of two axes."""
        return values.shape[1]

    @staticmethod
    def words(values: Any) -> Any:
        """Integers `[M]` as uint64, modulo 2^64."""
        return np.asarray(values).astype(np.int64, copy=False).view(np.uint64)

    @staticmethod
    def is_text(values: Any) -> bool:
        """Whether the values are strings."""
        return np.asarray(values[:1]).dtype.kind in "SUO"

    @staticmethod
    def text(values: Any) -> tuple[Any, Any]:
        """The bytes of strings, uint64 `[M, L]`, padded by 0, and their lengths, uint64 `[M]`."""
        texts = [one.encode() if isinstance(one, str) else bytes(one) for one in list(values)]
        lengths = np.array([len(one) for one in texts], np.int64)
        letters = np.zeros((len(texts), max(1, int(lengths.max(initial=0)))), np.uint64)
        letters[np.arange(letters.shape[1]) < lengths[:, None]] = np.frombuffer(b"".join(texts), np.uint8)
        return letters, lengths.view(np.uint64)


def mixed(words: Any, xp: Any = Numpy) -> Any:
    """Applies the finalizer of SplitMix64 (`hashing.mix`) to uint64 of any shape."""
    for shift, factor in zip(SHIFTS[:-1], FACTORS, strict=True):
        words = xp.bitwise_xor(words, xp.right_shift(words, shift)) * factor
    return xp.bitwise_xor(words, xp.right_shift(words, SHIFTS[-1]))


def hashes(values: Any, xp: Any = Numpy) -> Any:
    """Returns the hash of each value of a field.

    It is `mixed` of an integer, or of a string's length plus the sum of `byte[i] * GAMMA^(i + 1)`.

    Args:
      values: Integers `[M]`, or strings `[M]` (bytes; numpy also takes str, whose UTF-8 it hashes).
      xp: `Numpy`, or the same operations on tensors.

    Returns:
      uint64 `[M]`.
    """
    if not xp.is_text(values):
        return mixed(xp.words(values), xp)
    letters, lengths = xp.text(values)
    powers = xp.cumprod(xp.full(xp.width(letters), GAMMA))
    return mixed(xp.row_sums(letters * powers) + lengths, xp)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Placement of a stream's samples on workers by a field.

    Attributes:
      by: The name of the field.
      workers: Number of workers.
      batch: Samples of a global batch that each worker takes.

    Raises:
      ValueError: A number is below 1.
    """

    by: str
    workers: int
    batch: int

    def __post_init__(self) -> None:
        for name in ("workers", "batch"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))

    @property
    def samples(self) -> int:
        """Samples of a global batch."""
        return self.workers * self.batch

    def describe(self) -> dict[str, Any]:
        """Returns, for JSON, all that must be equal wherever the same stream is placed."""
        return {**dataclasses.asdict(self), "rule": RULE}

    def owners(self, hashed: Any, xp: Any = Numpy) -> Any:
        """Returns the owner of each sample, int64 `[M]`, from the hashes of its values, uint64 `[M]`."""
        return xp.signed(xp.right_shift(hashed, np.uint64(1))) % self.workers

    def order(self, owners: Any, xp: Any = Numpy) -> Any:
        """Returns the samples of a global batch that each worker takes, by `owners`, int64 `[samples]`.

        Returns:
          int64 `[workers, batch]`: numbers of samples, each once; a row ascends.
        """
        count, samples = self.samples, xp.arange(self.samples)
        keys = xp.sort(owners * count + samples)  # by owner, then as in the stream
        owner, sample = keys // count, keys % count
        workers = xp.arange(self.workers)
        begin, end = (xp.searchsorted(owner, workers, side=side) for side in ("left", "right"))
        fits = samples - xp.take(begin, owner) < self.batch
        room = xp.cumsum(self.batch - xp.minimum(end - begin, self.batch))
        spilled = xp.sort(xp.mask(sample, ~fits))
        target = xp.searchsorted(room, xp.arange(xp.size(spilled)), side="right")
        keys = xp.sort(xp.concat([xp.mask(keys, fits), target * count + spilled], 0))
        return xp.reshape(keys % count, (self.workers, self.batch))

    def place(self, values: Any) -> Int64Array:
        """Returns the samples that each worker takes of the global batches in `values`.

        Args:
          values: The field's integers or strings `[M]` in the order of the stream. A last incomplete global
            batch is left out.

        Returns:
          int64 `[M // samples, workers, batch]`: numbers of samples of the stream.
        """
        return self.place_owners(self.owners(hashes(values)))

    def place_owners(self, owners: Int64Array) -> Int64Array:
        """As `place`, from the owners of the samples, int64 `[M]`."""
        batches = len(owners) // self.samples
        found = np.empty((batches, self.workers, self.batch), np.int64)
        for number in range(batches):
            begin = number * self.samples
            found[number] = begin + self.order(owners[begin : begin + self.samples])
        return found
