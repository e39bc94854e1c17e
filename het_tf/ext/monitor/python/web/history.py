"""The last fifteen minutes of a job: what changed from one sample to the next, as lines of a page."""

from collections import defaultdict, deque
from typing import Any, NamedTuple

from het_tf.ext.monitor.python.web.collector import Figures

SAMPLE_SECONDS = 15.0
_POINTS = int(15 * 60 / SAMPLE_SECONDS)
_WHOLE = ("lookup", "update")  # phases that contain the others
_KINDS = ("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out")
_COUNTS = ("reads", "hits", "updates", *_KINDS)
Of = dict[str, list[Figures]]


class _Grown(NamedTuple):
    """What a rank's cache of a table has counted between two reports; `ends` are those of buckets."""

    table: str
    rank: str
    seconds: float
    counts: dict[str, float]
    lags: list[float]
    ends: tuple[float, ...]


class History:
    """Samples of a job, as points of lines.

    Attributes:
      points: The points, oldest first: "time" and a number for each line, or None where nothing happened.
      now: Figures of each table and rank since the sample before.
    """

    def __init__(self) -> None:
        self.points: deque[dict[str, Any]] = deque(maxlen=_POINTS)
        self.now: dict[str, dict[str, dict[str, Any]]] = {"tables": {}, "ranks": {}}
        self._before: Of = {"cache": [], "phase": []}
        self._reports: dict[str, tuple[Any, float]] = {}

    def add(self, time: float, of_all: Of) -> None:
        """Adds a sample that was taken at `time`, in seconds since 1970."""
        seconds = self._seconds_since(time, of_all)
        caches, parts = _grown(seconds, self._before, of_all), _parts(seconds, self._before, of_all)
        self._before = of_all
        steps, _ = _steps(caches)
        ages = [one.values["age"] for one in of_all["follower"] if one.values.get("age") is not None]
        bounds = [one.values["bound"] for one in of_all["cache"]]
        self.points.append({
            "time": time,
            **_figures(caches),
            "rows": sum(one.values["rows"] for one in of_all["table"]),
            **{kind: sum(one.counts[kind] / one.seconds for one in caches) for kind in _KINDS},
            "bound": None if None in bounds else max(bounds, default=None),
            "served_age": max(ages, default=None),
            "parts": {part: _ratio(spent, steps) for part, spent in parts.items() if part not in _WHOLE},
        })  # fmt: skip
        groups: dict[str, defaultdict[str, list[_Grown]]]
        groups = {"tables": defaultdict(list), "ranks": defaultdict(list)}
        for one in caches:
            groups["tables"][one.table].append(one)
            groups["ranks"][one.rank].append(one)
        self.now = {
            kind: {name: _figures(of) for name, of in group.items()} for kind, group in groups.items()
        }

    def _seconds_since(self, time: float, of_all: Of) -> dict[str, float]:
        """Rank -> seconds between its last two reports, of those that were not started anew."""
        before = self._reports
        self._reports = {  # the process that counted, and when, by the clock of this process
            one.labels[0]: ((one.values["host"], one.values["pid"]), time - one.values["seen"])
            for one in of_all["worker"]
        }
        return {
            rank: told - before[rank][1]
            for rank, (life, told) in self._reports.items()
            if rank in before and before[rank][0] == life and told - before[rank][1] > 0.5
        }


def _grown(seconds: dict[str, float], before: Of, of_all: Of) -> list[_Grown]:
    """What the caches of the ranks of `seconds` have counted."""
    old = {one.labels: one.values for one in before["cache"]}
    found = []
    for (table, rank), now in of_all["cache"]:
        if rank in seconds and (was := old.get((table, rank))) is not None:
            counts = {name: now[name] - was[name] for name in _COUNTS}
            lags = [new - old for new, old in zip(now["lag"].counts, was["lag"].counts, strict=True)]
            found.append(_Grown(table, rank, seconds[rank], counts, lags, now["lag"].ends))
    return found


def _parts(seconds: dict[str, float], before: Of, of_all: Of) -> dict[str, float]:
    """Seconds in each part of a step, over the ranks of `seconds`."""
    old = {one.labels: one.values["length"].total for one in before["phase"]}
    found: defaultdict[str, float] = defaultdict(float)
    for (rank, part), phase in of_all["phase"]:
        if rank in seconds:
            found[part] += phase["length"].total - old.get((rank, part), 0.0)
    return found


def _figures(caches: list[_Grown]) -> dict[str, float | None]:
    reads, hits = (sum(one.counts[name] for one in caches) for name in ("reads", "hits"))
    steps, working = _steps(caches)
    return {"hit_rate": _ratio(hits, reads), "step": _ratio(working, steps), "lag_p99": _lag_p99(caches)}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _steps(caches: list[_Grown]) -> tuple[float, float]:
    """Steps of the ranks, of each as many as its busiest table's, and the seconds of those that made some."""
    steps: defaultdict[str, float] = defaultdict(float)
    for one in caches:
        steps[one.rank] = max(steps[one.rank], one.counts["updates"])
    seconds = {one.rank: one.seconds for one in caches}
    return sum(steps.values()), sum(seconds[rank] for rank, number in steps.items() if number)


def _lag_p99(caches: list[_Grown]) -> float | None:
    """Returns the upper end of the bucket in which 99 % of the new lags lie; None: there are none."""
    counts = [sum(bucket) for bucket in zip(*(one.lags for one in caches), strict=True)]
    ends = caches[0].ends if caches else ()
    total, below = sum(counts), 0.0
    for end, count in zip(ends, counts, strict=True):
        below += count
        if total and below >= 0.99 * total:
            return end if end != float("inf") else ends[-2]
    return None
