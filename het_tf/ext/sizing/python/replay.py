"""Replays a job's tables: runs the client on a sample of the keys (ext/sizing/cc/replay.h), and scales up.

"Miniature simulation" (Waldspurger et al., ATC 2017): the sample has the keys of a table with a hash below
2^64 / ratio. A cache of 1 / ratio of the rows then hits, checks and pushes like the whole cache with all
keys, and every count times the ratio estimates the whole. Partitions are fewer by the same ratio, so that
each has as many rows as in the job: differences of keys and heads of parts have their real size.

The sample errs in the few ids that are in every batch: each is in it with its whole weight, or missing.
The profile has counted the unique ids of a batch, so the difference is known. It is added to the
hits ("SHARDS-adj" in the same paper), with the updates and pushes of rows in every batch: these rows are
old, so their bounds are numbers, and all workers tick them in every step.

Tables share only heads: a frame has one part per partition, and a part has the data of all
tables. Heads are counted separately and added up by `traffic`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.checkpoint.python.row_files import place_of
from het_tf.python.session import native

PARTITIONS = 64

# Bytes of a frame, a part and a table in a part beside keys, clocks and rows, in requests and in
# replies (core/wire/parts.h).
_FRAME = (45, 11)
_TABLE_OF_FRAME = (13, 5)
_PART = (6, 1.5)
_TABLE_OF_PART = (2.5, 2)
_KINDS = ("pushes", "reads")

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Settings of a job that all tables share.

    Attributes:
      workers: Number of workers.
      batch: Samples of a worker in a step.
      shards: Servers.
      partitions: Partitions of the namespace.
      window: Batches that are planned ahead, 0: none.
      passes: Number of replays of the sample; all except the last fill caches. More than 1 stands for a job
        of several epochs.
    """

    workers: int = 8
    batch: int = 128
    shards: int = 1
    partitions: int = PARTITIONS
    window: int = 0
    passes: int = 1


@dataclasses.dataclass(frozen=True)
class Sample:
    """The kept keys of a table.

    Attributes:
      keys: int64 `[entries]`, in the order of the stream.
      samples: Number of the sample of each entry, ascending, int64 `[entries]`.
      total: Samples in the stream.
      ratio: All keys divided by the kept ones.
    """

    keys: npt.NDArray[np.int64]
    samples: Array
    total: int
    ratio: int

    def ends(self, batch: int) -> npt.NDArray[np.uint64]:
        """Ends in `keys` of whole batches of `batch` samples."""
        batches = self.total // batch
        return np.searchsorted(self.samples, np.arange(1, batches + 1) * batch).astype(np.uint64)


@dataclasses.dataclass(frozen=True)
class Replayed:
    """Mean work of one worker for one table in a step; rows and bytes.

    Attributes:
      table: Its name.
      uses: Unique rows of its batch.
      hits: Rows of the batch in the cache.
      miss, update, push, evict: Rows by class.
      row_bytes, key_bytes: Both ways, of rows and updates, and of keys and clocks.
      row_bytes_in, bytes_in: Incoming, of rows and of both.
      parts: Share of the table's partitions in requests of each kind ("pushes", "reads").
      frames: Frames to a server of each kind.
      waits: Round trips that it waits for, if it waits only for this table.
      waiting_writes: Share of its writes that wait.
      client_seconds, store_seconds: CPU time on this machine.
      rows: Rows in the store at the end.
      row_memory: Bytes of one row there, with its index and the record of workers that hold it.
      partition_bytes: Memory of a partition without rows.
      line_bytes: Memory of a cached row.
      capacity: Rows of the cache.
      evicted: Whether a cache was full and evicted a row.
    """

    table: str
    uses: float
    hits: float
    miss: float
    update: float
    push: float
    evict: float
    row_bytes: float
    row_bytes_in: float
    key_bytes: float
    bytes_in: float
    parts: Mapping[str, float]
    frames: Mapping[str, float]
    waits: float
    waiting_writes: float
    client_seconds: float
    store_seconds: float
    rows: float
    row_memory: float
    partition_bytes: int
    line_bytes: int
    capacity: int
    evicted: bool

    @property
    def bytes(self) -> float:
        """Without heads."""
        return self.row_bytes + self.key_bytes


