"""Forecasts the cost of a job: replays its tables, divides its memory, and adds up its step.

Stats ─► thinned samples ─► curves of one worker ─► rows of each cache (budget.py)
               └──────────► all workers, with these rows ─► Replayed of each table ─► Traffic ─► StepTime
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from het_tf.ext.sizing.python.accuracy import cost
from het_tf.ext.sizing.python.budget import Curve, split_budget
from het_tf.ext.sizing.python.cost import Machine, StepTime, step_time
from het_tf.ext.sizing.python.entries import is_kept
from het_tf.ext.sizing.python.replay import Job, Replayed, Sample, Traffic, replay, traffic
from het_tf.ext.sizing.python.stats import Stats, TableStats
from het_tf.python.session import native

_SHARES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)  # the points of a table's curve, as shares of its rows
_SIZES = (0, 16)  # further points: rows travel as float32 without a cache, but not with the smallest one
_FEWEST = 512  # ids that a thinned sample keeps at least
_NEARLY_ALL = 0.9  # share of a table's rows from which a cache need not be full
_STEPS = 8  # steps of the job to replay at least, if the sample has them
_THREADS = 2

Advance = Callable[[int], None]
Points = tuple[tuple[int, float], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The job to forecast.

    Attributes:
      job: Workers, batch, servers.
      machine: Its machines.
      cache_bytes: Memory of a worker's caches; None: a tenth of all rows.
      cache: Arguments of `het_tf.Cache`, without rows and bytes.
      optimizer: Spec of the tables' optimizer, {"name": ...}.
      samples: Samples of the whole job; None: those of the profile.
      replicas: Replicas of each server.
      ram: Memory of a server; None: not limited.
      entries: Approximate number of entries to replay, of all tables together.
    """

    job: Job = dataclasses.field(default_factory=Job)
    machine: Machine = dataclasses.field(default_factory=Machine)
    cache_bytes: int | None = None
    cache: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"name": "row_wise_adagrad"})
    samples: int | None = None
    replicas: int = 0
    ram: int | None = None
    entries: int = 3_000_000


def thinned(sample: Sample, entries: int, least: int) -> Sample:
    """Thins a sample to about `entries`: fewer keys, or a part of the stream if keys are few.

    Args:
      sample: The sample of a table.
      entries: Wanted number of entries.
      least: Samples of the stream to keep in any case.
    """
    keys, samples, ratio, total = sample.keys, sample.samples, sample.ratio, sample.total
    while len(keys) > entries:
        kept = is_kept(keys, 2 * ratio)
        if len(np.unique(keys[kept])) < _FEWEST:
            total = min(total, max(least, int(total * entries / len(keys))))
            first = int(np.searchsorted(samples, total))
            return Sample(keys[:first], samples[:first], total, ratio)
        keys, samples, ratio = keys[kept], samples[kept], 2 * ratio
    return Sample(keys, samples, total, ratio)


