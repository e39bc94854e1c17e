"""CRC-32C (Castagnoli) in numpy, at gigabytes a second, for machines without the plugin.

A CRC is the remainder of the message, read as a polynomial over GF(2), modulo a polynomial P of degree 32.
P divides

    x^6777 + x^484 + x^100 + 1

(found by search for a wide gap below the first term; a test checks it). Squaring keeps that true, so P also
divides x^(6777 k) + x^(484 k) + x^(100 k) + 1 for k = 8 and k = 64. Hence any byte, or any eight of them, may
be taken out of the message and XORed in at three later places, 6293, 6677 and 6777 bytes (or words) further
on, and the remainder stays. Strips of 6293 words go that way in three vector operations; no table is read.
What is left at the end, at most 6777 bytes, is summed bit by bit from a table of remainders of powers of x.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

REFLECTED = 0x82F63B78  # P without x^32; bit 31 - i is the coefficient of x^i
LOW, MIDDLE, HIGH = 100, 484, 6777  # P divides x^HIGH + x^MIDDLE + x^LOW + 1
_LAG = HIGH - MIDDLE  # a strip so long is XORed only beyond its own end
_BLOCK = 1 << 17  # words that are worked on at a time: 1 MB, so that it stays in the processor's cache


@functools.cache
def _remainders() -> np.ndarray:
    """uint32 [8 * HIGH + 64]: the remainder of x^(32 + i) modulo P, reflected."""
    out = np.empty(8 * HIGH + 64, np.uint32)
    value = REFLECTED
    for i in range(HIGH):
        out[i] = value
        value = value >> 1 ^ (REFLECTED if value & 1 else 0)
    for begin in range(HIGH, len(out), _LAG):  # the identity again: the table continues itself
        n = min(_LAG, len(out) - begin)
        i = begin - HIGH
        out[begin : begin + n] = (
            out[i : i + n] ^ out[i + LOW : i + LOW + n] ^ out[i + MIDDLE : i + MIDDLE + n]
        )
    return out


def _fold(units: np.ndarray) -> np.ndarray:
    """Moves all but the last HIGH bytes or words of `units`, which changes, into those; returns those."""
    end = len(units) - HIGH
    begin = 0
    while begin < end:
        n = min(_LAG, end - begin)
        strip = units[begin : begin + n]
        for distance in (HIGH - MIDDLE, HIGH - LOW, HIGH):
            target = units[begin + distance : begin + distance + n]
            np.bitwise_xor(target, strip, out=target)
        begin += n
    return units[max(end, 0) :]


def crc32c(data: Any, crc: int = 0) -> int:
    """The CRC-32C of `data`.

    Args:
        data: bytes, or anything with a contiguous buffer; a numpy array or memmap of any dtype.
        crc: the CRC of what stands before `data`; 0 at the beginning.

    Returns:
        A number below 2^32. `crc32c(b, crc32c(a)) == crc32c(a + b)`.
    """
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    source = np.frombuffer(data, np.uint8)
    crc ^= 0xFFFFFFFF
    # The CRC so far is XORed into the first four bytes. Behind a shorter message, what is left of it stands.
    head = np.frombuffer(crc.to_bytes(4, "little"), np.uint8).copy()
    n = min(4, len(source))
    head[:n] ^= source[:n]
    if len(source) < 4:
        shifted = crc >> 8 * len(source)
        return _remainder(head[:n]) ^ shifted ^ 0xFFFFFFFF
    # Zeros in front change nothing: they make whole words of the message.
    work = np.empty(min(_BLOCK, len(source) // 8 + 1) + HIGH, np.uint64)
    raw = work.view(np.uint8)
    begin = -len(source) % 8
    raw[:begin] = 0
    raw[begin : begin + 4] = head
    filled, done = begin + 4, 4
    while True:
        n = min(len(raw) - filled, len(source) - done)
        raw[filled : filled + n] = source[done : done + n]
        filled, done = filled + n, done + n
        if done == len(source):
            break
        left = _fold(work[: filled // 8])
        work[: len(left)] = left
        filled = 8 * len(left)
    rest = _fold(work[: filled // 8]).view(np.uint8)
    return _remainder(_fold(rest)) ^ 0xFFFFFFFF


def _remainder(message: np.ndarray) -> int:
    """Of at most HIGH bytes, times x^32."""
    bits = np.unpackbits(message, bitorder="little")
    powers = _remainders()[: len(bits)][::-1]
    return int(np.bitwise_xor.reduce(powers[bits.view(bool)], initial=np.uint32(0)))
