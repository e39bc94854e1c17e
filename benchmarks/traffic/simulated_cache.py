"""A model of workers' caches: which rows are there, and which go. Synchronisation is simulated_sync.py's.

The model has neither frames nor a client. Its LFU is the client's, line by line (cache/eviction_policy.cc,
hit_watch.h): a batch's rows come in the order of its plan (partition, then first appearance), rows that are
there are touched before others come, and the cache is cut to its size at the end of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.traffic.streams import read_stream

NEVER = np.iinfo(np.int32).max // 2
GROUP = 8  # of 64 partitions, those that a table lies in (core/wire/layout.h)

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Clean = Callable[[Int32Array], BoolArray]


def partitions_of(keys: Int64Array) -> Int64Array:
    """Returns which partition of its table's group each key is in (base/hash.h), int64 of the keys' shape."""
    words = keys.astype(np.int64).view(np.uint64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        words = (words ^ (words >> np.uint64(33))) * np.uint64(factor)
    words = words ^ (words >> np.uint64(33))
    return ((words >> np.uint64(16) & np.uint64(0xFFFF)) * np.uint64(GROUP) >> np.uint64(16)).astype(int)


class Stream:
    """The batches of N workers over a stream's file.

    Attributes:
      ids: numbers of keys, uint32 `[samples, fields]`.
      distinct: how many keys there are.
      steps: whole global batches.
    """

    def __init__(self, path: Path, workers: int, batch: int) -> None:
        keys, self.ids = read_stream(path)
        self.workers, self.batch, self.distinct = workers, batch, len(keys)
        self.steps = len(self.ids) // (workers * batch)
        self._partition = partitions_of(keys)

    def global_ids(self, step: int) -> npt.NDArray[np.uint32]:
        """Returns the ids of a step's samples, uint32 `[workers * batch, fields]`."""
        samples = self.workers * self.batch
        return self.ids[step * samples : (step + 1) * samples]

    def unique(self, ids: npt.NDArray[np.uint32]) -> Int32Array:
        """Returns the unique ids of samples in the order of the client's plan, int32."""
        of, first = np.unique(ids, return_index=True)
        return of[np.lexsort((first, self._partition[of]))].astype(np.int32)

    def split(self, ids: npt.NDArray[np.uint32]) -> list[Int32Array]:
        """Returns each worker's unique ids of a global batch, whose samples stand worker by worker."""
        return [self.unique(part) for part in ids.reshape(self.workers, self.batch, -1)]

    def batches(self, order: Int64Array | None = None) -> list[list[Int32Array]]:
        """Returns each worker's unique ids of each step.

        Args:
          order: numbers of samples, int64 `[steps, workers, batch]`, of each step's workers; default as they
            come.
        """
        steps = range(self.steps)
        ids = (self.global_ids(step) if order is None else self.ids[order[step].ravel()] for step in steps)
        return [list(of) for of in zip(*(self.split(of_step) for of_step in ids), strict=True)]


def next_uses(batches: list[Int32Array]) -> list[Int32Array]:
    """Returns for every id of every batch the step that uses it next, or NEVER."""
    used = np.concatenate(batches)
    step = np.repeat(np.arange(len(batches), dtype=np.int32), [len(of) for of in batches])
    order = np.argsort(used, kind="stable")
    same = used[order][1:] == used[order][:-1]
    following = np.full(len(used), NEVER, np.int32)
    following[order[:-1][same]] = step[order[1:][same]]
    return np.split(following, np.cumsum([len(of) for of in batches])[:-1])


