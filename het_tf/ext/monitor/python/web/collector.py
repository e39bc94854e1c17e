"""What a store says of a job, as the metrics of metrics.py, in the text format of OpenMetrics."""

import functools
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from het_tf._version import __version__
from het_tf.ext.monitor.python.web.metrics import LABELS, METRICS, Metric
from het_tf.ext.ps.python.jobs import Job
from het_tf.ext.ps.python.status import Picture

_LAGS = (0, 1, 2, 3, 4, 6, 8, 10)  # buckets of lags end at 2^i - 1 ticks: 0, 1, 3, 7, 15, 63, 255, 1023
_FIRST_LENGTH = 2  # the shortest phases share a bucket of 16 microseconds
_LAG_ENDS = (*(2.0**bucket - 1 for bucket in _LAGS), math.inf)
_LAG_SPANS = list(pairwise((0, *(bucket + 1 for bucket in _LAGS), None)))
_LENGTH_ENDS = (*(4.0**bucket / 1e6 for bucket in range(_FIRST_LENGTH, 12)), math.inf)


class Figures(NamedTuple):
    """The figures of one server, table, cache, ...: values of its labels, and numbers by their names."""

    labels: tuple[str, ...]
    values: dict[str, Any]


class Histogram(NamedTuple):
    """Upper ends of buckets, the number of values in each, and the values' sum."""

    ends: tuple[float, ...]
    counts: Sequence[int]
    total: float


def figures(picture: Picture, job: Job, seconds: float) -> dict[str, list[Figures]]:
    """Returns the figures of a job, by what has them (metrics.LABELS).

    Args:
      picture: The servers.
      job: Of the namespace.
      seconds: What asking for both took.
    """
    size = max((report["size"] for report in job.workers.values()), default=0)
    return {
        "exporter": [Figures((), {"version": __version__, "seconds": seconds})],
        "job": [Figures((), {"faults": len(picture.faults), "size": size})],
        "server": [Figures((str(one.place),), dict(_of_server(one))) for one in picture.servers],
        "table": [Figures((name,), dict(table)) for name, table in sorted(job.tables.items())],
        "cache": [
            Figures((name, str(rank)), _of_cache(table))
            for rank, report in sorted(job.workers.items())
            for name, table in report["tables"].items()
            if "cache" in table
        ],
        "worker": [Figures((str(rank),), report) for rank, report in sorted(job.workers.items())],
        "phase": [
            Figures((str(rank), part), {"length": _lengths(phase)})
            for rank, report in sorted(job.workers.items())
            for part, phase in report["phases"].items()
        ],
        "follower": [
            Figures((name,), {**report, "rows": sum(report["rows"])})
            for name, report in sorted(job.followers.items())
        ],
    }


def _of_server(server: Any) -> Iterator[tuple[str, Any]]:
    yield "up", int(server.state == "up")
    if server.info:
        yield "busy_seconds", server.number("het_busy_us") / 1e6
        for name in ("used_memory", "maxmemory"):
            yield name, server.number(name)
        yield from server.het.items()


def _of_cache(table: dict[str, Any]) -> dict[str, Any]:
    """The report leaves zeros out."""
    cache = table["cache"]
    bound = cache.get("pull_bound", 0)  # null: there is none
    counted = {field: cache.get(field, 0) for field in _COUNTED}
    lag = cache["staleness"]
    counts = [sum(lag["lags"][first:last]) for first, last in _LAG_SPANS]
    return {
        **counted,
        "updates": table["updates"],
        "bound": bound["most"] if isinstance(bound, dict) else bound,
        "lag": Histogram(_LAG_ENDS, counts, lag["observed"] * lag["mean_at_most"]),
    }


def _lengths(phase: dict[str, Any]) -> Histogram:
    """Bucket i of a phase (core/base/trace_log.h) is at most 4^i microseconds."""
    counts = phase["counts"]
    return Histogram(
        _LENGTH_ENDS, [sum(counts[: _FIRST_LENGTH + 1]), *counts[_FIRST_LENGTH + 1 :]], phase["seconds"]
    )


def _fields() -> Iterator[str]:
    for metric in METRICS.values():
        if metric.of == "cache":
            yield from [metric.field] if isinstance(metric.field, str) else metric.field.values()


_COUNTED = set(_fields()) - {"updates", "bound", "lag"}


def text(of_all: dict[str, list[Figures]]) -> str:
    """Returns every metric that has a value, as OpenMetrics 1.0.0.

    prometheus-client takes 20 times as long for the thousands of series that tables and ranks make; its
    parser checks this text in tests.
    """
    labelled = {
        of: [
            (
                ",".join(
                    f'{label}="{_escaped(value)}"' for label, value in zip(LABELS[of], labels, strict=True)
                ),
                values,
            )
            for labels, values in found
        ]
        for of, found in of_all.items()
    }
    lines: list[str] = []
    for name, metric in METRICS.items():
        series = [
            line for labels, values in labelled[metric.of] for line in _series(name, metric, labels, values)
        ]
        if series:
            family = name.removesuffix("_total").removesuffix("_info")
            lines += [f"# TYPE {family} {metric.kind}", f"# HELP {family} {metric.help}", *series]
    return "\n".join([*lines, "# EOF", ""])


def _series(name: str, metric: Metric, labels: str, values: dict[str, Any]) -> Iterator[str]:
    comma = "," if labels else ""
    if not isinstance(metric.field, str):
        for by, field in metric.field.items():
            if field in values:
                yield f'{name}{{{labels}{comma}{metric.by}="{by}"}} {values[field]}'
    elif (value := values.get(metric.field)) is None:
        return
    elif metric.kind == "histogram":
        below = 0
        for end, count in zip(_texts(value.ends), value.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{labels},le="{end}"}} {below}'
        yield f"{name}_count{{{labels}}} {below}"
        yield f"{name}_sum{{{labels}}} {value.total}"
    elif metric.kind == "info":
        yield f'{name}{{{labels}{comma}{metric.field}="{_escaped(str(value))}"}} 1'
    else:
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


@functools.cache
def _texts(ends: tuple[float, ...]) -> list[str]:
    return ["+Inf" if end == math.inf else str(end) for end in ends]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
