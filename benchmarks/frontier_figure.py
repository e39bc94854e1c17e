"""Draws docs/img/frontier.png, bytes saved against AUC lost, of what traffic.py and accuracy.py measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from accuracy_tables import WITHIN, differences, interval, name_of
from traffic_goals import find

Figures = dict[str, Any]
HET = {"bound": "100", "wire": "float32", "hot": "", "placed": ""}
"""The setting that HET's paper recommends."""
AUTO = "4096 1 9"
"""The bounds that hot="auto" has in the runs of accuracy.json: a learning rate of 0.05, 8 workers."""


def points(accuracy: Figures, traffic: Figures, dim: int) -> list[tuple[str, bool, float, float, float]]:
    """Returns of each setting that both have: name, whether it is HET's, % saved, AUC lost, half interval."""
    part = accuracy["parts"]["classes"]
    runs = [run for sweep in ("classes", "dims", "staleness") for run in traffic["sweeps"][sweep]]
    found = []
    for at, run in enumerate(part["groups"][0]["runs"]):
        setting = {name: run[name] for name in HET}
        hot = AUTO if run["hot"] == "auto" else run["hot"]
        cache = {"dim": dim, "workers": 8, "cache": 0.1, "checks": "told" if hot else "asked"}
        try:
            saved = find(runs, **(setting | {"hot": hot} | cache))["bytes_saved"]
        except KeyError:
            continue
        mean, half = interval(differences(part, at)) if at else (0.0, 0.0)
        found.append((name_of(run), setting == HET, 100 * saved, -mean, half))
    return found


def draw(accuracy: Figures, traffic: Figures, folder: Path) -> Path:
    """Draws a panel for 16 and for 128 floats a row; returns the file."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for axes, dim in zip(panels, (16, 128), strict=True):
        for name, is_het, saved, lost, half in points(accuracy, traffic, dim):
            label = f"{name} (HET)" if is_het else name
            axes.errorbar([saved], [lost], [half], marker="*" if is_het else "o", capsize=2, label=label)
        axes.axhspan(-WITHIN, WITHIN, color="tab:green", alpha=0.12)
        axes.set(title=f"{dim} floats a row", xlabel="bytes saved, %", ylabel="AUC lost")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    file = folder / "frontier.png"
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return file
