"""What is judged of benchmarks/results/traffic.json: the goals, HET's figures, and what a cache can reach."""

from __future__ import annotations

from typing import Any

Figures = dict[str, Any]

# What HET reaches in a model of its traffic (8 workers, 128 floats, cache of 10 %), if one step is one tick
# and the policy is LFU: percent of rows saved.
HET_ROWS = {"10/10": 67.9, "100/100": 86.9, "unbounded": 89.7}
HET_CACHE = {0.01: 80.6, 0.03: 84.8, 0.05: 85.8, 0.1: 86.9, 0.15: 87.4}
HET_WORKERS = {2: 82.5, 8: 67.9}
HET_WORKERS_ALL = {2: 87.0, 8: 73.7}
CLASSES = ("miss_pull", "update_pull", "bound_push", "evict_push")
SETTINGS = ("stream", "samples", "workers", "dim", "bound", "cache", "policy", "admit", "share", "checks")
SETTINGS += ("wire", "optimizer", "partitions", "shards")
DEFAULT = {"bound": "30", "wire": "int4", "workers": 8}
OF_DEFAULT: tuple[tuple[str, Figures, float], ...] = (
    ("default, 16 floats, placed", DEFAULT | {"dim": 16, "placed": "C24"}, 92.5),
    ("default, 128 floats, placed", DEFAULT | {"dim": 128, "placed": "C24"}, 95),
    ("default, 16 floats", DEFAULT | {"dim": 16, "placed": ""}, 89.5),
    ("default, 128 floats", DEFAULT | {"dim": 128, "placed": ""}, 92.5),
    ("s=0, int4, 16 floats, placed", DEFAULT | {"bound": "0", "dim": 16, "placed": "C24"}, 80),
)
"""Goals of the bytes that the default saves, and of a staleness of 0 with rounded rows."""
ACROSS = 20
"""Batches after which the hit rate is to be back."""


def find(runs: list[Figures], **wanted: object) -> Figures:
    """Returns the run with these settings."""
    for run in runs:
        if all(run[name] == value for name, value in wanted.items()):
            return run
    raise KeyError(f"no run has {wanted}")


def no_cache(result: Figures) -> Figures:
    """Returns the run of the stream of most sweeps without a cache, of 16 floats a row."""
    kind = {"stream": "criteo_scaled", "samples": result["samples"], "dim": 16, "optimizer": "sgd"}
    return find(result["baselines"], **kind, partitions=64, shards=1)


def alike(result: Figures, run: Figures, **changed: object) -> Figures | None:
    """Returns the run of any sweep with this one's settings but for those that are given, or None."""
    wanted = {name: run[name] for name in SETTINGS} | changed
    for sweep in result["sweeps"].values():
        for other in sweep:
            if all(other[name] == value for name, value in wanted.items()):
                return dict(other)
    return None


def missed_at_most(run: Figures) -> int | None:
    """Returns I3's bound of the oldest rows: foreign ticks that a read may miss; None: there is none.

    Clients have unsent updates, and each of their workers has a step in progress.
    """
    pull, push = run["bounds"]["pull"], run["bounds"]["push"]
    if pull is None or push is None:
        return None
    share = int(run["share"])
    return int(pull["most"]) + (int(run["workers"]) // share - 1) * (int(push["most"]) + share)


def allowed_at_most(run: Figures) -> float:
    allowed = missed_at_most(run)
    return float("inf") if allowed is None else allowed


def limit_of(result: Figures, run: Figures) -> float | None:
    """Returns the percent of rows that would be saved in the run's place if every cache knew the future."""
    for limit in result["limits"]:
        if all(limit[name] == run[name] for name in ("workers", "bound", "cache")):
            return float(100 * limit["rows_saved"])
    return None


def steady_rate(rates: list[float]) -> float:
    """Returns the mean hit rate of the last batches before the change, which is in the middle."""
    before = rates[: len(rates) // 2][-ACROSS:]
    return sum(before) / len(before)


def back_after(rates: list[float]) -> tuple[int | None, int | None]:
    """Returns the steps until the hit rate is at 90 % of steady: of an empty cache, and after the change."""
    middle = len(rates) // 2
    steady = steady_rate(rates)

    def first(part: list[float]) -> int | None:
        return next((step for step, rate in enumerate(part) if rate >= 0.9 * steady), None)

    return first(rates[:middle]), first(rates[middle:])


def goals(result: Figures) -> list[Figures]:
    """Returns what is judged: {goal, limit, value, met, best, het}, in percent, points, bytes or batches.

    `best` is what no cache of as many rows gets past, where it is known.
    """
    sweeps = result["sweeps"]
    entries: list[Figures] = []

    def judge(
        goal: str,
        value: float,
        limit: float,
        at_least: bool = True,
        het: float | None = None,
        best: float | None = None,
    ) -> None:
        met = value >= limit if at_least else value <= limit
        entry = {"goal": goal, "value": value, "limit": limit, "at_least": at_least, "met": met}
        entries.append(entry | {"het": het, "best": best})

    for words, wanted, limit in OF_DEFAULT:
        for run in sweeps.get("default", []):
            if wanted.items() <= run.items():
                judge(f"bytes saved, {words}, %", 100 * run["bytes_saved"], limit)
    dims, workers = sweeps["dims"], sweeps.get("workers", [])
    for bound, limit in (("10/10", 66), ("100/100", 88)):
        run = find(dims, bound=bound, dim=128)
        best = limit_of(result, run)
        judge(f"rows saved, {bound}, %", 100 * run["rows_saved"], limit, het=HET_ROWS[bound], best=best)
    for count in (2, 8) if workers else ():
        own, whole = (find(workers, workers=count, cache=cache) for cache in (0.1, 1))
        gap = 100 * (whole["rows_saved"] - own["rows_saved"])
        of_het = HET_WORKERS_ALL[count] - HET_WORKERS[count]
        limit_rows = limit_of(result, own)
        best = None if limit_rows is None else 100 * whole["rows_saved"] - limit_rows
        goal = f"10/10, N={count}: below a cache of all rows, points"
        judge(goal, gap, 4, at_least=False, het=of_het, best=best)
    for run in sweeps.get("share", []) if workers else []:
        if (run["workers"], run["bound"], run["share"]) != (8, "10/10", 4) or run["cache"] != 0.1:
            continue
        two, own = (find(workers, workers=count, cache=0.1) for count in (2, 8))
        fall = 100 * (two["rows_saved"] - run["rows_saved"])
        of_het = HET_WORKERS[2] - HET_WORKERS[8]
        judge(
            "10/10, fall from N=2 to N=8, 4 workers a host share a cache", fall, 5, at_least=False, het=of_het
        )
        most = own["staleness"]["max"]
        judge("the same, most updates that a read missed", run["staleness"]["max"], most, at_least=False)
    seen = [run for sweep in sweeps.values() for run in sweep if run["staleness"]["max"] is not None]
    over = [run for run in seen if run["staleness"]["max"] > allowed_at_most(run)]
    judge("runs in which a read missed more than I3 allows", len(over), 0, at_least=False)
    run = find(dims, bound="100/100", dim=16)
    judge("bytes of a checked key", run["bytes_a_check"], 6, at_least=False, het=16)
    judge("bytes of keys, clocks and ticks, a row", run["key_bytes_a_row"], 8, at_least=False, het=16)
    for run in sweeps.get("changed", []):
        if run["admit"] != 1:
            continue
        _, back = back_after(run["hit_rates"])
        after = len(run["hit_rates"]) // 2 if back is None else back
        judge(f"{run['policy']}: batches to 90 % of the hit rate", after, ACROSS, at_least=False)
    return entries
