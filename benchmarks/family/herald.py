"""Herald's assignment of samples to workers (NSDI 2024), for benchmarks/family.

A sample's score at a worker is how many of its ids the worker has. The paper's greedy takes samples in their
order, and gives each to the best worker that has room; by regret, those come first that lose most by another
worker. The rows that "a worker has" are either the newest copies in its cache, as a directory knows them, or
those that it was among the last to use, which needs nothing but the stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.traffic.simulated_cache import BoolArray, Cache, Int32Array, Int64Array, Stream
from benchmarks.traffic.simulated_sync import Directory, bit, single


def assign(scores: Int64Array, batch: int, step: int, regret: bool) -> Int64Array:
    """Gives each sample to a worker.

    Args:
      scores: int `[samples, workers]`; of equal ones, worker `-step mod workers` is the first.
      batch: samples that each worker takes.
      step: the number of the step.
      regret: whether samples come by what they lose at the second best worker, else in their order.

    Returns:
      Numbers of samples, int64 `[workers, batch]`; a row ascends.
    """
    samples, workers = scores.shape
    ranks = np.argsort(-(scores * workers - (np.arange(workers) + step) % workers), axis=1)
    order = np.arange(samples)
    if regret and workers > 1:
        best = np.take_along_axis(scores, ranks[:, :2], 1)
        order = np.argsort(best[:, 1] - best[:, 0], kind="stable")
    room = [batch] * workers
    owners = np.empty(samples, np.int64)
    for sample, of in zip(order.tolist(), ranks[order].tolist(), strict=True):
        owner = next(w for w in of if room[w] > 0)
        owners[sample] = owner
        room[owner] -= 1
    return np.argsort(owners, kind="stable").reshape(workers, batch)


def by_last_users(stream: Stream, alone: bool = False) -> Int64Array:
    """Returns the order by regret where a worker has the rows that it was among the last to use.

    Args:
      stream: of all workers.
      alone: whether a row that several used in the last step that has it is nobody's.

    Returns:
      Numbers of samples, int64 `[steps, workers, batch]`.
    """
    users = np.zeros(stream.distinct, np.uint32)
    orders = np.empty((stream.steps, stream.workers, stream.batch), np.int64)
    for step in range(stream.steps):
        ids = stream.global_ids(step)
        of = users[ids]
        scores = np.stack([(of & bit(w) != 0).sum(1) for w in range(stream.workers)], 1)
        order = assign(scores, stream.batch, step, regret=True)
        users[ids] = 0
        for w, samples in enumerate(order):
            users[np.unique(ids[samples])] |= bit(w)
        if alone:
            users[ids] *= single(users[ids])
        orders[step] = order + step * stream.workers * stream.batch
    return orders


class ByCaches:
    """Batches of each step by what the caches hold when the step before has ended."""

    def __init__(self, stream: Stream, caches: Sequence[Cache], directory: Directory, regret: bool) -> None:
        self._stream, self._caches, self._directory, self._regret = stream, caches, directory, regret

    def step(self, step: int) -> list[Int32Array]:
        """Returns each worker's unique ids."""
        ids = self._stream.global_ids(step)
        scores = np.stack([self._has(w, ids).sum(1) for w in range(self._stream.workers)], 1)
        order = assign(scores, self._stream.batch, step, self._regret)
        return self._stream.split(ids[order.ravel()])

    def _has(self, w: int, ids: npt.NDArray[np.uint32]) -> BoolArray:
        newest = self._directory.newest[ids] & bit(w) != 0
        has: BoolArray = newest & self._caches[w].held[ids]
        return has
