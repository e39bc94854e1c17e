"""Counts of a table: its most used ids, and the figures of its stream."""

from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
_QUANTILES = 64


class Head:
    """The most used ids, in constant memory (Space-Saving by blocks).

    After ids were dropped, a new id starts with the most uses of a dropped one, so that it has a chance to
    stay. `uses` excludes this start: it lacks the uses before the id came, at most `missed` (0: exact).

    Args:
      most: Ids that stay; twice as many are held in between.
    """

    def __init__(self, most: int) -> None:
        self.most, self.missed = most, 0
        self._held = np.empty((3, 0), np.int64)  # ids, ascending; uses; uses of the start

    @property
    def keys(self) -> Int64Array:
        """int64 [n], ascending."""
        keys: Int64Array = self._held[0]
        return keys

    @property
    def uses(self) -> Int64Array:
        """Uses of each key, int64 [n]."""
        return np.asarray(self._held[1] - self._held[2])

    def add(self, ids: Int64Array) -> None:
        """Counts the ids of a block, int64 [n]."""
        ids = np.sort(ids)
        begins = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 1))
        keys, times = ids[begins], np.diff(begins, append=len(ids))
        at, new = np.searchsorted(self.keys, keys), np.ones(len(keys), bool)
        if self.keys.size:
            new = self.keys.take(at, mode="clip") != keys
        self._held[1, at[~new]] += times[~new]
        begin = np.full(np.count_nonzero(new), self.missed)
        self._held = np.insert(self._held, at[new], [keys[new], times[new] + begin, begin], axis=1)
        if self.keys.size > 2 * self.most:
            order = np.argpartition(self._held[1], -self.most)
            self.missed = int(self._held[1, order[: -self.most]].max())
            self._held = self._held[:, np.sort(order[-self.most :])]


def uses_of(ids: Int64Array, distinct: int) -> npt.NDArray[np.int32]:
    """Counts each id, int32 [distinct]; in half the memory of numpy.bincount."""
    times = np.zeros(distinct, np.int32)
    np.add.at(times, ids, 1)
    return times


def quantiles(head: Int64Array, tail: Any, ratio: int, uses: int) -> list[list[float]]:
    """[share of rows, share of uses] at geometric ranks, from uses: `head`, and others in the sample."""
    values, many = np.unique(tail[tail > 0], return_counts=True)
    scale = max(0, uses - int(head.sum())) / max(1, int(np.dot(values, many)))
    times = np.concatenate([head, values * (scale / ratio)])
    stands = np.concatenate([np.ones(len(head)), many * float(ratio)])
    order = np.argsort(-times, kind="stable")
    ranks, used = (np.cumsum([0, *of[order]]) for of in (stands, stands * times))
    at = np.geomspace(1, max(1, ranks[-1]), _QUANTILES)
    return np.stack([at / at[-1], np.interp(at, ranks, used) / max(1, used[-1])], axis=1).tolist()  # type: ignore[no-any-return]
