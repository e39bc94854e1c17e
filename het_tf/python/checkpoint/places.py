"""The partition of a row, by the rules of core/base/hash.h and core/wire/layout.h."""

import numpy as np
import numpy.typing as npt


def _mix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> np.uint64(33)) * np.uint64(factor)
    return x ^ x >> np.uint64(33)


def hash_name(name: str) -> int:
    """A table's id."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return int(_mix64(np.array([h], np.uint64))[0])


def group_of(partitions: int) -> int:
    """Number of a store's partitions that a table uses, one in each stride of them."""
    group = partitions if partitions <= 16 else max(8, partitions // 8)
    while partitions % group:
        group += 1
    return group


def partition_of(
    keys: npt.NDArray[np.int64], table: str, partitions: int, hash_seed: int
) -> npt.NDArray[np.int64]:
    """Returns the partition of each key of a table."""
    group = group_of(partitions)
    stride = partitions // group
    bits = _mix64(keys.view(np.uint64) ^ np.uint64(hash_seed)) >> np.uint64(16) & np.uint64(0xFFFF)
    return hash_name(table) % stride + stride * (bits * np.uint64(group) >> np.uint64(16)).view(np.int64)
