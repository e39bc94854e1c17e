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
REGIMES = {
    "criteo_like": ("accumulators begin at 0", "tab:blue"),
    "on_demand": ("the same, rows on demand", "tab:green"),
    "accumulator": ("accumulators begin at 0.1", "tab:orange"),
}
"""Parts of accuracy.json: what sets them apart, and a colour."""
MARKERS = "sD^v*oPX<>"


def points(part: Figures, runs: list[Figures], dim: int) -> list[tuple[str, float, float, float]]:
    """Returns of each setting that both measured: its name, % saved, AUC lost, half its interval.

    Of a part with rows on demand it returns those.
    """
    of_part = part["groups"][0]["runs"]
    on_demand = any(run.get("on_demand") for run in of_part)
    runs = [run for run in runs if (run.get("sync") == "on_demand") == on_demand]
    found = []
    for at, run in enumerate(of_part):
        if bool(run.get("on_demand")) != on_demand:
            continue
        setting = {name: run[name] for name in ("bound", "wire", "placed")}
        try:
            saved = find(runs, **setting, dim=dim, workers=8)["bytes_saved"]
        except KeyError:
            continue
        mean, half = interval(differences(part, at))
        found.append((name_of(run), 100 * saved, -mean, half))
    return found


def draw(accuracy: Figures, traffic: Figures, folder: Path) -> Path | None:
    """Draws a panel for 16 and for 128 floats a row; returns the file, or None where nothing is measured."""
    regimes = {name: of for name, of in REGIMES.items() if name in accuracy["parts"]}
    runs = [*traffic["sweeps"].get("default", []), *traffic["sweeps"].get("on_demand", [])]
    if not regimes or not runs:
        return None
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained", sharey=True)
    markers: dict[str, str] = {}
    for axes, dim in zip(panels, (16, 128), strict=True):
        for part, (_, color) in regimes.items():
            for setting, saved, lost, half in points(accuracy["parts"][part], runs, dim):
                marker = markers.setdefault(setting, MARKERS[len(markers)])
                style = {"marker": marker, "color": color, "capsize": 3, "linestyle": "none"}
                axes.errorbar([saved], [lost], [half], **style)
        axes.axhspan(-WITHIN, WITHIN, color="tab:green", alpha=0.12)
        axes.set_yscale("symlog", linthresh=2 * WITHIN)
        axes.set(title=f"{dim} floats a row", xlabel="bytes saved, %", ylabel="AUC lost")
        axes.grid(alpha=0.3)
    for setting, marker in markers.items():
        panels[0].plot([], [], marker, color="black", label=setting)
    for what, color in regimes.values():
        panels[0].plot([], [], color=color, linewidth=5, label=what)
    panels[0].legend(fontsize=8)
    file = folder / "frontier.png"
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return file
