"""What any cache must let travel: rows counted by a model of the protocol, its cache knowing the future.

The model has neither frames nor a client: clocks, bounds and unsent updates in numpy arrays. With a cache of
all rows there is nothing to decide, and its rows are those that benchmarks/traffic counts, one by one (a test
sees to it). A smaller cache keeps, after every step, the rows that are used again soonest (Belady's rule). No
cache of as many rows misses fewer; and each has to push the update of a row that goes, if there is one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from traffic_goals import CLASSES
from traffic_streams import read_stream

NEVER = np.iinfo(np.int32).max // 2

Int32Array = npt.NDArray[np.int32]


def most_unsent(bound: int) -> int:
    """Returns the unsent ticks of a row that are not pushed yet (SyncPolicy::unsent)."""
    return bound if bound < 4 or bound == NEVER else bound - 1


def batches_of(ids: npt.NDArray[np.uint32], worker: int, workers: int, batch: int) -> list[Int32Array]:
    """Returns the unique ids, int32, of each step of a worker, which gets the same samples as there."""
    steps = len(ids) // (workers * batch)
    begins = (np.arange(steps) * workers + worker) * batch
    return [np.unique(ids[begin : begin + batch]).astype(np.int32) for begin in begins]


def next_uses(batches: list[Int32Array]) -> list[Int32Array]:
    """Returns for every id of every batch the step that uses it next, or NEVER."""
    used = np.concatenate(batches)
    step = np.repeat(np.arange(len(batches), dtype=np.int32), [len(of) for of in batches])
    order = np.argsort(used, kind="stable")
    same = used[order][1:] == used[order][:-1]
    following = np.full(len(used), NEVER, np.int32)
    following[order[:-1][same]] = step[order[1:][same]]
    return np.split(following, np.cumsum([len(of) for of in batches])[:-1])


class _Worker:
    """A worker's cache: which rows it holds, and of each row its base clock, unsent ticks and next use."""

    def __init__(self, batches: list[Int32Array], distinct: int) -> None:
        self.batches = batches
        self.next = next_uses(batches)
        self.lines = np.zeros(0, np.int32)
        self.held = np.zeros(distinct, bool)
        self.base, self.unsent, self.used_next = (np.zeros(distinct, np.int32) for _ in range(3))

    def read(self, step: int, clocks: Int32Array, bound: int) -> tuple[int, int]:
        """Returns how many rows were missing, and how many were too old."""
        ids = self.batches[step]
        here = self.held[ids]
        missing = ids[~here]
        old = ids[here]
        old = old[clocks[old] - self.base[old] > bound]
        self.base[missing], self.base[old] = clocks[missing], clocks[old]
        self.held[missing] = True
        self.lines = np.concatenate([self.lines, missing])
        self.used_next[ids] = self.next[step]
        return len(missing), len(old)

    def push(self, ids: Int32Array, clocks: Int32Array) -> int:
        """Pushes these rows' updates, which must be there."""
        ticks = self.unsent[ids]
        clocks[ids] += ticks
        self.base[ids] += ticks
        self.unsent[ids] = 0
        return len(ids)

    def write(self, step: int, clocks: Int32Array, bound: int) -> int:
        """Ticks the batch's rows; returns how many reached the bound and were pushed."""
        ids = self.batches[step]
        self.unsent[ids] += 1
        return self.push(ids[self.unsent[ids] > most_unsent(bound)], clocks)

    def shrink(self, rows: int, clocks: Int32Array) -> int:
        """Lets go what is used last, and of that the rows without updates first; returns how many had one."""
        if len(self.lines) <= rows:
            return 0
        lines = self.lines
        order = np.argpartition(2 * self.used_next[lines] + (self.unsent[lines] == 0), rows)
        self.lines, going = lines[order[:rows]], lines[order[rows:]]
        self.held[going] = False
        return self.push(going[self.unsent[going] > 0], clocks)


def clairvoyant(
    path: Path, workers: int, batch: int, bound: str, rows: int, warm: int
) -> tuple[dict[str, float], float]:
    """Counts the rows that travel when every worker's cache knows the future.

    Args:
      path: of the stream's file.
      workers, batch: N, and the samples of one worker in a step.
      bound: "PULL/PUSH", "0" or "unbounded".
      rows: that a worker may keep from one step to the next.
      warm: samples, of all workers, that are not counted.

    Returns:
      Rows of one worker in one step by class, and the share that is saved of a pull and a push of each row.
    """
    keys, ids = read_stream(path)
    pull, _, push = bound.partition("/")
    most_missed, most_held = (NEVER if of == "unbounded" else int(of) for of in (pull, push or pull))
    of = [_Worker(batches_of(ids, worker, workers, batch), len(keys)) for worker in range(workers)]
    clocks = np.zeros(len(keys), np.int32)
    steps = len(of[0].batches)
    first = -(-warm // (workers * batch))
    counts = dict.fromkeys(CLASSES, 0)
    uses = 0
    for step in range(steps):
        if step == first:
            counts = dict.fromkeys(CLASSES, 0)
            uses = 0
        for worker in of:
            missing, old = worker.read(step, clocks, most_missed)
            counts["miss_pull"] += missing
            counts["update_pull"] += old
            uses += len(worker.batches[step])
        for worker in of:
            counts["bound_push"] += worker.write(step, clocks, most_held)
            counts["evict_push"] += worker.shrink(rows, clocks)
    parts = workers * (steps - first)
    return {name: count / parts for name, count in counts.items()}, 1 - sum(counts.values()) / (2 * uses)
