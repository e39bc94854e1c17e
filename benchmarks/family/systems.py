"""The systems of benchmarks/family that are simulated, each as one line of its table."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.family.herald import ByCaches, by_last_users
from benchmarks.family.others import Rows, bagpipe, fae, scratchpipe
from benchmarks.traffic.simulated_cache import Cache, Clairvoyant, Int32Array, Lfu, Planned, Stream
from benchmarks.traffic.simulated_sync import Bounded, Counts, Directory, OnDemand, Sync, simulate

Figures = dict[str, Any]
Batches = list[list[Int32Array]]
"""Unique ids of each worker, of each step."""

WINDOW = 32
HOT = (0.01, 0.05, 0.1)


@dataclasses.dataclass
class Trace:
    """One stream before N workers with caches.

    Attributes:
      path: of the stream's file, as it comes.
      placed: of its file in the order of a placement.
      workers: N.
      batch: samples of a worker in a step.
      cache: share of the distinct rows that a cache may hold.
      warm: samples that are not counted.
    """

    path: Path
    placed: Path
    workers: int
    batch: int
    cache: float
    warm: int

    @functools.cached_property
    def stream(self) -> Stream:
        """As it comes."""
        return Stream(self.path, self.workers, self.batch)

    @property
    def capacity(self) -> int:
        """Rows of a cache."""
        return round(self.cache * self.stream.distinct)

    @property
    def first(self) -> int:
        """The step from which rows are counted."""
        return -(-self.warm // (self.workers * self.batch))

    @functools.cached_property
    def batches(self) -> Batches:
        """Of each worker, as they come."""
        return self.stream.batches()

    @functools.cached_property
    def placed_batches(self) -> Batches:
        """Of each worker, placed."""
        return Stream(self.placed, self.workers, self.batch).batches()

    def caches(self) -> list[Cache]:
        """Empty ones, LFU."""
        size = self.stream.distinct
        return [Cache(Lfu(self.capacity, size), self.capacity, size) for _ in range(self.workers)]

    def count(self, batches: Batches, sync: Sync, caches: list[Cache] | None = None) -> Counts:
        """Runs workers with these batches, and with LFU caches or those that are given."""
        steps = self.stream.steps
        return simulate(
            steps, lambda step: [of[step] for of in batches], caches or self.caches(), sync, self.first
        )


def of_counts(counts: Counts, exact: str = "yes") -> Figures:
    """Returns the figures of a worker's step."""
    return {
        "rows_by_class": {name: rows / counts.steps for name, rows in counts.rows.items()},
        "between_rows": 0.0,
        "waits": (counts.pulls + counts.pushes) / counts.steps,
        "lag": {"mean": 0.0, "max": 0} if exact == "yes" else None,
        "exact": exact,
    }


def of_rows(rows: Rows, waits: float, exact: str) -> Figures:
    """Returns the figures of a system without classes of its own: pulls are misses, pushes evictions."""
    by_class = {"miss_pull": rows.pulled, "update_pull": 0.0, "bound_push": 0.0, "evict_push": rows.pushed}
    return {
        "rows_by_class": by_class,
        "between_rows": rows.between,
        "waits": waits,
        "lag": {"mean": 0.0, "max": 0},
        "exact": exact,
        "more": rows.more,
    }


def on_demand(trace: Trace, batches: Batches, caches: list[Cache] | None = None) -> Figures:
    """Exact, from the stream of all workers' samples."""
    return of_counts(trace.count(batches, OnDemand(trace.workers, trace.stream.distinct), caches))


def by_users(trace: Trace, alone: bool) -> Figures:
    """On demand, samples assigned by who used their rows last."""
    return on_demand(trace, trace.stream.batches(by_last_users(trace.stream, alone)))


def planned(trace: Trace) -> Figures:
    """On demand, and caches that know the next batches."""
    size = trace.stream.distinct
    policies = [Planned(Lfu(trace.capacity, size), of, size, WINDOW) for of in trace.batches]
    return on_demand(trace, trace.batches, [Cache(policy, trace.capacity, size) for policy in policies])


def herald(trace: Trace, regret: bool) -> Figures:
    """The strict rule, samples assigned by what the caches hold."""
    caches, directory = trace.caches(), Directory(trace.workers, trace.stream.distinct)
    step_of = ByCaches(trace.stream, caches, directory, regret).step
    return of_counts(simulate(trace.stream.steps, step_of, caches, directory, trace.first))


def belady(trace: Trace, bound: str) -> Figures:
    """HET's bounds, and caches that know all of the future."""
    size = trace.stream.distinct
    caches = [Cache(Clairvoyant(of, size), trace.capacity, size) for of in trace.batches]
    counts = trace.count(trace.batches, Bounded(bound, trace.workers, size), caches)
    if bound == "0":
        return of_counts(counts)
    return of_counts(counts, "no") | {"waits": counts.pulls / counts.steps}  # no push is waited for


def scratch(trace: Trace) -> Figures:
    """Whether ScratchPipe's rows fit: no rows that travel, for one trainer has them all."""
    return {"more": scratchpipe(trace.stream, trace.first, trace.capacity)}


def hot(trace: Trace, share: float) -> Figures:
    """FAE; a cold step waits for its pull and its push."""
    rows = fae(trace.stream, trace.first, share)
    return of_rows(rows, 2 * (1 - rows.more["hot_inputs"]), "no")


def bag(trace: Trace, partitioned: bool) -> Figures:
    """BagPipe; rows come before their step."""
    return of_rows(bagpipe(trace.stream, trace.first, partitioned), 0.0, "yes")


def systems(placement: str) -> dict[str, Callable[[Trace], Figures]]:
    """Returns what computes each line, by its name; `placement` is that of the trace's placed file."""
    return {
        "on demand": lambda trace: on_demand(trace, trace.batches),
        f"on demand, window {WINDOW}": planned,
        f"on demand, {placement}": lambda trace: on_demand(trace, trace.placed_batches),
        "on demand, lone last user": functools.partial(by_users, alone=True),
        "on demand, last users": functools.partial(by_users, alone=False),
        "Herald, greedy": functools.partial(herald, regret=False),
        "Herald, by regret": functools.partial(herald, regret=True),
        "BagPipe, replicated": functools.partial(bag, partitioned=False),
        "BagPipe, partitioned": functools.partial(bag, partitioned=True),
        "ScratchPipe": scratch,
        **{f"FAE, {100 * share:.0f} % hot": functools.partial(hot, share=share) for share in HOT},
        "Belady, s=0": functools.partial(belady, bound="0"),
        "Belady, s=100": functools.partial(belady, bound="100/100"),
    }


def rows_without_cache(trace: Trace) -> float:
    """Returns the rows of a worker's step that pulls and pushes each row of its batch."""
    uses = [len(ids) for of in trace.batches for ids in of[trace.first :]]
    return 2 * float(np.mean(uses))
