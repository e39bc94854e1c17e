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


def mix(values: UInt64Array) -> UInt64Array:
    """Hashes uint64 of any shape in place by the finalizer of SplitMix64, a bijection, and returns it."""
    for shift, factor in zip(SHIFTS, (*FACTORS, np.uint64(1)), strict=True):
        values ^= values >> shift
        values *= factor
    return values
