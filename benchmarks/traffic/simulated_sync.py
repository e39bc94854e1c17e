"""A model of the synchronisation of workers' caches, and the rows that travel for it.

* `Bounded`: HET's. A row is fetched whose clock at the server is past the pull bound, and pushed past the
  push bound.
* `OnDemand`: exact. A worker pushes what another one needs in the next step, and fetches again what another
  one has used since (docs/planning.md).
* `Directory`: exact, by Herald's strict rule: all know who holds the newest copy of a row, and who has
  unsent updates of it. A lone user's updates stay with it until another worker needs the row.

Rows are those that benchmarks/traffic counts, one by one (tests/python/benchmarks/test_family.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.traffic.goals import CLASSES
from benchmarks.traffic.simulated_cache import NEVER, BoolArray, Cache, Clairvoyant, Int32Array, Stream

Step = Sequence[Int32Array]
"""Unique ids of each worker."""


class Sync(Protocol):
    """What a system does with copies of rows; w is a worker, ids are its."""

    def stale(self, w: int, ids: Int32Array) -> BoolArray:
        """Which cached rows are fetched again before they are read."""

    def fetched(self, w: int, ids: Int32Array) -> None:
        """These rows have come."""

    def ticked(self, w: int, ids: Int32Array) -> None:
        """These rows have been updated in the cache."""

    def clean(self, w: int, ids: Int32Array) -> BoolArray:
        """Which of these rows cause no push by going."""

    def left(self, w: int, ids: Int32Array) -> Int32Array:
        """These rows go; returns those that are pushed for it."""

    def end(self, now: Step) -> None:
        """All have written the rows of a step."""

    def push(self, now: Step, following: Step | None) -> list[int]:
        """Pushes what must be before the next step; returns how many rows of each worker."""

    def wanted(self, w: int, following: Step) -> Int32Array:
        """Which rows others need from this worker in the next step."""


def most_unsent(bound: int) -> int:
    """Returns the unsent ticks of a row that are not pushed yet (SyncPolicy::unsent)."""
    return bound if bound < 4 or bound == NEVER else bound - 1


class Bounded:
    """HET's bounds, "PULL/PUSH", "BOTH" or "unbounded", in ticks."""

    def __init__(self, bound: str, workers: int, distinct: int) -> None:
        pull, _, push = bound.partition("/")
        self._pull, most = (NEVER if of == "unbounded" else int(of) for of in (pull, push or pull))
        self._most = most_unsent(most)
        self._clocks = np.zeros(distinct, np.int32)
        self._base, self._unsent = (np.zeros((workers, distinct), np.int32) for _ in range(2))

    def stale(self, w: int, ids: Int32Array) -> BoolArray:
        which: BoolArray = self._clocks[ids] - self._base[w][ids] > self._pull
        return which

    def fetched(self, w: int, ids: Int32Array) -> None:
        self._base[w][ids] = self._clocks[ids]

    def ticked(self, w: int, ids: Int32Array) -> None:
        self._unsent[w][ids] += 1

    def clean(self, w: int, ids: Int32Array) -> BoolArray:
        unsent = self._unsent[w][ids]
        which: BoolArray = (unsent == 0) | (unsent > self._most)  # which are pushed anyhow
        return which

    def left(self, w: int, ids: Int32Array) -> Int32Array:
        return self._send(w, ids[self._unsent[w][ids] > 0])

    def end(self, now: Step) -> None:
        pass

    def push(self, now: Step, following: Step | None) -> list[int]:
        return [len(self._send(w, ids[self._unsent[w][ids] > self._most])) for w, ids in enumerate(now)]

    def wanted(self, w: int, following: Step) -> Int32Array:
        return following[w][:0]

    def _send(self, w: int, ids: Int32Array) -> Int32Array:
        ticks = self._unsent[w][ids]
        self._clocks[ids] += ticks
        self._base[w][ids] += ticks
        self._unsent[w][ids] = 0
        return ids