class Lfu:
    """The client's LFU: rows by how often they were used, then by the last change of that; both age."""

    MOST = 254

    def __init__(self, capacity: int, distinct: int) -> None:
        self._uses = np.full(distinct, -1, np.int16)  # -1: not there
        self._at = np.zeros(distinct, np.int64)
        self._now = 0
        self._age_every, self._since = 12 * max(capacity, 64), 0
        # HitWatch: a window of uses, of which some hit; whether the last missed; the share that hit before.
        self._window = max(256, capacity // 8)
        self._count = self._hits = 0
        self._missed = False
        self._share = 0.0

    def read(self, step: int, hits: Int32Array, misses: Int32Array) -> None:
        """Counts a use of rows that were there and of others, which come."""
        for ids, hit in ((hits, True), (misses, False)):
            while len(ids):
                ends = hit and self._missed and self._count >= self._window
                some = 1 if ends else min(len(ids), self._age_every - self._since)
                fell = ends and self._end_window()
                self._move(ids[:some], hit)
                self._count_uses(some, hit)
                if fell or self._since >= self._age_every:
                    self._age(4 if fell else 2)
                ids = ids[some:]

    def keys(self, lines: Int32Array, clean: Clean) -> Int64Array:
        """Returns numbers of these rows, int64: the smallest goes first."""
        return self._uses[lines].astype(np.int64) << 48 | self._at[lines]

    def leave(self, ids: Int32Array) -> None:
        """Forgets rows that go."""
        self._uses[ids] = -1

    def _move(self, ids: Int32Array, hit: bool) -> None:
        moved = self._uses[ids] < self.MOST
        self._at[ids[moved]] = self._now + np.flatnonzero(moved)
        self._uses[ids[moved]] += 1  # of a row that comes: 0
        self._now += len(ids)

    def _count_uses(self, uses: int, hit: bool) -> None:
        self._since += uses
        self._count += uses
        self._hits += uses * hit
        self._missed = not hit

    def _end_window(self) -> bool:
        expected, share = self._share * self._count, self._hits / self._count
        fell = self._hits < 0.75 * expected - 3 * math.sqrt(expected)
        if share > self._share:
            self._share = share
        else:
            self._share = 0.9 * self._share if fell else self._share + (share - self._share) / 8
        self._count = self._hits = 0
        return fell

    def _age(self, by: int) -> None:
        self._since = 0
        lines = np.flatnonzero(self._uses >= 0)
        order = lines[np.lexsort((self._at[lines], self._uses[lines]))]
        self._at[order] = self._now + np.arange(len(order))
        self._now += len(order)
        self._uses[lines] //= by


class Planned:
    """LFU of rows that the next batches do not use; then those that they use last (docs/planning.md).

    Rows that are used next in the same step go in any order, so counters are the client's up to that.
    """

    def __init__(self, base: Lfu, batches: list[Int32Array], distinct: int, window: int) -> None:
        self._base, self._window, self._step = base, window, 0
        self._batches, self._next = batches, next_uses(batches)
        self._used_next = np.full(distinct, NEVER, np.int32)

    def read(self, step: int, hits: Int32Array, misses: Int32Array) -> None:
        self._base.read(step, hits, misses)
        self._step = step
        self._used_next[self._batches[step]] = self._next[step]

    def keys(self, lines: Int32Array, clean: Clean) -> Int64Array:
        last = self._step + self._window
        used = self._used_next[lines].astype(np.int64)
        return np.where(used <= last, np.int64(1 << 62) - used, self._base.keys(lines, clean))

    def leave(self, ids: Int32Array) -> None:
        self._base.leave(ids)


class Clairvoyant:
    """What is used last goes (Belady's rule), and of that first what need not be pushed for it."""

    def __init__(self, batches: list[Int32Array], distinct: int) -> None:
        self._batches, self._next = batches, next_uses(batches)
        self._used_next = np.zeros(distinct, np.int32)

    def read(self, step: int, hits: Int32Array, misses: Int32Array) -> None:
        self._used_next[self._batches[step]] = self._next[step]

    def keys(self, lines: Int32Array, clean: Clean) -> Int64Array:
        return -(2 * self._used_next[lines].astype(np.int64) + clean(lines))

    def leave(self, ids: Int32Array) -> None:
        pass


Policy = Lfu | Planned | Clairvoyant


class Cache:
    """The rows that one worker holds: `held`, bool `[distinct]`, and `lines`, their ids."""

    def __init__(self, policy: Policy, capacity: int, distinct: int) -> None:
        self._policy, self._capacity = policy, capacity
        self.held = np.zeros(distinct, bool)
        self.lines = np.zeros(0, np.int32)

    def read(self, step: int, ids: Int32Array) -> tuple[Int32Array, Int32Array]:
        """Returns which of the batch's rows were there, and which were not; all are, now."""
        here = self.held[ids]
        hits, misses = ids[here], ids[~here]
        self._policy.read(step, hits, misses)
        self.held[misses] = True
        self.lines = np.concatenate([self.lines, misses])
        return hits, misses

    def shrink(self, clean: Clean) -> Int32Array:
        """Returns the rows that go at the end of a step; `clean` says which need no push to go."""
        count = len(self.lines) - self._capacity
        if count <= 0:
            return self.lines[:0]
        order = np.argpartition(self._policy.keys(self.lines, clean), count - 1)
        going, self.lines = self.lines[order[:count]], self.lines[order[count:]]
        self.held[going] = False
        self._policy.leave(going)
        return going
