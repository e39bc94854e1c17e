"""Draws the figures of docs/benchmarks.md from benchmarks/results/traffic.json; needs matplotlib.

python benchmarks/traffic_figures.py [RESULT.json] [FOLDER]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from traffic_goals import (
    CLASSES,
    HET_CACHE,
    HET_ROWS,
    HET_WORKERS,
    HET_WORKERS_ALL,
    missed_at_most,
    no_cache,
)

ROOT = Path(__file__).resolve().parent.parent
Figures = dict[str, Any]
STYLE = {"marker": "o", "markersize": 4, "linewidth": 1.5}
HET = {"color": "black", "linestyle": "none", "markersize": 7}
SIZE = (7.0, 4.2)


def saved(runs: list[Figures], what: str = "rows_saved") -> list[float]:
    return [100 * run[what] for run in runs]


def of_cache(runs: list[Figures], share: float) -> list[Figures]:
    return [run for run in runs if run["cache"] == share]


def draw_staleness(result: Figures, axes: Any) -> None:
    runs = result["sweeps"]["staleness"]
    bounds = [run["bound"] for run in of_cache(runs, 0.1)]
    axes.plot(bounds, saved(of_cache(runs, 0.1)), label="rows, cache of 10 %", color="tab:blue", **STYLE)
    every = of_cache(runs, 1)
    axes.plot(
        [run["bound"] for run in every],
        saved(every),
        "s",
        label="rows, all rows cached",
        color="tab:gray",
    )
    axes.plot(
        bounds,
        saved(of_cache(runs, 0.1), "bytes_saved"),
        label="bytes, 16 floats",
        color="tab:orange",
        **STYLE,
    )
    axes.plot(list(HET_ROWS), list(HET_ROWS.values()), label="rows, HET (model)", marker="*", **HET)
    axes.set(xlabel="bound", ylabel="saved of no cache, %", ylim=(0, 100), title="8 workers, LFU")


def draw_observed(result: Figures, axes: Any) -> None:
    runs = of_cache(result["sweeps"]["staleness"], 0.1)
    bounds = [run["bound"] for run in runs]
    for name in ("mean", "p99", "max"):
        axes.plot(bounds, [run["staleness"][name] for run in runs], label=name, **STYLE)
    allowed = {run["bound"]: missed_at_most(run) for run in runs}
    known = {bound: limit for bound, limit in allowed.items() if limit is not None}
    axes.plot(list(known), list(known.values()), label="allowed (I3)", color="black", linestyle="--")
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xlabel="bound", ylabel="foreign ticks that a read missed", title="8 workers, cache of 10 %")
    axes.set_ylim(bottom=0)


def draw_bytes(result: Figures, axes: Any) -> None:
    runs = [no_cache(result), *of_cache(result["sweeps"]["staleness"], 0.1)]
    labels = ["no cache", *(run["bound"] for run in runs[1:])]
    bottom = [0.0] * len(runs)
    for name in (*CLASSES, "keys", "checks", "heads"):
        heights = [run["bytes_by_class"][name] / 1000 for run in runs]
        axes.bar(labels, heights, bottom=bottom, label=name.replace("_", " "))
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    axes.set(
        xlabel="bound", ylabel="kB a step of one worker", title="16 floats, 64 partitions, cache of 10 %"
    )


def draw_dims(result: Figures, axes: Any) -> None:
    runs = result["sweeps"]["dims"]
    for bound, color in (("10/10", "tab:blue"), ("100/100", "tab:orange")):
        of = [run for run in runs if run["bound"] == bound]
        sizes = [str(run["dim"]) for run in of]
        axes.plot(sizes, saved(of, "bytes_saved"), label=f"bytes, {bound}", color=color, **STYLE)
        axes.plot(sizes, saved(of), label=f"rows, {bound}", color=color, linestyle=":")
    axes.set(xlabel="floats a row", ylabel="saved of no cache, %", title="8 workers, cache of 10 %")


def draw_workers(result: Figures, axes: Any) -> None:
    runs = result["sweeps"]["workers"]
    counts = [str(run["workers"]) for run in of_cache(runs, 0.1)]
    axes.plot(counts, saved(of_cache(runs, 1)), label="all rows cached", color="tab:gray", **STYLE)
    axes.plot(counts, saved(of_cache(runs, 0.1)), label="cache of 10 %", color="tab:blue", **STYLE)
    limits = {
        run["workers"]: run for run in result["limits"] if run["bound"] == "10/10" and run["cache"] == 0.1
    }
    best = saved([limits[int(count)] for count in counts])
    axes.plot(counts, best, "k--", label="10 %, a cache that knows the future")
    shared = [
        run
        for run in result["sweeps"].get("share", [])
        if (run["bound"], run["share"], run["cache"]) == ("10/10", 4, 0.1)
    ]
    label = "10 % a host, 4 workers share it"
    axes.plot([str(run["workers"]) for run in shared], saved(shared), label=label, color="tab:green", **STYLE)
    for of, label, mark in ((HET_WORKERS_ALL, "HET, all rows cached", "^"), (HET_WORKERS, "HET", "*")):
        axes.plot([str(n) for n in of], list(of.values()), label=f"{label} (model)", marker=mark, **HET)
    axes.set(xlabel="workers", ylabel="rows saved, %", title="bound 10/10, LFU")


def draw_cache(result: Figures, axes: Any) -> None:
    runs = result["sweeps"]["cache"]
    for policy in dict.fromkeys(run["policy"] for run in runs):
        of = sorted((run for run in runs if run["policy"] == policy), key=lambda run: run["cache"])
        line = STYLE if len(of) > 2 else {"marker": "x", "linestyle": "none"}
        axes.plot([100 * run["cache"] for run in of], saved(of), label=policy, **line)
    limits = {
        run["cache"]: run for run in result["limits"] if run["workers"] == 8 and run["bound"] == "100/100"
    }
    shares = sorted(limits)
    best = saved([limits[share] for share in shares])
    axes.plot([100 * share for share in shares], best, "k--", label="a cache that knows the future")
    axes.plot([100 * s for s in HET_CACHE], list(HET_CACHE.values()), label="HET (model)", marker="*", **HET)
    axes.set(xlabel="cache, % of the distinct rows", ylabel="rows saved, %", title="bound 100/100, 8 workers")


def draw_changed(result: Figures, axes: Any) -> None:
    for run in result["sweeps"]["changed"]:
        rates = [100 * rate for rate in run["hit_rates"]]
        middle = len(rates) // 2
        label = run["policy"] + ("" if run["admit"] == 1 else f", admitted at step {run['admit']}")
        axes.plot(range(-middle, len(rates) - middle), rates, label=label, linewidth=1)
    axes.set(
        xlabel="batches after all keys changed", ylabel="hit rate, %", title="bound 100/100, cache of 10 %"
    )


def draw_real(result: Figures, axes: Any) -> None:
    for name, color in (("census", "tab:blue"), ("movielens", "tab:orange")):
        runs = result["sweeps"][name]
        bounds = [run["bound"] for run in runs]
        axes.plot(bounds, saved(runs), label=f"{name}, rows", color=color, **STYLE)
        axes.plot(bounds, saved(runs, "bytes_saved"), label=f"{name}, bytes", color=color, linestyle=":")
    axes.set(xlabel="bound", ylabel="saved of no cache, %", title="real streams, cache of 10 %")


DRAW: dict[str, Callable[[Figures, Any], None]] = {
    "staleness": draw_staleness,
    "observed": draw_observed,
    "bytes": draw_bytes,
    "dims": draw_dims,
    "workers": draw_workers,
    "cache": draw_cache,
    "changed": draw_changed,
    "real": draw_real,
}


def draw(result: Figures, folder: Path) -> list[Path]:
    """Draws every figure whose sweep was run; returns the files."""
    files = []
    for name, fill in DRAW.items():
        sweep = {"observed": "staleness", "bytes": "staleness", "real": "movielens"}.get(name, name)
        if sweep not in result["sweeps"]:
            continue
        figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
        fill(result, axes)
        axes.grid(alpha=0.3)
        axes.tick_params(axis="x", labelsize=9)
        axes.legend(fontsize=8)
        files.append(folder / f"traffic_{name}.png")
        figure.savefig(files[-1], dpi=110, metadata={"Software": None})
        plt.close(figure)
    return files


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "benchmarks/results/traffic.json"
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/img"
    for file in draw(json.loads(source.read_text()), target):
        print(file)
