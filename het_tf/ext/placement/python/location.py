"""Places a sample on the worker that used its rows last (cc/location.h), without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from het_tf.ext.placement.python.placement import Int64Array, Numpy, Placement, mixed
from het_tf.python.calling import tools
from het_tf.python.hashing import GAMMA

LOCATION = "location"
"""The `by` of a `Placement` by location."""

SLOTS = 1 << 22


def keys_of(fields: Sequence[tuple[int, Any]], xp: Any = Numpy) -> Any:
    """Returns the keys of samples, uint64 `[M, width]`, hashes of table and id.

    Args:
      fields: Number of its table, from 0, and integers `[M, n]` of each; fields of one table share keys.
      xp: `Numpy`, or the same operations on tensors.
    """
    salted = [xp.words(ids) + np.uint64((number + 1) * int(GAMMA) % 2**64) for number, ids in fields]
    return mixed(xp.concat(salted, 1), xp)


class Location:
    """The state of the rule in one pass over a stream.

    Args:
      placement: Workers and batch.
    """

    def __init__(self, placement: Placement) -> None:
        self._workers, self._batch = placement.workers, placement.batch
        self._slots = np.zeros(SLOTS, np.uint32)
        self._batches = 0

    def owners(self, keys: Any) -> Int64Array:
        """Returns the owner of each sample of the next global batch, int64 `[samples]`.

        Args:
          keys: uint64 `[samples, width]`, from `keys_of`.
        """
        found = np.empty(self._workers * self._batch, np.int64)
        if len(keys) != len(found):
            raise ValueError(f"there are {len(keys)} samples; a global batch has {len(found)}")
        shape, keys = keys.shape, np.ascontiguousarray(keys)
        tools()(
            "HetPlaceByLocation",
            self._workers,
            self._batch,
            self._batches,
            keys,
            shape[1],
            self._slots,
            found,
        )
        self._batches += 1
        return found
