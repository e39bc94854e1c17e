"""Do tables on PyTorch and JAX cost what they cost on TensorFlow, and learn the same?

    make benchmark-backends        # or: python benchmarks/backends/run.py [--quick] [--out FILE]

A step is 128 samples x 26 ids of one table of rows of 16 floats: rows, a gradient of them, the update. Each
system has a process of its own on one core; the systems take turns, and a figure is the median over rounds of
the time of a step, and then the least over turns. AUC is of Wide & Deep on the same rows in the same order,
with dense weights that begin alike. PyTorch and JAX run in .venv-backends, where there is no TensorFlow, and
TorchRec beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report

OTHERS = ROOT / ".venv-backends/bin/python"
PEER = ROOT / ".peers/torchrec"
SIDE = Path(__file__).with_name("side.py")
BACKENDS = ("tensorflow", "torch", "jax")
DATA = {"census": 3, "movielens": 2}  # passes
LIMITS = {"torch": 1.1, "jax": 1.5}


def side(backend: str, *words: object) -> dict[str, Any]:
    """Runs a side; returns what it found."""
    python = sys.executable if backend == "tensorflow" else str(OTHERS)
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment["PYTHONPATH"] = str(PEER)
    done = subprocess.run(
        [python, str(SIDE), *map(str, words)], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode != 0:
        raise RuntimeError(f"{backend}, {words}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def steps(sizes: tuple[int, ...], number: int, turns: int) -> list[dict[str, Any]]:
    """The time of a step of each system."""
    systems = [
        *((backend, f"{backend}/default", rows) for rows in sizes for backend in BACKENDS),
        *(("torch", "torchrec/default", rows) for rows in sizes if PEER.exists()),
        *((backend, f"{backend}/adam", rows) for rows in sizes for backend in BACKENDS),
        *(("torch", "embedding_bag/adam", rows) for rows in sizes),
    ]
    if not PEER.exists():
        print(f"TorchRec is left out: {PEER} is missing; run: make benchmark-backends")
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for _ in range(turns):
        for backend, system, rows in systems:
            one = side(backend, "step", system, rows, number)
            before = found.setdefault((system, rows), one)
            before["ms"] = min(before["ms"], one["ms"])
    for one in found.values():
        one["of_tensorflow"] = one["ms"] / found[f"tensorflow/{one['update']}", one["rows"]]["ms"]
    return list(found.values())


def write(name: str, place: Path) -> Path:
    """Writes a data set as arrays, its training rows in one random order."""
    import data

    splits = data.load(name)
    arrays = {}
    for part, source in (("train", splits.train), ("test", splits.test)):
        order = np.random.default_rng(0).permutation(len(source))
        order = order if part == "train" else np.arange(len(order))
        names = [*splits.fields, *(["numeric"] if splits.numeric else [])]
        columns = {name: source.columns[name] for name in names}
        arrays |= {f"{part}/{column}": values[order] for column, values in columns.items()}
        arrays[f"{part}/label"] = source.label[order]
    path = place / f"{name}.npz"
    np.savez(path, **arrays)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, one pass, one size of table")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    if not OTHERS.exists():
        parser.error(f"{OTHERS.parent.parent} is missing; run: make benchmark-backends")
    sizes, number, turns = ((10_000,), 5, 1) if arguments.quick else ((1_000_000, 10_000_000), 200, 2)
    measured = steps(sizes, number, turns)
    models = []
    with tempfile.TemporaryDirectory() as place:
        for name, epochs in DATA.items():
            path = write(name, Path(place))
            for backend in BACKENDS:
                models.append({"data": name, **side(backend, "auc", path, 1 if arguments.quick else epochs)})
    by = {(one["data"], one["backend"]): one["auc"] for one in models}
    result = {
        "command": "python benchmarks/backends/run.py",
        "steps": measured,
        "models": models,
        "machine": report.machine(),
        "goals": [
            *(
                report.goal(
                    f"a step on {one['system']}, of TensorFlow's", one["of_tensorflow"], "<=",
                    LIMITS[one["system"]],
                )
                for one in measured
                if one["update"] == "default" and one["system"] in LIMITS and one["rows"] == sizes[0]
            ),
            *(
                report.goal(f"{data}: AUC on {backend}, difference from TensorFlow's",
                            abs(value - by[data, "tensorflow"]), "<=", 0.001)
                for (data, backend), value in by.items()
                if backend != "tensorflow"
            ),
        ],
    }  # fmt: skip
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
