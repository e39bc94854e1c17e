"""Draws docs/img/optimizers.png from result.json; needs matplotlib.

python benchmarks/defaults/figure.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report

BY_PASSES = (
    ("RowWiseAdagrad", 0.02, "het_tf, nothing given"),
    ("keras", 0.001, "keras Embedding, Adam(0.001)"),
    ("Adam", 0.001, "het_tf, Adam(0.001)"),
    ("RowWiseAdagrad, decay_steps=1", 0.05, "het_tf, RowWiseAdagrad(0.05, decay_steps=1)"),
)


def draw(runs: list[dict[str, Any]], file: Path) -> None:
    """Draws test AUC by passes, by learning rate and by width."""
    figure, (passes, rates, widths) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for model, rate, label in BY_PASSES:
        values = next(run["values"] for run in runs if (run["model"], run["rate"]) == (model, rate))
        passes.plot(range(1, 1 + len(values)), values, marker="o", label=label)
    passes.set(title="by passes", xlabel="pass", ylabel="test AUC", xticks=range(1, 5))
    for model in dict.fromkeys(run["model"] for run in runs if run["model"] not in ("keras", "width")):
        points = sorted((run["rate"], run["values"][-1]) for run in runs if run["model"] == model)
        label = model.replace(", decay", ",\ndecay")
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
    rates.legend(fontsize=7, loc="lower center")
    rates.set_xlim(5e-4)
    rates.set_ylim(0.66)  # SGD begins below
    figure.savefig(file, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    curves = [run for run in report.load("defaults")["runs"] if run["data"] == "curves"]
    draw(curves, ROOT / "docs/img/optimizers.png")
