"""The last fifteen minutes of a job: what changed from one sample to the next, as lines of a page."""

from collections import defaultdict, deque
from typing import Any, NamedTuple

from het_tf.ext.monitor.python.web.collector import Figures

SAMPLE_SECONDS = 15.0
_POINTS = int(15 * 60 / SAMPLE_SECONDS)
_WHOLE = ("lookup", "update")  # phases that contain the others
_KINDS = ("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out")
Of = dict[str, list[Figures]]


class History:
    """Samples of a job, as points of lines.

    Attributes:
      points: The points, oldest first: "time" and a number for each line, or None where nothing happened.
      now: Figures of each table and rank since the sample before.
    """

    def __init__(self) -> None:
        self.points: deque[dict[str, Any]] = deque(maxlen=_POINTS)
        self.now: dict[str, dict[str, dict[str, Any]]] = {"tables": {}, "ranks": {}}
        self._before: _Sample | None = None

    def add(self, time: float, of_all: Of) -> None:
        """Adds a sample that was taken at `time`, in seconds since 1970."""
        sample, before = _Sample(time, of_all), self._before
        self._before = sample
        caches = {} if before is None else sample.caches_since(before)
        job = _Growth(sample.seconds_since(before) if before is not None else {}, caches)
        ages = [one.values["age"] for one in of_all["follower"] if one.values.get("age") is not None]
        bounds = [one.values["bound"] for one in of_all["cache"]]
        self.points.append({
            "time": time,
            "hit_rate": job.hit_rate(),
            "rows": sum(one.values["rows"] for one in of_all["table"]),
            **{kind: job.rate(kind) for kind in _KINDS},
            "lag_p99": job.lag_p99(),
            "bound": None if None in bounds else max(bounds, default=None),
            "served_age": max(ages, default=None),
            "step": job.step(),
            "parts": {
                part: _ratio(seconds, job.steps)
                for part, seconds in (sample.parts_since(before) if before is not None else {}).items()
                if part not in _WHOLE
            },
        })  # fmt: skip
        self.now = {
            kind: {
                name: {"hit_rate": one.hit_rate(), "step": one.step(), "lag_p99": one.lag_p99()}
                for name, one in _grouped(job, place).items()
            }
            for kind, place in (("tables", 0), ("ranks", 1))
        }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class _Grown(NamedTuple):
    """What a rank's cache of a table has counted between two samples; `lags` in the buckets of `lag_ends`."""

    counts: dict[str, float]
    lags: list[float]
    lag_ends: tuple[float, ...]


_Labels = tuple[str, ...]
_COUNTS = ("reads", "hits", "updates", *_KINDS)


class _Sample:
    """The figures of one moment, for differences."""

    def __init__(self, time: float, of_all: Of) -> None:
        self.caches = {one.labels: one.values for one in of_all["cache"]}
        self.phases = {one.labels: one.values["length"] for one in of_all["phase"]}
        # When a rank counted, by the clock of this process, and in which process.
        self.told = {one.labels[0]: time - one.values["seen"] for one in of_all["worker"]}
        self.lives = {one.labels[0]: (one.values["host"], one.values["pid"]) for one in of_all["worker"]}

    def seconds_since(self, before: "_Sample") -> dict[str, float]:
        """Rank -> seconds between its reports, of those that were not started anew."""
        return {
            rank: self.told[rank] - before.told[rank]
            for rank, life in self.lives.items()
            if before.lives.get(rank) == life and self.told[rank] - before.told[rank] > 0.5
        }

    def caches_since(self, before: "_Sample") -> dict[_Labels, _Grown]:
        """What each cache has counted, of ranks that went on."""
        went_on = self.seconds_since(before)
        return {
            labels: _Grown(
                {name: now[name] - was[name] for name in _COUNTS},
                [new - old for new, old in zip(now["lag"].counts, was["lag"].counts, strict=True)],
                now["lag"].ends,
            )
            for labels, now in self.caches.items()
            if labels[1] in went_on and (was := before.caches.get(labels)) is not None
        }

    def parts_since(self, before: "_Sample") -> dict[str, float]:
        """Seconds in each part of a step, over the ranks that went on."""
        went_on = self.seconds_since(before)
        grown: defaultdict[str, float] = defaultdict(float)
        for (rank, part), phase in self.phases.items():
            if rank in went_on:
                was = before.phases.get((rank, part))
                grown[part] += phase.total - (was.total if was is not None else 0.0)
        return grown


class _Growth:
    """What some caches have counted between two samples.

    Args:
      seconds: Rank -> seconds between its reports.
      caches: (table, rank) -> what it counted.
    """

    def __init__(self, seconds: dict[str, float], caches: dict[_Labels, _Grown]) -> None:
        self.seconds, self.caches = seconds, caches
        steps: defaultdict[str, float] = defaultdict(float)  # of a rank: as many as its busiest table's
        for (_, rank), one in caches.items():
            steps[rank] = max(steps[rank], one.counts["updates"])
        self.steps = sum(steps.values())
        self._working = sum(seconds[rank] for rank, number in steps.items() if number)

    def hit_rate(self) -> float | None:
        return _ratio(self._sum("hits"), self._sum("reads"))

    def _sum(self, name: str) -> float:
        return sum(one.counts[name] for one in self.caches.values())

    def rate(self, name: str) -> float:
        """Of a counter, a second."""
        return sum(one.counts[name] / self.seconds[labels[1]] for labels, one in self.caches.items())

    def step(self) -> float | None:
        """Seconds of a step."""
        return _ratio(self._working, self.steps)

    def lag_p99(self) -> float | None:
        """Returns the upper end of the bucket in which 99 % of the new lags lie; None: there are none."""
        counts = [sum(bucket) for bucket in zip(*(one.lags for one in self.caches.values()), strict=True)]
        total, below = sum(counts), 0.0
        ends = next((one.lag_ends for one in self.caches.values()), ())
        for end, count in zip(ends, counts, strict=True):
            below += count
            if total and below >= 0.99 * total:
                return end if end != float("inf") else ends[-2]
        return None


def _grouped(job: _Growth, place: int) -> dict[str, _Growth]:
    """A job's growth by its tables (place 0) or ranks (1)."""
    groups: defaultdict[str, dict[_Labels, _Grown]] = defaultdict(dict)
    for labels, one in job.caches.items():
        groups[labels[place]][labels] = one
    return {name: _Growth(job.seconds, caches) for name, caches in groups.items()}
