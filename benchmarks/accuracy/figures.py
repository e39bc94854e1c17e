"""Draws docs/img/accuracy.png from benchmarks/results/accuracy.json; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from accuracy_tables import NAMES, differences, interval, kinds, name_of

SHOWN = ("criteo_like", "thousand", "census", "accumulator")


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Draws the differences to s=0 by bound, a panel for each part; returns the file."""
    parts = {name: result["parts"][name] for name in SHOWN if name in result["parts"]}
    figure, panels = plt.subplots(
        1, len(parts), figsize=(3.4 * len(parts), 3.8), layout="constrained", squeeze=False
    )
    for axes, (name, part) in zip(panels[0], parts.items(), strict=True):
        runs = part["groups"][0]["runs"]
        for place, (model, workers) in enumerate(kinds(part)):
            points = [
                interval(differences(part, number, model=model, workers=workers))
                for number in range(1, len(runs))
            ]
            axes.errorbar(
                [number + 0.06 * place for number in range(1, len(runs))],
                [mean for mean, _ in points],
                [half for _, half in points],
                label=f"{NAMES[model]}, {workers}",
                marker="o",
                markersize=4,
                linestyle="none",
                capsize=2,
            )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(
            range(1, len(runs)), [name_of(run).replace(", ", ",\n") for run in runs[1:]], fontsize=8
        )
        axes.set(title=name, ylabel="AUC less that at s=0")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    file = folder / "accuracy.png"
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return [file]
