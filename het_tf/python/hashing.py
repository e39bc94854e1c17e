"""64-bit hashes of numpy columns: equal on every machine and in every process, without state."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

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
