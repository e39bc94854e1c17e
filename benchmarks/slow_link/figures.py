"""Draws the figures of docs/benchmarks.md from benchmarks/results/slow_link.json; needs matplotlib.

python benchmarks/slow_link_figures.py [RESULT.json] [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from slow_link_tables import gain, ratio_settings

ROOT = Path(__file__).resolve().parent.parent
LOOKS = {
    "s=0": "tab:gray",
    "s=10": "tab:orange",
    "s=100": "tab:blue",
    "default": "tab:green",
    "default, float32": "tab:purple",
}


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draws communication and step time against those without cache, over the ratio without cache."""
    if not result.get("ratios"):
        return
    settings = sorted(ratio_settings(result), key=lambda entry: float(entry["ratio"]))
    figure, both = plt.subplots(1, 2, figsize=(9.0, 4.0), layout="constrained", sharey=True)
    for axes, what, title in zip(
        both, ("communication", "step"), ("communication", "end to end"), strict=True
    ):
        for name, color in LOOKS.items():
            here = [entry for entry in settings if name in entry["systems"]]
            if here:
                x = [entry["ratio"] for entry in here]
                y = [gain(entry, name, what) for entry in here]
                axes.plot(x, y, "o-", markersize=4, linewidth=1.5, color=color, label=f"no cache / {name}")
        axes.set_xscale("log")
        axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axes.minorticks_off()
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("communication : computing without cache")
        axes.grid(alpha=0.3)
    both[0].set_ylabel("times as long without cache")
    both[1].plot([12], [5.14], "k*", markersize=9, label="HET, s=100 (end to end 5.14x)")
    both[0].plot([12, 12], [2.9, 8.2], "k*", markersize=9, linestyle="none", label="HET, s=10 and s=100")
    for axes in both:
        axes.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "slow_link_ratios.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]]
    source = given[0] if given else ROOT / "benchmarks/results/slow_link.json"
    draw(json.loads(source.read_text()), given[1] if len(given) > 1 else ROOT / "docs/img")
