"""The last fifteen minutes of a job: what changed from one sample to the next, as lines of a page."""

from collections import defaultdict, deque
from typing import Any

from het_tf.ext.monitor.python.web.collector import Figures, Histogram

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
        grown = defaultdict(float) if before is None else sample.since(before)
        ages = [one.values["age"] for one in of_all["follower"] if one.values.get("age") is not None]
        bounds = [one.values["bound"] for one in of_all["cache"]]
        point: dict[str, Any] = {
            "time": time,
            "hit_rate": _ratio(grown["hits"], grown["reads"]),
            "rows": sum(one.values["rows"] for one in of_all["table"]),
            **{kind: grown[f"{kind}/s"] for kind in _KINDS},
            "lag_p99": None if before is None else sample.lag_p99(before),
            "bound": None if None in bounds else max(bounds, default=None),
            "served_age": max(ages, default=None),
            "step": _ratio(grown["working"], grown["steps"]),
            "parts": {},
        }
        for name, seconds in grown.items():
            if name.startswith("part:") and name[5:] not in _WHOLE:
                point["parts"][name[5:]] = _ratio(seconds, grown["steps"])
        self.points.append(point)
        self.now = {"tables": {}, "ranks": {}} if before is None else sample.by_name(before)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class _Sample:
    """The figures of one moment, for differences."""

    def __init__(self, time: float, of_all: Of) -> None:
        self.caches = {one.labels: one.values for one in of_all["cache"]}
        self.phases = {one.labels: one.values["length"] for one in of_all["phase"]}
        # When a rank counted, by the clock of this process, and in which process.
        self.told = {one.labels[0]: time - one.values["seen"] for one in of_all["worker"]}
        self.lives = {one.labels[0]: (one.values["host"], one.values["pid"]) for one in of_all["worker"]}

    def _went_on(self, before: "_Sample") -> dict[str, float]:
        """Rank -> seconds between its reports, of those that were not started anew."""
        return {
            rank: self.told[rank] - before.told[rank]
            for rank, life in self.lives.items()
            if before.lives.get(rank) == life and self.told[rank] - before.told[rank] > 0.5
        }

    def since(self, before: "_Sample") -> defaultdict[str, float]:
        """Growth over all ranks; "NAME/s" a second."""
        grown: defaultdict[str, float] = defaultdict(float)
        for rank, seconds in self._went_on(before).items():
            steps = 0.0
            for labels, now in self.caches.items():
                if labels[1] != rank or labels not in before.caches:
                    continue
                was = before.caches[labels]
                for name in ("reads", "hits", *_KINDS):
                    grown[name] += now[name] - was[name]
                    grown[f"{name}/s"] += (now[name] - was[name]) / seconds
                steps = max(steps, now["updates"] - was["updates"])
            grown["steps"] += steps
            grown["working"] += seconds if steps else 0
            for labels, phase in self.phases.items():
                if labels[0] == rank:
                    was_total = before.phases[labels].total if labels in before.phases else 0.0
                    grown[f"part:{labels[1]}"] += phase.total - was_total
        return grown

    def by_name(self, before: "_Sample") -> dict[str, dict[str, dict[str, Any]]]:
        """Hit rate and p99 of lags of each table, hit rate and time of a step of each rank."""
        tables, ranks = {}, {}
        for table in {labels[0] for labels in self.caches}:
            tables[table] = self._only(0, table)._figures(before)
        for rank in self.lives:
            ranks[rank] = self._only(1, rank)._figures(before)
        return {"tables": tables, "ranks": ranks}

    def _only(self, place: int, name: str) -> "_Sample":
        part = _Sample.__new__(_Sample)
        part.caches = {labels: one for labels, one in self.caches.items() if labels[place] == name}
        part.lives = {rank: life for rank, life in self.lives.items() if place == 0 or rank == name}
        part.phases, part.told = {}, self.told
        return part

    def _figures(self, before: "_Sample") -> dict[str, Any]:
        grown = self.since(before)
        return {
            "hit_rate": _ratio(grown["hits"], grown["reads"]),
            "step": _ratio(grown["working"], grown["steps"]),
            "lag_p99": self.lag_p99(before),
        }

    def lag_p99(self, before: "_Sample") -> float | None:
        """Returns the upper end of the bucket in which 99 % of the new lags lie; None: there are none."""
        went_on = self._went_on(before)
        counts: list[float] = []
        ends: list[float] = []
        for labels, now in self.caches.items():
            if labels[1] in went_on and labels in before.caches:
                lag: Histogram = now["lag"]
                new = [a - b for a, b in zip(lag.counts, before.caches[labels]["lag"].counts, strict=True)]
                counts, ends = (
                    [a + b for a, b in zip(counts or [0] * len(new), new, strict=True)],
                    list(lag.ends),
                )
        total, below = sum(counts), 0.0
        for end, count in zip(ends, counts, strict=True):
            below += count
            if total and below >= 0.99 * total:
                return end if end != float("inf") else ends[-2]
        return None
