"""The most used ids of a table and their uses, in memory that does not grow (Space-Saving by blocks)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from het_tf.python.data.placement import Int64Array


class Head:
    """Counts ids; the least used are left out when there are too many.

    An id that comes when others were left out begins with the most uses that one of them had, its `error`, so
    that new ids have a chance to stay. What is reported is without it: it lacks the uses before the id came.

    Args:
      most: Ids that stay; twice as many are held between.

    Attributes:
      keys: Ascending, int64 [n].
      missed: The most uses that an id may lack; 0: none was left out, and all counts are exact.
    """

    def __init__(self, most: int) -> None:
        self.most, self.missed = most, 0
        self.keys, self._counts, self._errors = (np.empty(0, np.int64) for _ in range(3))

    @property
    def uses(self) -> Int64Array:
        """Of each key, at least; int64 [n]."""
        return self._counts - self._errors

    def at(self, keys: Int64Array) -> Int64Array:
        """Which of `keys`, int64 [n] ascending, are counted; numbers of them."""
        at = np.searchsorted(keys, self.keys)
        at, mine = at[at < len(keys)], self.keys[at < len(keys)]
        return at[keys[at] == mine]

    def add(self, ids: Int64Array) -> None:
        """Counts the ids of a block, int64 [n]."""
        ids = np.sort(ids)
        begins = np.flatnonzero(np.concatenate([np.ones(min(1, len(ids)), bool), ids[1:] != ids[:-1]]))
        keys, times = ids[begins], np.diff(begins, append=len(ids))
        at = np.searchsorted(self.keys, keys)
        new = self.keys.take(at, mode="clip") != keys if len(self.keys) else np.ones(len(keys), bool)
        self._counts[at[~new]] += times[~new]
        if new.any():
            to = at[new] + np.arange(np.count_nonzero(new))
            self.keys, self._counts, self._errors = _inserted(
                to,
                (self.keys, keys[new]),
                (self._counts, times[new] + self.missed),
                (self._errors, self.missed),
            )
        if len(self.keys) > 2 * self.most:
            order = np.argpartition(self._counts, -self.most)
            self.missed = int(self._counts[order[: -self.most]].max())
            stay = np.sort(order[-self.most :])
            self.keys, self._counts, self._errors = (
                of[stay] for of in (self.keys, self._counts, self._errors)
            )


def _inserted(to: Int64Array, *arrays: tuple[Int64Array, Any]) -> Iterator[Int64Array]:
    """Of each pair: an array, and what comes into it; `to` says where."""
    old = np.ones(len(arrays[0][0]) + len(to), bool)
    old[to] = False
    for array, new in arrays:
        made = np.empty(len(old), np.int64)
        made[old], made[to] = array, new
        yield made
