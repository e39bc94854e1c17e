"""Arithmetic modulo 2^64 with the same functions for numpy arrays and tensors of uint64."""

from typing import Any

import numpy as np

from het_tf.python.session.native import tf

UInt64 = Any
"""np.uint64, an array of them, or a tensor."""

MASK = 2**64 - 1


def u64(number: Any) -> np.uint64:
    """Returns a number modulo 2^64."""
    return np.uint64(int(number) & MASK)


def xor(a: UInt64, b: UInt64) -> UInt64:
    """Exclusive or of the bits."""
    return tf.bitwise.bitwise_xor(a, b) if tf.is_tensor(a) or tf.is_tensor(b) else a ^ b


def shift(a: UInt64, bits: int) -> UInt64:
    """Shifts the bits to the right, with zeros from the left."""
    return tf.bitwise.right_shift(a, np.uint64(bits)) if tf.is_tensor(a) else a >> np.uint64(bits)


def reduce(h: UInt64, size: UInt64) -> UInt64:
    """Maps uniform hashes to [0, size), size < 2^32, by their upper half."""
    return shift(shift(h, 32) * size, 32)


def mix64(x: UInt64) -> UInt64:
    """The finaliser of MurmurHash3: core/base/hash.h's Mix64."""
    x = xor(x, shift(x, 33))
    x = x * u64(0xFF51AFD7ED558CCD)
    x = xor(x, shift(x, 33))
    x = x * u64(0xC4CEB9FE1A85EC53)
    return xor(x, shift(x, 33))