def lengthened(sample: Sample, least: int) -> Sample:
    """Repeats a part of the stream of a table of few ids until it has `least` samples."""
    turns = -(-least // max(1, sample.total))
    samples = np.concatenate([sample.samples + np.int64(turn * sample.total) for turn in range(turns)])
    return Sample(np.tile(sample.keys, turns), samples, turns * sample.total, sample.ratio)


def forecast(stats: Stats, request: Request, advance: Advance = lambda _: None) -> dict[str, Any]:
    """Forecasts the cost of a job.

    Args:
      stats: Statistics of its stream.
      request: The job.
      advance: Called twice for each table.

    Returns:
      The document of `het plan show --json`.

    Raises:
      ValueError: The sample is too short for the job, or no plan fits the memory.
    """
    tables = list(enumerate(stats.tables))
    share = max(1, request.entries // max(1, len(tables)))
    least = _STEPS * request.job.workers * request.job.batch

    def load(number: int, of: TableStats) -> _Loaded:
        keys, ids, samples = stats.keys(number)
        sample = Sample(keys[ids], samples.astype(np.int64), min(of.until, stats.samples), of.ratio)
        if of.until < stats.samples:
            sample = lengthened(sample, min(stats.samples, least))
        spec = {"name": of.name, "dim": of.dim, "optimizer": dict(request.optimizer)}
        return _Loaded(thinned(sample, share, least), spec, _unique(of, request.job.batch))

    def curve(loaded: _Loaded, of: TableStats) -> tuple[Curve, Points]:
        few = _Loaded(thinned(loaded.sample, share // 8, least // request.job.workers), loaded.spec, None)
        # Only differences of bytes by size matter, so one worker and few partitions are enough.
        alone = dataclasses.replace(request.job, workers=1, shards=1, partitions=4)
        sizes = sorted({*_SIZES, *(round(part * of.rows) for part in _SHARES)})
        found = [few.replay(request.cache, rows, alone) for rows in sizes]
        points = tuple((rows, one.bytes) for rows, one in zip(sizes, found, strict=True))
        advance(1)
        return Curve(of.name, found[0].line_bytes, points), points

    def run(loaded: _Loaded, rows: int) -> Replayed:
        found = loaded.replay(request.cache, rows, request.job, loaded.uses)
        advance(1)
        return found

    with ThreadPoolExecutor(_THREADS) as pool:
        samples = list(pool.map(lambda pair: load(*pair), tables))
        curves = list(pool.map(curve, samples, stats.tables))
        budget = request.cache_bytes
        if budget is None:
            budget = (
                sum(of.rows * one.row_bytes for of, (one, _) in zip(stats.tables, curves, strict=True)) // 10
            )
        rows = split_budget([one for one, _ in curves], budget)
        replayed = list(pool.map(run, samples, [rows[of.name] for of in stats.tables]))
    found = [
        _table(of, _at_end(of, stats, request), points, one)
        for of, (_, points), one in zip(stats.tables, curves, replayed, strict=True)
    ]
    whole = traffic(replayed, request.job)
    early = request.job.window > 0 and whole.waiting_writes < 1
    step = step_time(whole, replayed, request.job, request.machine, early)
    return _document(request, found, replayed, whole, step)


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """A table that can be replayed."""

    sample: Sample
    spec: Mapping[str, Any]
    uses: float | None  # unique ids of a batch

    def replay(self, cache: Mapping[str, Any], rows: int, job: Job, uses: float | None = None) -> Replayed:
        return replay(self.sample, self.spec, {**cache, "rows": rows}, job, uses)


def _unique(of: TableStats, batch: int) -> float | None:
    """Unique ids of a batch; None: batches are larger than the counted ones."""
    if not of.unique or batch > of.unique[-1][0]:
        return None
    sizes, unique = (np.log(np.maximum(1e-9, column)) for column in zip(*of.unique, strict=True))
    return float(np.exp(np.interp(np.log(batch), sizes, unique)))


def _at_end(of: TableStats, stats: Stats, request: Request) -> float:
    """The most rows at the end of the job: those of the profile in proportion to its samples."""
    return of.rows * max(1.0, (request.samples or stats.samples) / max(1, stats.samples))


def _table(of: TableStats, at_end: float, curve: Points, one: Replayed) -> dict[str, Any]:
    """The document of a table, whose rows and updates have one size each way."""
    pulled, pushed = max(1e-9, one.miss + one.update), max(1e-9, one.push + one.evict)
    coming, going = one.bytes_in / pulled, (one.bytes - one.bytes_in) / pushed
    shares: Sequence[Sequence[float]] = of.quantiles or [[1.0, 1.0]]
    rows, uses = zip(*shares, strict=True)
    return {
        "name": of.name,
        "dim": of.dim,
        "cache_rows": one.capacity,
        "rows": of.rows,
        "rows_at_end": [of.rows, round(at_end)],
        "hot_rows": max(1, round(of.rows * float(np.interp(0.9, uses, rows)))),  # of nine tenths of the uses
        "server_bytes": round(at_end * one.row_memory),
        "forecast": {
            "uses": one.uses,
            "hit_rate": one.hits / max(1e-9, one.uses),
            "bytes": one.bytes,
            "miss_bytes": coming * one.miss,
            "update_bytes": coming * one.update,
            "push_bytes": going * one.push,
            "evict_bytes": going * one.evict,
            "miss_pull": one.miss,
            "update_pull": one.update,
            "bound_push": one.push,
            "evict_push": one.evict,
        },
        "curve": [list(point) for point in curve],
    }


def _document(
    request: Request, tables: list[dict[str, Any]], replayed: list[Replayed], whole: Traffic, step: StepTime
) -> dict[str, Any]:
    """The document of a job. ValueError: a server has not enough memory."""
    job = request.job
    empty = job.partitions * max((one.partition_bytes for one in replayed), default=0)
    server_bytes = (empty + sum(table["server_bytes"] for table in tables)) / job.shards
    _require_memory(server_bytes, request)
    cache = json.dumps({**request.cache, "rows": 1, "workers": job.workers})
    return {
        "workers": job.workers,
        "batch": job.batch,
        "window": job.window,
        "cache": dict(request.cache),
        "wire": json.loads(native.call("HetCheckCache", cache))["cache"]["wire"],
        "servers": {"shards": job.shards, "replicas": request.replicas, "maxmemory": request.ram or 0},
        "tables": tables,
        "forecast": {
            "bytes": whole.bytes,
            "bytes_in": whole.bytes_in,
            "head_bytes": whole.head_bytes,
            "round_trips": whole.waits,
            "hit_rate": sum(one.hits for one in replayed) / max(1e-9, sum(one.uses for one in replayed)),
            "server_bytes": server_bytes,
            "cache_bytes": sum(one.capacity * one.line_bytes for one in replayed),
            "step_seconds": step.seconds,
            "parts": step.parts,
            "bound": step.bound,
            "samples_a_second": job.workers * job.batch / step.seconds if step.seconds else math.inf,
            "auc": cost(request.cache, request.optimizer, job.workers, job.batch, job.window > 0),
        },
        "not_filled": [  # by the sample
            table["name"]
            for table, one in zip(tables, replayed, strict=True)
            if not one.evicted and one.capacity < _NEARLY_ALL * table["rows"]
        ],
    }


def _require_memory(needed: float, request: Request) -> None:
    ram, shards = request.ram, request.job.shards
    if ram is None or needed <= ram:
        return
    enough = -int(-needed * shards // ram)
    raise ValueError(
        f"no plan fits: a server needs {needed:,.0f} bytes at the end, {needed - ram:,.0f} more than --ram"
        f" {ram:,}; give --shards {enough} (now {shards}), more memory, or bound the tables (max_rows, ttl)"
    )
