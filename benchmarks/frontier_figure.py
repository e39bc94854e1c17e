"""Draws docs/img/frontier.png, bytes saved against AUC lost, of what traffic.py and accuracy.py measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from accuracy_tables import WITHIN, differences, interval, name_of
from traffic import AUTO
from traffic_goals import find

Figures = dict[str, Any]
HET = {"bound": "100", "wire": "float32", "hot": "", "placed": ""}
"""The setting that HET's paper recommends."""


def points(accuracy: Figures, traffic: Figures, dim: int) -> list[tuple[int, Figures, float, float, float]]:
    """Returns of each setting but s=0 that both have: number, run, % saved, AUC lost, half its interval."""
    part = accuracy["parts"]["classes"]
    runs = [run for sweep in ("classes", "dims", "staleness") for run in traffic["sweeps"][sweep]]
    found = []
    for at, run in list(enumerate(part["groups"][0]["runs"]))[1:]:
        setting = {name: run[name] for name in HET}
        if run["hot"] == "auto":  # with the learning rate of accuracy.json
            setting |= dict(zip(("bound", "hot"), AUTO[8], strict=True))
        cache = {"dim": dim, "workers": 8, "cache": 0.1, "checks": "told" if run["hot"] else "asked"}
        try:
            saved = find(runs, **(setting | cache))["bytes_saved"]
        except KeyError:
            continue
        mean, half = interval(differences(part, at))
        found.append((at, run, 100 * saved, -mean, half))
    return found


def draw(accuracy: Figures, traffic: Figures, folder: Path) -> Path:
    """Draws a panel for 16 and for 128 floats a row; returns the file."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axes, dim in zip(panels, (16, 128), strict=True):
        for at, run, saved, lost, half in points(accuracy, traffic, dim):
            is_het = HET.items() <= run.items()
            axes.errorbar(
                [saved],
                [lost],
                [half],
                color=f"C{at}",
                marker="*" if is_het else "o",
                markersize=12 if is_het else 6,
                capsize=3,
                linestyle="none",
                label=name_of(run) + (", float32: HET" if is_het else ""),
            )
        axes.axhspan(-WITHIN, WITHIN, color="tab:green", alpha=0.12)
        axes.set(title=f"{dim} floats a row", xlabel="bytes saved, %", ylabel="AUC lost")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    file = folder / "frontier.png"
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return file
