"""What is judged of a result of traffic: its goals, and what the protocol lets reads miss."""

from __future__ import annotations

from typing import Any

from benchmarks.report import goal

Figures = dict[str, Any]

CLASSES = ("miss_pull", "update_pull", "bound_push", "evict_push")
DEFAULT = {"stream": "criteo_scaled", "bound": "30", "wire": "int4", "workers": 8}
ADAGRAD = DEFAULT | {"bounds_of": "adagrad"}
OWN = DEFAULT | {"bounds_of": "row_wise_adagrad", "dim": 16, "placed": ""}
OF_DEFAULT: tuple[tuple[str, Figures, float], ...] = (
    ("default, 16 floats", OWN, 91),
    ("default, 16 floats, placed", OWN | {"placed": "C24"}, 93),
    ("default, 128 floats", OWN | {"dim": 128}, 93.5),
    ("default, 16 floats, 2 workers", OWN | {"workers": 2}, 95),
    ("default, 16 floats, 32 workers", OWN | {"workers": 32}, 85),
    ("AdaGrad, 16 floats, placed", ADAGRAD | {"dim": 16, "placed": "C24"}, 92.5),
    ("AdaGrad, 128 floats, placed", ADAGRAD | {"dim": 128, "placed": "C24"}, 95),
    ("AdaGrad, 16 floats", ADAGRAD | {"dim": 16, "placed": ""}, 89.5),
    ("AdaGrad, 128 floats", ADAGRAD | {"dim": 128, "placed": ""}, 92.5),
    ("s=0, int4, 16 floats", DEFAULT | {"bound": "0", "dim": 16, "placed": "", "cache": 0.1}, 81),
)
"""Goals of the bytes that the default saves, and of a staleness of 0 with rounded rows."""


def find(runs: list[Figures], **wanted: object) -> Figures:
    """Returns the run with these settings."""
    for run in runs:
        if wanted.items() <= run.items():
            return run
    raise KeyError(f"no run has {wanted}")


def run_settings(run: Figures) -> Figures:
    """Returns what two runs of the default differ in."""
    return {name: run[name] for name in ("bound", "bounds_of", "wire", "workers", "dim", "cache", "placed")}


def missed_at_most(run: Figures) -> int | None:
    """Returns I3's bound of the oldest rows: foreign ticks that a read may miss; None: there is none.

    Others have unsent updates, and each has a step in progress.
    """
    pull, push = run["bounds"]["pull"], run["bounds"]["push"]
    if pull is None or push is None:
        return None
    return int(pull["most"]) + (int(run["workers"]) - 1) * (int(push["most"]) + 1)


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
    hashed = [run for run in sweeps.get("default", []) if run["stream"] == "criteo_hashed"]
    for run in hashed:
        dense = find(sweeps["default"], **{**run_settings(run), "stream": "criteo_scaled"})["bytes_saved"]
        name = f"s={run['bound']}, {run['bounds_of']}, hashed ids: below dense ids, points"
        judge(name, 100 * (dense - run["bytes_saved"]), "<=", 3)
    dims, workers = sweeps.get("dims", []), sweeps.get("workers", [])
    for bound, limit in (("10/10", 66), ("100/100", 88)) if dims else ():
        saved = find(dims, bound=bound, dim=128)["rows_saved"]
        judge(f"rows saved, {bound}, %", 100 * saved, ">=", limit)
    for count in (2, 8) if workers else ():
        own, whole = (find(workers, workers=count, cache=cache)["rows_saved"] for cache in (0.1, 1))
        judge(f"10/10, N={count}: below a cache of all rows, points", 100 * (whole - own), "<=", 4)
    seen = [run for sweep in sweeps.values() for run in sweep if run["staleness"]["max"] is not None]
    over = [run for run in seen if run["allowed"] is not None and run["staleness"]["max"] > run["allowed"]]
    judge("runs in which a read missed more than I3 allows", len(over), "<=", 0)
    if dims:
        run = find(dims, bound="100/100", dim=16)
        judge("bytes of a checked key", run["bytes_a_check"], "<=", 6)
        judge("bytes of keys, clocks and ticks, a row", run["key_bytes_a_row"], "<=", 8)
    return found
