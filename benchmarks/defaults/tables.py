"""The table and the figure of benchmarks/defaults.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {
    "user_item": "users and items", "wide_deep": "Wide & Deep", "deepfm": "DeepFM", "dcn": "DCN",
    "links": "GraphSAGE, links", "classes": "GraphSAGE, classes",
}  # fmt: skip


def best(runs: Iterable[dict[str, Any]]) -> list[float]:
    """Of each seed the value after its best pass."""
    return [max(run["values"]) for run in runs]


def cell(runs: list[dict[str, Any]], twin: list[dict[str, Any]]) -> str:
    """The mean, and in brackets the mean difference to the twin of the same seed."""
    if not runs:
        return ""
    other = {run["seed"]: max(run["values"]) for run in twin}
    gap = np.mean([max(run["values"]) - other[run["seed"]] for run in runs])
    return f"{np.mean(best(runs)):.4f} ({gap:+.4f})"


def table(result: dict[str, Any]) -> list[str]:
    """A line for each data set, model and batch."""
    runs = [run for run in result["runs"] if run["data"] != "curves"]
    lines = ["| data | model | batch | seeds | keras | het, one process | het, eight workers |"]
    lines += ["|---|---|--:|--:|--:|--:|--:|"]
    for data, model, batch in sorted({(run["data"], run["model"], run["batch"]) for run in runs}):
        here = [run for run in runs if (run["data"], run["model"], run["batch"]) == (data, model, batch)]
        twin, *ours = (
            [run for run in here if (run["side"], run["workers"]) == side]
            for side in (("keras", 1), ("het", 1), ("het", 8))
        )
        cells = " | ".join(cell(one, twin) for one in ours)
        name = NAMES[model]
        lines.append(f"| {data} | {name} | {batch:,} | {len(twin)} | {np.mean(best(twin)):.4f} | {cells} |")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return [*lines, "", f"{versions}."]


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Draws docs/img/optimizers.png; returns the file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = [run for run in result["runs"] if run["data"] == "curves"]
    if not runs:
        return []
    figure, (passes, rates, widths) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    old = "RowWiseAdagrad, initial_accumulator=0.1"
    for model, rate, label in (
        ("RowWiseAdagrad", 0.05, "het_tf, nothing given"),
        ("keras", 0.001, "keras Embedding, Adam(0.001)"),
        ("Adam", 0.001, "het_tf, Adam(0.001)"),
        (old, 0.05, "het_tf, initial_accumulator=0.1"),
    ):
        values = next(run["values"] for run in runs if (run["model"], run["rate"]) == (model, rate))
        passes.plot(range(1, 1 + len(values)), values, marker="o", label=label)
    passes.set(title="by passes", xlabel="pass", ylabel="test AUC", xticks=range(1, 5))
    for model in dict.fromkeys(run["model"] for run in runs if run["model"] not in ("keras", "width")):
        points = sorted((run["rate"], run["values"][-1]) for run in runs if run["model"] == model)
        label = model.replace("RowWiseAdagrad, initial", "RowWiseAdagrad,\ninitial")
        rates.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label)
    rates.set(title="by learning rate, after four passes", xlabel="rate", xscale="log")
    points = sorted((run["dim"], max(run["values"])) for run in runs if run["model"] == "width")
    widths.plot(*zip(*points, strict=True), marker="o")
    widths.set(title="the default by width, best pass", xlabel="floats of a row", xscale="log")
    widths.set_xticks([dim for dim, _ in points], [str(dim) for dim, _ in points])
    widths.minorticks_off()
    for axes in (passes, rates, widths):
        axes.grid(alpha=0.3)
    passes.legend(fontsize=7)
    rates.legend(fontsize=7, loc="lower left")
    rates.set_xlim(1e-6)
    file = folder / "optimizers.png"
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return [file]


WRITERS = {"table": table}
