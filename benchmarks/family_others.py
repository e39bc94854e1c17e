"""Systems of which het_tf has no part that could be measured: their rows, counted on the same stream.

BagPipe (SOSP 2023), ScratchPipe (ISCA 2022) and FAE (VLDB 2022), as docs/planning.md describes them. Where a
description leaves something open, the choice is the one that favours the system.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from simulated_cache import NEVER, Int32Array, Int64Array, Stream, next_uses

BAGPIPE_WINDOW = 200
FAE_ROUNDS = 2
"""Rounds of a cold and a hot phase in the stream: each takes half of the inputs (FAE's rate of 50 %)."""


@dataclasses.dataclass
class Rows:
    """Rows of one worker in one step.

    Attributes:
      pulled: from the servers, the first time or again.
      pushed: to the servers.
      reduced: in the block that all workers reduce.
      more: figures of the system alone.
    """

    pulled: float
    pushed: float
    reduced: float = 0.0
    more: dict[str, float] = dataclasses.field(default_factory=dict)


def bagpipe(stream: Stream, first: int, window: int = BAGPIPE_WINDOW) -> Rows:
    """Counts BagPipe's rows: a cache that all trainers have copies of, filled and emptied by a window.

    A row comes when the window first has it and goes at its last use there. Updates of its rows are reduced
    by all trainers. A row that one trainer uses, once in the window, stays with that one and is written back.

    Args:
      stream: of all workers.
      first: the step from which rows are counted.
      window: batches that are looked at.
    """
    steps = range(stream.steps)
    used = [np.unique(stream.global_ids(step)).astype(np.int32) for step in steps]
    following = next_uses(used)
    last_use = np.full(stream.distinct, -NEVER, np.int32)
    fetched = once = left = reduced = held = most = 0
    for step in steps:
        ids, then = used[step], following[step]
        comes, goes = step - last_use[ids] > window, then - step > window
        last_use[ids] = step
        users = np.zeros(stream.distinct, np.int8)
        for part in stream.split(stream.global_ids(step)):
            users[part] += 1
        own = comes & goes & (users[ids] == 1)
        held += int(comes.sum())
        if step >= first:
            fetched += int((comes & ~own).sum())
            once += int(own.sum())
            left += int(goes.sum())
            reduced += int((~own).sum())
            most = max(most, held)
        held -= int(goes.sum())
    counted, workers = stream.steps - first, stream.workers
    pulled = (fetched + once / workers) / counted
    return Rows(pulled, left / workers / counted, reduced / counted, {"cached": most})


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
    reduced = _mean_unique(ids[all_hot], stream.workers * stream.batch)
    cold = _mean_unique(ids[~all_hot], stream.batch)
    of_hot = float(all_hot.mean())
    copies = FAE_ROUNDS * int(hot.sum()) / counted
    more = {"hot_uses": float(is_hot.mean()), "hot_inputs": of_hot, "copied": copies, "cold_batch": cold}
    cold *= 1 - of_hot
    return Rows(cold + copies, cold + copies / stream.workers, of_hot * reduced, more)


def _mean_unique(ids: Int64Array | Int32Array, samples: int) -> float:
    """Returns the mean number of distinct ids in a batch of so many samples."""
    batches = [ids[begin : begin + samples] for begin in range(0, len(ids) - samples + 1, samples)]
    if not batches:
        return float(len(np.unique(ids)))
    return float(np.mean([len(np.unique(batch)) for batch in batches]))
