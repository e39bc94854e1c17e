"""What is judged of a result of traffic: its goals, what reads may miss, when hits are back."""

from __future__ import annotations

from typing import Any

from benchmarks.report import goal

Figures = dict[str, Any]

CLASSES = ("miss_pull", "update_pull", "bound_push", "evict_push")
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
"""Batches after which the hit rate must be back."""


def find(runs: list[Figures], **wanted: object) -> Figures:
    """Returns the run with these settings."""
    for run in runs:
        if wanted.items() <= run.items():
            return run
    raise KeyError(f"no run has {wanted}")


def missed_at_most(run: Figures) -> int | None:
    """Returns I3's bound of the oldest rows: foreign ticks that a read may miss; None: there is none.

    Clients have unsent updates, and each of their workers has a step in progress.
    """
    pull, push = run["bounds"]["pull"], run["bounds"]["push"]
    if pull is None or push is None:
        return None
    share = int(run["share"])
    return int(pull["most"]) + (int(run["workers"]) // share - 1) * (int(push["most"]) + share)


def back_after(rates: list[float]) -> Figures:
    """Returns the hit rate before all ids change in the middle, and the batches until 90 % of it are back."""
    middle = len(rates) // 2
    steady = sum(rates[:middle][-ACROSS:]) / min(ACROSS, middle)

    def first(part: list[float]) -> int | None:
        return next((step for step, rate in enumerate(part) if rate >= 0.9 * steady), None)

    return {"hits_before": steady, "from_empty": first(rates[:middle]), "after_change": first(rates[middle:])}


def goals(result: Figures) -> list[Figures]:
    """Returns what is judged, in percent, points, bytes or batches."""
    sweeps = result["sweeps"]
    found: list[Figures] = []

    def judge(name: str, value: float, sign: str, limit: float) -> None:
        found.append(goal(name, value, sign, limit))

    for words, wanted, limit in OF_DEFAULT:
        for run in sweeps.get("default", []):
            if wanted.items() <= run.items():
                judge(f"bytes saved, {words}, %", 100 * run["bytes_saved"], ">=", limit)
    dims, workers = sweeps["dims"], sweeps.get("workers", [])
    for bound, limit in (("10/10", 66), ("100/100", 88)):
        saved = find(dims, bound=bound, dim=128)["rows_saved"]
        judge(f"rows saved, {bound}, %", 100 * saved, ">=", limit)
    for count in (2, 8) if workers else ():
        own, whole = (find(workers, workers=count, cache=cache)["rows_saved"] for cache in (0.1, 1))
        judge(f"10/10, N={count}: below a cache of all rows, points", 100 * (whole - own), "<=", 4)
    for run in sweeps.get("share", []) if workers else []:
        if (run["workers"], run["bound"], run["share"], run["cache"]) == (8, "10/10", 4, 0.1):
            two, own = (find(workers, workers=count, cache=0.1) for count in (2, 8))
            fall = 100 * (two["rows_saved"] - run["rows_saved"])
            judge("10/10, fall from N=2 to N=8, 4 workers a host share a cache", fall, "<=", 5)
            most = own["staleness"]["max"]
            judge("the same, most updates that a read missed", run["staleness"]["max"], "<=", most)
    seen = [run for sweep in sweeps.values() for run in sweep if run["staleness"]["max"] is not None]
    over = [
        run for run in seen if (most := missed_at_most(run)) is not None and run["staleness"]["max"] > most
    ]
    judge("runs in which a read missed more than I3 allows", len(over), "<=", 0)
    run = find(dims, bound="100/100", dim=16)
    judge("bytes of a checked key", run["bytes_a_check"], "<=", 6)
    judge("bytes of keys, clocks and ticks, a row", run["key_bytes_a_row"], "<=", 8)
    for run in sweeps.get("changed", []):
        if run["admit"] == 1:
            after = run["after_change"]
            batches = len(run["hit_rates"]) // 2 if after is None else after
            judge(f"{run['policy']}: batches to 90 % of the hit rate", batches, "<=", ACROSS)
    return found
