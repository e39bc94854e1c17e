"""Places samples on workers: the rule of placed streams, on tensors of TensorFlow.

A global batch is `workers * batch` samples of the stream in their order; each worker takes `batch` of them:

* hash: a sample's owner is `hash(value of the field) mod workers`;
* quota: an owner takes its first `batch` samples, in the order of the stream;
* spill: the rest goes, in the order of the stream, to workers that have too few, the first worker first;
* order: each worker's samples keep the order of the stream.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from het_tf.python.checks import whole
from het_tf.python.hashing import FACTORS, GAMMA, SHIFTS
from het_tf.python.session.native import tf

RULE = 1
"""The number of the rule; change it with the hash, quota, spill or order."""


def words(values: Any) -> Any:
    """Returns integers of any shape as uint64, modulo 2^64."""
    return tf.bitcast(tf.cast(values, tf.int64), tf.uint64)


def mixed(of: Any) -> Any:
    """Applies the finalizer of SplitMix64 (`hashing.mix`) to uint64 of any shape."""
    shifted, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor
    for shift, factor in zip(SHIFTS[:-1], FACTORS, strict=True):
        of = xor(of, shifted(of, shift)) * factor
    return xor(of, shifted(of, SHIFTS[-1]))


def hashes(values: Any) -> Any:
    """Returns the hash of each value of a field.

    It is `mixed` of an integer, or of a string's length plus the sum of `byte[i] * GAMMA^(i + 1)`.

    Args:
      values: Integers or strings `[M]`.

    Returns:
      uint64 `[M]`.
    """
    if values.dtype != tf.string:
        return mixed(words(values))
    lengths = tf.strings.length(values)
    longest = tf.maximum(tf.reduce_max(lengths), 1)
    letters = tf.cast(tf.io.decode_raw(values, tf.uint8, fixed_length=longest), tf.uint64)  # padded by 0
    powers = tf.math.cumprod(tf.fill([longest], tf.constant(GAMMA)))
    return mixed(tf.reduce_sum(letters * powers, axis=-1) + tf.cast(lengths, tf.uint64))


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

    def owners(self, hashed: Any) -> Any:
        """Returns the owner of each sample, int64 `[M]`, from the hashes of its values, uint64 `[M]`."""
        return tf.cast(tf.bitwise.right_shift(hashed, tf.constant(1, tf.uint64)), tf.int64) % self.workers

    def order(self, owners: Any) -> Any:
        """Returns the samples of a global batch that each worker takes, by `owners`, int64 `[samples]`.

        Returns:
          int64 `[workers, batch]`: numbers of samples, each once; a row ascends.
        """
        count, samples = self.samples, tf.range(self.samples, dtype=tf.int64)
        keys = tf.sort(owners * count + samples)  # by owner, then as in the stream
        owner, sample = keys // count, keys % count
        workers = tf.range(self.workers, dtype=tf.int64)
        begin, end = (tf.searchsorted(owner, workers, side, tf.int64) for side in ("left", "right"))
        fits = samples - tf.gather(begin, owner) < self.batch
        room = tf.cumsum(self.batch - tf.minimum(end - begin, self.batch))
        spilled = tf.sort(tf.boolean_mask(sample, ~fits))
        target = tf.searchsorted(room, tf.range(tf.size(spilled, tf.int64)), "right", tf.int64)
        keys = tf.sort(tf.concat([tf.boolean_mask(keys, fits), target * count + spilled], 0))
        return tf.reshape(keys % count, (self.workers, self.batch))
