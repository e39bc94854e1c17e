"""Does GraphSAGE learn as well from a table of het_tf as from keras.layers.Embedding?

    python benchmarks/graph/run.py [--data NAME ...] [--seeds K ...] [--out FILE]

Two workers under horovodrun train `examples/graphsage.py`, or its twin, twin.py; rank 0 tests. The
same graph, draws, initial rows, weights, optimizers and rates; the rows are a Keras variable on each worker
whose gradients Horovod averages, or a table at one server, at staleness 0 and at the default bounds. Seeds
are paired. What is done is kept in build/graph, so a run may be stopped. The exit status is 1 if a
goal is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from graph_training import DEFAULTS

from benchmarks import report

PLACE = ROOT / "build/graph"
DATA = ("pubmed", "graph_like:20000", "blogcatalog", "debian")
SIDES = {
    "keras": (),
    "het, staleness 0": ("--staleness", "0"),
    "het, default": (),
}
LIMITS = {"het, staleness 0": 0.005, "het, default": 0.01}
FLOORS = {"pubmed": 0.77, "blogcatalog": 0.36}
FORMAT = 1
"""Part of what is kept: another way of training, another number."""


def launch(program: str, words: Sequence[str]) -> str:
    """Runs a program in two workers; returns what rank 0 printed."""
    launcher = str(Path(sys.executable).with_name("horovodrun"))
    command = [launcher, "-np", "2", "-H", "localhost:2", "--gloo", sys.executable]
    command += [str(ROOT / program), *words]
    outside = {name: value for name, value in os.environ.items() if name != "HET_PS"}
    environment = {**outside, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def score(data: str, side: str, seed: int) -> dict[str, Any]:
    """Returns one run's figures, measured now or before."""
    program = "benchmarks/graph/twin.py" if side == "keras" else "examples/graphsage.py"
    words = ["--data", data, "--seed", str(seed), *SIDES[side]]
    settings = repr((FORMAT, program, words, DEFAULTS[data.partition(":")[0]]))
    kept = PLACE / f"{hashlib.sha256(settings.encode()).hexdigest()[:24]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    output = launch(program, words)
    found = re.search(r"test (accuracy|micro-F1) (\d\.\d+)", output)
    valid = re.search(r"valid \S+ (\d\.\d+)", output)
    if found is None or valid is None:
        sys.exit(f"error: {' '.join(words)} printed no score:\n{output[-2000:]}")
    run = {"data": data, "side": side, "seed": seed, "metric": found[1]}
    run |= {"test": float(found[2]), "valid": float(valid[1])}
    PLACE.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(run))
    return run


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns means, and paired differences with their standard errors, by data set and side."""
    result: dict[str, Any] = {}
    for data in dict.fromkeys(run["data"] for run in runs):
        mine = [run for run in runs if run["data"] == data]
        of = {side: np.array([run["test"] for run in mine if run["side"] == side]) for side in SIDES}
        gaps = {side: of[side] - of["keras"] for side in SIDES if side != "keras"}
        result[data] = {
            "metric": mine[0]["metric"],
            "seeds": len(of["keras"]),
            "mean": {side: float(values.mean()) for side, values in of.items()},
            "minus_keras": {side: float(gap.mean()) for side, gap in gaps.items()},
            "standard_error": {
                side: float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else None
                for side, gap in gaps.items()
            },
        }
    return result


def goals_of(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the goals."""
    goals = []
    for data, of in summary.items():
        for side, limit in LIMITS.items():
            value = -of["minus_keras"][side]
            goals.append(report.goal(f"{data}: Keras - {side}", value, "<=", limit))
        if data in FLOORS:
            value, limit = of["mean"]["het, default"], FLOORS[data]
            goals.append(report.goal(f"{data}: {of['metric']}", value, ">=", limit))
    return goals


def main() -> None:
    """Measures, prints the table, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA), help=f"default {' '.join(DATA)}")
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[3],
        help="of each data set, in their order; one number: of all; default 3",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).with_name("result.json"),
        help="the JSON file",
    )
    arguments = parser.parse_args()
    seeds = arguments.seeds if len(arguments.seeds) > 1 else arguments.seeds * len(arguments.data)
    if len(seeds) != len(arguments.data) or min(seeds) < 1:
        parser.error(f"--seeds has {seeds} for {arguments.data}; give one number, or one a data set, from 1")
    runs = []
    for data, count in zip(arguments.data, seeds, strict=True):
        for seed in range(1, count + 1):
            for side in SIDES:
                runs.append(score(data, side, seed))
                print(f"{data:18} seed {seed} {side:18} {runs[-1]['test']:.4f}", flush=True)
    summary = summarise(runs)
    result = {
        "command": " ".join(["python benchmarks/graph/run.py", *sys.argv[1:]]),
        "machine": report.machine(),
        "runs": runs,
        "summary": summary,
        "goals": goals_of(summary),
    }
    report.finish(result, arguments.out, __file__)
    if not all(goal["met"] for goal in result["goals"]):
        sys.exit("error: a goal is missed")


if __name__ == "__main__":
    main()