def replay(
    sample: Sample, spec: Mapping[str, Any], cache: Mapping[str, Any], job: Job, uses: float | None = None
) -> Replayed:
    """Replays a table.

    Args:
      sample: Its keys.
      spec: Result of the table's `TableConfig.to_spec()`: name, dim, optimizer.
      cache: Arguments of `het_tf.Cache`, including "rows".
      job: The job.
      uses: Unique ids of a batch, if they were counted separately.

    Raises:
      ValueError: The sample has too few steps, or `cache` an unknown argument.
    """
    ends = sample.ends(job.batch)
    steps = len(ends) // job.workers
    if steps < 2:
        raise ValueError(
            f"the sample has {sample.total:,} samples, which are {steps} steps of {job.workers} workers x"
            f" {job.batch}; profile more samples, or give a smaller --batch"
        )
    ends = ends[: steps * job.workers]
    keys = np.ascontiguousarray(sample.keys[: int(ends[-1])], np.int64)
    if job.passes > 1:
        ends = np.concatenate([ends + np.uint64(turn * len(keys)) for turn in range(job.passes)])
        keys = np.tile(keys, job.passes)
    rows = int(cache["rows"])
    partitions = max(1, place_of(str(spec["name"]), job.partitions)["group"] // sample.ratio)
    request = {
        "spec": dict(spec),
        "cache": {**cache, "rows": min(math.ceil(rows / sample.ratio), max(1, len(keys))) if rows else 0,
                  "workers": job.workers},
        "partitions": partitions,
        "shards": min(job.shards, partitions),
        "warm_steps": steps * (job.passes - 1) if job.passes > 1 else steps // 2,
        "window": job.window,
        "on_demand": False,
        "rows_exist": job.passes > 1,
    }  # fmt: skip
    outcome = json.loads(native.call("HetReplay", json.dumps(request), keys, ends, len(ends)))
    found = _scaled(str(spec["name"]), outcome, sample.ratio, job, partitions, rows)
    if uses is None:
        return found
    pushes = 1 / (outcome["push_most"] + 1)
    return _adjusted(found, uses, min(pushes, (job.workers - 1) / (outcome["pull_most"] + 1)), pushes)


def _scaled(
    table: str, outcome: Mapping[str, Any], ratio: int, job: Job, partitions: int, rows: int
) -> Replayed:
    turns = outcome["steps"] * job.workers
    counts = {name: ratio * number / turns for name, number in outcome["counters"].items()}
    traffic = outcome["traffic"]
    frames, parts = (sum(traffic[kind][what] for kind in _KINDS) / turns for what in ("frames", "parts"))
    # Keys travel as gaps, which are `ratio` times as wide between the kept ones: so many bits more.
    asked = max(counts["checks"], counts["update_pull"]) + counts["miss_pull"]
    keys = asked + counts["bound_push"] + counts["evict_push"], counts["notified_rows"]
    names = [
        counts[f"metadata_bytes_{way}"]
        - counts[f"head_bytes_{way}"]
        - ratio * (of_frame * frames + of_part * parts)
        - math.log2(ratio) / 8 * of_way
        for way, of_frame, of_part, of_way in zip(
            ("out", "in"), _TABLE_OF_FRAME, _TABLE_OF_PART, keys, strict=True
        )
    ]
    names_out, names_in = (max(0.0, size) for size in names)
    return Replayed(
        table=table,
        uses=counts["reads"],
        hits=counts["hits"],
        miss=counts["miss_pull"],
        update=counts["update_pull"],
        push=counts["bound_push"],
        evict=counts["evict_push"],
        row_bytes=counts["row_bytes_in"] + counts["row_bytes_out"],
        row_bytes_in=counts["row_bytes_in"],
        key_bytes=names_in + names_out,
        bytes_in=counts["row_bytes_in"] + names_in,
        parts={kind: traffic[kind]["parts"] / (turns * partitions) for kind in _KINDS},
        frames={kind: traffic[kind]["frames"] / turns for kind in _KINDS},
        waits=traffic["round_trips"] / turns,
        waiting_writes=outcome["waiting_writes"] / turns,
        client_seconds=ratio * outcome["client_seconds"] / turns,
        store_seconds=ratio * outcome["store_seconds"] / turns,
        rows=ratio * outcome["store_rows"],
        row_memory=outcome["store_bytes"] / max(1, outcome["store_rows"]),
        partition_bytes=outcome["partition_bytes"],
        line_bytes=outcome["line_bytes"],
        capacity=rows,
        evicted=rows == 0 or outcome["evictions"] > 0,
    )


def _adjusted(one: Replayed, uses: float, pulls: float, pushes: float) -> Replayed:
    """Adjusts to the counted number of unique ids: the difference are ids in every batch.

    Args:
      one: The replayed table.
      uses: Unique ids of a batch.
      pulls: Fetches of such an id in a step.
      pushes: Pushes of such an id in a step.
    """
    more = uses - one.uses
    if one.capacity == 0:
        pulls = pushes = 1.0
    update, push = max(0.0, one.update + pulls * more), max(0.0, one.push + pushes * more)
    coming = (one.miss + update) / max(1e-9, one.miss + one.update)
    going = (push + one.evict) / max(1e-9, one.push + one.evict)
    rows_out = one.row_bytes - one.row_bytes_in
    names_in, names_out = one.bytes_in - one.row_bytes_in, one.bytes - one.bytes_in - rows_out
    return dataclasses.replace(
        one,
        uses=uses,
        hits=max(0.0, one.hits + more) if one.capacity else 0.0,
        miss=one.miss if one.capacity else uses,
        update=update if one.capacity else 0.0,
        push=push,
        row_bytes=coming * one.row_bytes_in + going * rows_out,
        row_bytes_in=coming * one.row_bytes_in,
        key_bytes=coming * names_in + going * names_out,
        bytes_in=coming * one.bytes_in,
        client_seconds=one.client_seconds * uses / max(1e-9, one.uses),
        store_seconds=one.store_seconds * (coming + going) / 2,
    )


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes of one worker in a step, including heads; and round trips that it waits for."""

    bytes_in: float
    bytes_out: float
    head_bytes: float
    waits: float
    waiting_writes: float

    @property
    def bytes(self) -> float:
        """Both ways."""
        return self.bytes_in + self.bytes_out


def _any(shares: Iterable[float]) -> float:
    """Probability of at least one of independent events."""
    return 1 - math.prod(1 - min(1.0, share) for share in shares)


def traffic(tables: Sequence[Replayed], job: Job) -> Traffic:
    """Adds up tables: a part of a frame serves all tables, and a worker waits once for all."""
    heads = [0.0, 0.0]
    group = place_of("", job.partitions)["group"]
    together: dict[int, list[Replayed]] = defaultdict(list)  # tables in the same partitions
    for one in tables:
        together[place_of(one.table, job.partitions)["first"]].append(one)
    for kind in _KINDS:
        parts = sum(group * _any(one.parts[kind] for one in of) for of in together.values())
        frames = job.shards * _any(one.frames[kind] / job.shards for one in tables)
        of_parts = group * sum(min(1.0, one.parts[kind]) for one in tables)
        of_frames = sum(min(float(job.shards), one.frames[kind]) for one in tables)
        for way in (0, 1):
            heads[way] += _FRAME[way] * frames + _PART[way] * parts
            heads[way] += _TABLE_OF_FRAME[way] * of_frames + _TABLE_OF_PART[way] * of_parts
    rows_in = sum(one.bytes_in for one in tables)
    rows_out = sum(one.bytes for one in tables) - rows_in
    writes = max((one.waiting_writes for one in tables), default=0.0)
    waits = max((one.waits for one in tables), default=0.0)
    return Traffic(rows_in + heads[1], rows_out + heads[0], sum(heads), waits, writes)
