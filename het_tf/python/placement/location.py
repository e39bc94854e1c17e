"""Places a sample on the worker that used its rows last. The twin of het_tf/core/plan/location.h.

That file explains the rule and its purpose; tests compare the two. This one is for `het-data`, which
runs without TensorFlow. Nothing here imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from het_tf.python.hashing import GAMMA
from het_tf.python.placement.placement import Int64Array, Numpy, Placement, mixed

LOCATION = "location"
"""The `by` of a `Placement` by location."""

SLOTS = 1 << 22
_USER_BITS = np.uint32(16)
_USER = np.uint32(0xFFFF)


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
        place = (keys // np.uint64(2**64 // SLOTS)).astype(np.int64)
        tag = keys.astype(np.uint32) << _USER_BITS
        found = self._assign(self._scores(place, tag))
        mine = tag | (found[:, None] + 1).astype(np.uint32)
        self._slots[place] = mine  # the last one of equal places wins
        now = self._slots[place]
        several = (now & ~_USER == tag) & (now != mine)
        self._slots[place[several]] = tag[several]
        self._batches += 1
        return found

    def _scores(self, place: Int64Array, tag: Any) -> Int64Array:
        """Number of each sample's keys that each worker used last, `[samples, workers]`."""
        slots = self._slots[place]
        users = np.where(slots & ~_USER == tag, slots & _USER, 0).astype(np.int64)
        row = (self._workers + 1) * np.arange(len(users))[:, None]
        counts = np.bincount((row + users).ravel(), minlength=len(users) * (self._workers + 1))
        return counts.reshape(len(users), -1)[:, 1:].astype(np.int64)

    def _assign(self, scores: Int64Array) -> Int64Array:
        ranked = np.sort(np.pad(scores, ((0, 0), (1, 0))), axis=1)  # with one worker the second best is 0
        left = np.argsort(ranked[:, -2] - ranked[:, -1], kind="stable")
        turns = np.roll(np.arange(self._workers), -(self._batches % self._workers))  # the first of equals
        room = np.full(self._workers, self._batch)
        owners = np.empty(len(scores), np.int64)
        while len(left):  # samples go to their best workers until one is full
            open_ = turns[room[turns] > 0]
            wanted = open_[np.argmax(scores[left][:, open_], axis=1)]
            full = [np.flatnonzero(wanted == worker)[room[worker] - 1 :][:1] for worker in open_]
            taken = min((int(at[0]) + 1 for at in full if len(at)), default=len(left))
            owners[left[:taken]] = wanted[:taken]
            room -= np.bincount(wanted[:taken], minlength=self._workers)
            left = left[taken:]
        return owners