class OnDemand:
    """Exact, from the stream of all workers' samples: no clock, and no directory."""

    def __init__(self, workers: int, distinct: int) -> None:
        self._unsent, self._moved = (np.zeros((workers, distinct), bool) for _ in range(2))

    def stale(self, w: int, ids: Int32Array) -> BoolArray:
        which: BoolArray = self._moved[w][ids]
        return which

    def fetched(self, w: int, ids: Int32Array) -> None:
        self._moved[w][ids] = False

    def ticked(self, w: int, ids: Int32Array) -> None:
        self._unsent[w][ids] = True

    def clean(self, w: int, ids: Int32Array) -> BoolArray:
        which: BoolArray = ~self._unsent[w][ids]
        return which

    def left(self, w: int, ids: Int32Array) -> Int32Array:
        return self._send(w, ids)

    def end(self, now: Step) -> None:
        for w in range(len(now)):
            self._moved[w][_of_others(w, now)] = True

    def push(self, now: Step, following: Step | None) -> list[int]:
        if following is None:
            return [0] * len(now)
        return [len(self._send(w, np.unique(_of_others(w, following)))) for w in range(len(now))]

    def wanted(self, w: int, following: Step) -> Int32Array:
        return _of_others(w, following)

    def _send(self, w: int, ids: Int32Array) -> Int32Array:
        sent: Int32Array = ids[self._unsent[w][ids]]
        self._unsent[w][sent] = False
        return sent


def _of_others(w: int, step: Step) -> Int32Array:
    return np.concatenate([step[w][:0], *(ids for other, ids in enumerate(step) if other != w)])


class Directory:
    """Herald's strict rule. Sets of workers are words: bit w stands for worker w.

    Attributes:
      newest: whose copy of a row is the newest, uint32 `[distinct]`.
    """

    def __init__(self, workers: int, distinct: int) -> None:
        if workers > 32:
            raise ValueError(f"workers is {workers}; a directory of the model has 32 at most")
        self.newest, self._dirty, self._users = (np.zeros(distinct, np.uint32) for _ in range(3))

    def stale(self, w: int, ids: Int32Array) -> BoolArray:
        which: BoolArray = self.newest[ids] & bit(w) == 0
        return which

    def fetched(self, w: int, ids: Int32Array) -> None:
        self.newest[ids] |= bit(w)

    def ticked(self, w: int, ids: Int32Array) -> None:
        self._dirty[ids] |= bit(w)

    def clean(self, w: int, ids: Int32Array) -> BoolArray:
        which: BoolArray = self._dirty[ids] & bit(w) == 0
        return which

    def left(self, w: int, ids: Int32Array) -> Int32Array:
        going = ids[~self.clean(w, ids)]
        self._dirty[going] &= ~bit(w)
        return going

    def end(self, now: Step) -> None:
        used, users = self._users_of(now)
        self.newest[used] = np.where(single(users), users, 0)

    def push(self, now: Step, following: Step | None) -> list[int]:
        if following is None:
            return [0] * len(now)
        used, users = self._users_of(following)
        dirty = self._dirty[used]
        sent = (dirty != 0) & ~(single(dirty) & (dirty == users))
        used, dirty = used[sent], dirty[sent]  # of several workers that have updated a row none is newest
        self._dirty[used] = 0
        return [int((dirty & bit(w) != 0).sum()) for w in range(len(now))]

    def wanted(self, w: int, following: Step) -> Int32Array:
        return _of_others(w, following)

    def _users_of(self, step: Step) -> tuple[Int32Array, npt.NDArray[np.uint32]]:
        """Returns the rows of a step, and the set of workers that use each."""
        used = np.unique(np.concatenate(step))
        self._users[used] = 0
        for w, ids in enumerate(step):
            self._users[ids] |= bit(w)
        return used, self._users[used]


def bit(w: int) -> np.uint32:
    """Returns the set of one worker."""
    return np.uint32(1 << w)


