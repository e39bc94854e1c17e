"""The most used ids of a table and their uses, in memory that does not grow (Space-Saving by blocks)."""

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
        known = at < len(self.keys)
        known[known] = self.keys[at[known]] == keys[known]
        self._counts[at[known]] += times[known]
        new = ~known
        if new.any():
            self.keys = np.insert(self.keys, at[new], keys[new])
            self._counts = np.insert(self._counts, at[new], times[new] + self.missed)
            self._errors = np.insert(self._errors, at[new], self.missed)
        if len(self.keys) > 2 * self.most:
            order = np.argpartition(self._counts, -self.most)
            self.missed = int(self._counts[order[: -self.most]].max())
            stay = np.sort(order[-self.most :])
            self.keys, self._counts, self._errors = (
                of[stay] for of in (self.keys, self._counts, self._errors)
            )
