"""64-bit hashes of numpy columns: equal on every machine and in every process, without state."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from het_tf.python.checks import whole_or_none

UInt64Array = npt.NDArray[np.uint64]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def salt(*parts: str | int) -> np.uint64:
    """Returns a 64-bit hash of `parts`, for example a field's name and a seed."""
    text = "\x1f".join(str(part) for part in parts)
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def mix(values: UInt64Array, scratch: UInt64Array | None = None) -> UInt64Array:
    """Hashes `values` in place by the finalizer of SplitMix64 (a bijection of 64 bits) and returns it.

    Args:
      values: uint64, any shape; overwritten.
      scratch: uint64 of the same shape, to save an allocation.
    """
    scratch = np.empty_like(values) if scratch is None else scratch
    for shift, factor in zip(SHIFTS, (*FACTORS, None), strict=True):
        np.right_shift(values, shift, out=scratch)
        np.bitwise_xor(values, scratch, out=values)
        if factor is not None:
            np.multiply(values, factor, out=values)
    return values


def cross(
    name: str, columns: list[npt.NDArray[np.int64]], buckets: int | None = None
) -> npt.NDArray[np.int64]:
    """Crosses columns of ids into one: the hash of the whole tuple.

    Args:
      name: the cross's name; a part of the hash.
      columns: int64 `[N]` each.
      buckets: None for 64-bit hashes, or ids in `[0, buckets)`.

    Returns:
      int64 `[N]`.
    """
    values = np.full(columns[0].shape, salt(name), np.uint64)
    for column in columns:
        values = mix((values ^ column.astype(np.uint64)) * GAMMA + GAMMA)
    return into_buckets(values.view(np.int64), buckets)


def into_buckets(hashes: npt.NDArray[np.int64], buckets: int | None) -> npt.NDArray[np.int64]:
    """Returns `hashes` modulo `buckets`, in `[0, buckets)`; unchanged if `buckets` is None."""
    buckets = whole_or_none("buckets", buckets, otherwise="None for 64-bit hashes")
    if buckets is None:
        return hashes
    return (hashes.view(np.uint64) % np.uint64(buckets)).astype(np.int64)