def single(words: npt.NDArray[np.uint32]) -> BoolArray:
    """Returns which sets have one worker."""
    which: BoolArray = (words != 0) & (words & (words - np.uint32(1)) == 0)
    return which


@dataclasses.dataclass
class Counts:
    """What a run has counted, of all workers.

    Attributes:
      rows: by class.
      uses: unique ids of batches.
      pulls, pushes: steps of a worker in which a row was pulled, or pushed by a bound or a demand.
      steps: of a worker.
    """

    rows: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    uses: int = 0
    pulls: int = 0
    pushes: int = 0
    steps: int = 0

    def read(self, uses: int, missing: int, stale: int) -> None:
        """Counts a read of one worker."""
        self.rows["miss_pull"] += missing
        self.rows["update_pull"] += stale
        self.uses += uses
        self.pulls += missing + stale > 0
        self.steps += 1

    def left(self, rows: int, wanted: int) -> None:
        """Counts rows that one worker pushed since they went, of which some would have been in any case."""
        self.rows["bound_push"] += wanted
        self.rows["evict_push"] += rows - wanted

    def pushed(self, rows: int) -> None:
        """Counts what one worker pushed at the end of a step."""
        self.rows["bound_push"] += rows
        self.pushes += rows > 0


def simulate(
    steps: int, step_of: Callable[[int], Step], caches: Sequence[Cache], sync: Sync, first: int
) -> Counts:
    """Runs workers in lock-step: all read, then all write.

    As benchmarks/traffic counts them, evict_push has the rows that go, are none of the step's batch, and are
    not what others need next.

    Args:
      steps: how many.
      step_of: returns the batches of a step; asked for each once, in order, when the step before has ended.
      caches: of the workers.
      sync: of all of them.
      first: the step from which rows are counted.
    """
    counts = Counts()
    now = step_of(0)
    for step in range(steps):
        if step == first:
            counts = Counts()
        for w, (cache, ids) in enumerate(zip(caches, now, strict=True)):
            hits, misses = cache.read(step, ids)
            stale = hits[sync.stale(w, hits)]
            sync.fetched(w, misses)
            sync.fetched(w, stale)
            counts.read(len(ids), len(misses), len(stale))
        gone = []
        for w, (cache, ids) in enumerate(zip(caches, now, strict=True)):
            sync.ticked(w, ids)
            gone.append(sync.left(w, cache.shrink(functools.partial(sync.clean, w))))
        sync.end(now)
        following = step_of(step + 1) if step + 1 < steps else None
        for w, ids in enumerate(gone):
            wanted = np.concatenate([now[w], *([sync.wanted(w, following)] if following is not None else [])])
            counts.left(len(ids), int(np.isin(ids, wanted).sum()))
        for rows in sync.push(now, following):
            counts.pushed(rows)
        if following is not None:
            now = following
    return counts


def clairvoyant(
    path: Path, workers: int, batch: int, bound: str, rows: int, warm: int
) -> tuple[dict[str, float], float]:
    """Counts the rows that travel when every worker's cache knows the future.

    No cache of as many rows misses fewer; and each has to push the update of a row that goes, if it has one.

    Args:
      path: of the stream's file.
      workers, batch: N, and the samples of one worker in a step.
      bound: "PULL/PUSH", "0" or "unbounded".
      rows: that a worker may keep from one step to the next.
      warm: samples, of all workers, that are not counted.

    Returns:
      Rows of one worker in one step by class, and the share that is saved of a pull and a push of each row.
    """
    stream = Stream(path, workers, batch)
    batches = stream.batches()
    caches = [Cache(Clairvoyant(of, stream.distinct), rows, stream.distinct) for of in batches]
    sync = Bounded(bound, workers, stream.distinct)
    first = -(-warm // (workers * batch))
    counts = simulate(stream.steps, lambda step: [of[step] for of in batches], caches, sync, first)
    by_class = {name: count / counts.steps for name, count in counts.rows.items()}
    return by_class, 1 - sum(counts.rows.values()) / (2 * counts.uses)
