"""Systems of which het_tf has no part that could be measured: their rows, counted on the same stream.

BagPipe (SOSP 2023), ScratchPipe (ISCA 2022) and FAE (VLDB 2022), as docs/planning.md describes them. Where a
description leaves something open, the choice is the one that favours the system.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from benchmarks.traffic.simulated_cache import NEVER, Stream, next_uses

BAGPIPE_WINDOW = 200
FAE_ROUNDS = 2
"""Rounds of a cold and a hot phase in the stream: each takes half of the inputs (FAE's rate of 50 %)."""


@dataclasses.dataclass
class Rows:
    """Rows of one worker in one step.

    Attributes:
      pulled: from the servers, the first time or again.
      pushed: to the servers.
      between: to and from other workers.
      more: what other systems have not.
    """

    pulled: float
    pushed: float
    between: float = 0.0
    more: dict[str, float] = dataclasses.field(default_factory=dict)


def all_reduced(rows: float, workers: int) -> float:
    """Returns the rows that a worker sends and receives when all reduce a block of rows in a ring."""
    return rows * 4 * (workers - 1) / workers


def bagpipe(stream: Stream, first: int, partitioned: bool, window: int = BAGPIPE_WINDOW) -> Rows:
    """Counts BagPipe's rows: one cache of all trainers, filled and emptied by a window.

    A row comes when the window first has it and goes at its last use there. A row that one trainer uses,
    once in the window, stays with that one and is written back.

    Args:
      stream: of all workers.
      first: the step from which rows are counted.
      partitioned: whether each row is in the cache of one trainer, which sends it to those that use it and
        gets their updates; else every trainer has a copy, and updates are reduced.
      window: batches that are looked at.
    """
    steps, workers = range(stream.steps), stream.workers
    used = [np.unique(stream.global_ids(step)).astype(np.int32) for step in steps]
    following = next_uses(used)
    last_use = np.full(stream.distinct, -NEVER, np.int32)
    copies = 1 if partitioned else workers
    pulled = pushed = held = most = 0
    between = 0.0
    for step in steps:
        ids, then = used[step], following[step]
        comes, goes = step - last_use[ids] > window, then - step > window
        last_use[ids] = step
        batches = stream.split(stream.global_ids(step))
        users = np.bincount(np.concatenate(batches), minlength=stream.distinct)[ids]
        shared = ~(comes & goes & (users == 1))
        held += int(comes.sum())
        if step >= first:
            pulled += copies * int((comes & shared).sum()) + int((~shared).sum())
            pushed += int(goes.sum())
            most = max(most, held)
            if partitioned:  # by the number of the key: one user in W is the row's own trainer
                sent = np.zeros(stream.distinct, bool)
                sent[ids[shared]] = True
                remote = sum(int((sent[of] & (of % workers != w)).sum()) for w, of in enumerate(batches))
                between += 4 * remote / workers
            else:
                between += all_reduced(int(shared.sum()), workers)
        held -= int(goes.sum())
    parts = stream.steps - first
    return Rows(pulled / workers / parts, pushed / workers / parts, between / parts, {"cached": most})


def scratchpipe(stream: Stream, first: int, capacity: int) -> dict[str, float]:
    """Counts the rows that ScratchPipe's cache must hold: those of three past batches, this and two next.

    Args:
      stream: of all workers; each has a cache for its own batches.
      first: the step from which rows are counted.
      capacity: of a cache.

    Returns:
      `mean` and `most` rows of six batches, and `stalls`, the share of steps whose rows do not fit.
    """
    sizes = []
    for batches in stream.batches():
        for step in range(max(first, 3), stream.steps - 2):
            sizes.append(len(np.unique(np.concatenate(batches[step - 3 : step + 3]))))
    return {
        "mean": float(np.mean(sizes)),
        "most": float(np.max(sizes)),
        "stalls": float(np.mean(np.array(sizes) > capacity)),
    }


def fae(stream: Stream, first: int, share: float) -> Rows:
    """Counts FAE's rows: hot rows at every worker, inputs that have no other ids in phases of their own.

    The hot rows are those that the steps before `first` use most. In a hot phase the union of their updates
    is reduced, and no server is asked; in a cold one every row is pulled and pushed. Between phases each
    worker fetches the hot rows, and one of the workers writes each of them back.

    Args:
      stream: of all workers.
      first: the step from which rows are counted.
      share: of the distinct rows that are hot.
    """
    counted = stream.steps - first
    begin = first * stream.workers * stream.batch
    uses = np.bincount(stream.ids[:begin].ravel(), minlength=stream.distinct)
    hot = np.zeros(stream.distinct, bool)
    hot[np.argsort(-uses, kind="stable")[: round(share * stream.distinct)]] = True
    ids = stream.ids[begin : begin + counted * stream.workers * stream.batch]
    is_hot = hot[ids]
    all_hot = is_hot.all(1)
    block = _mean_unique(ids[all_hot], stream.workers * stream.batch)
    cold = _mean_unique(ids[~all_hot], stream.batch)
    of_hot = float(all_hot.mean())
    copies = FAE_ROUNDS * int(hot.sum()) / counted
    more = {"hot_uses": float(is_hot.mean()), "hot_inputs": of_hot, "copied": copies, "cold_batch": cold}
    cold *= 1 - of_hot
    between = of_hot * all_reduced(block, stream.workers)
    return Rows(cold + copies, cold + copies / stream.workers, between, more)


def _mean_unique(ids: npt.NDArray[np.uint32], samples: int) -> float:
    """Returns the mean number of distinct ids in a batch of so many samples."""
    batches = [ids[begin : begin + samples] for begin in range(0, len(ids) - samples + 1, samples)]
    if not batches:
        return float(len(np.unique(ids)))
    return float(np.mean([len(np.unique(batch)) for batch in batches]))
