"""How long does a served prediction take, beside a SavedModel that gathers from a dense variable?

    python benchmarks/serving/run.py [--rows N ...] [--batches B ...] [--calls K] [--out FILE]

One model, three SavedModels: 26 features read one table of 16 floats a row, then a perceptron of 128 and 64
units. In "dense" the ids are positions, and one tf.gather reads the rows: the least that a lookup can cost.
In "portable" and "native" they are any 64-bit numbers. All are run as a server runs them, by a session's
callable; the systems take turns, on the same random ids, uniform over the table, so that rows come from
memory. The figure is the median wall time of a call, the ratio is the median of the ratios of calls beside
each other. Then once more with ids of which a tenth has no row, whose initial rows must be computed. The
goals: portable within 2 times dense, native within 1.3 times.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import het_tf
from benchmarks import report

FEATURES, DIM, UNITS = 26, 16, (128, 64)
GOALS = {"portable": 2.0, "native": 1.3}
NAMES = [f"f{number:02d}" for number in range(FEATURES)]
CHUNK = 1 << 20
UNKNOWN = 0.1

keras = tf.keras


def to_ids(positions: np.ndarray) -> np.ndarray:
    """64-bit ids of positions in the table: what hashes of strings look like."""
    return (positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def perceptron() -> Callable[[Any], Any]:
    layers = [keras.layers.Dense(units, "relu") for units in UNITS] + [keras.layers.Dense(1)]
    width = FEATURES * DIM
    for layer in layers:
        layer.build((None, width))
        width = layer.units

    def run(rows: Any) -> Any:
        for layer in layers:
            rows = layer(rows)
        return rows

    run.layers = layers  # type: ignore[attr-defined]
    return run


class Dense(tf.Module):
    """The peer: positions, one variable, one gather."""

    def __init__(self, values: np.ndarray, head: Any) -> None:
        super().__init__()
        with tf.device("CPU:0"):
            self.table = tf.Variable(values)
        self.head = head
        self.weights = [weight.value for layer in head.layers for weight in layer.weights]

    def save(self, path: Path) -> None:
        @tf.function
        def serve(**inputs: Any) -> dict[str, Any]:
            rows = tf.gather(self.table, tf.stack([inputs[name] for name in NAMES], 1))
            return {"click": self.head(tf.reshape(rows, [-1, FEATURES * DIM]))}

        specs = {name: tf.TensorSpec([None], tf.int64, name) for name in NAMES}
        tf.saved_model.save(self, str(path), signatures=serve.get_concrete_function(**specs))


@keras.utils.register_keras_serializable(package="benchmark")
class Clicks(keras.Model):
    """The same with a table of het_tf."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.embedding = het_tf.keras.Embedding(DIM, name="item")
        self.head, self.head_layers = head, head.layers

    def call(self, inputs: Any, training: Any = None) -> Any:
        rows = self.embedding(tf.stack([inputs[name] for name in NAMES], 1))
        return {"click": self.head(tf.reshape(rows, [-1, FEATURES * DIM]))}

    def input_specs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec([None], tf.int64, name) for name in NAMES}


def make(count: int, directory: Path) -> dict[str, Any]:
    """Writes the three SavedModels. Returns seconds and bytes of each."""
    rng = np.random.default_rng(0)
    head = perceptron()
    model = Clicks(head)
    model({name: tf.zeros([1], tf.int64) for name in NAMES})
    table = het_tf.Table("item")
    values = np.empty((count, DIM), np.float32)
    for start in range(0, count, CHUNK):
        part = values[start : start + CHUNK]
        part[:] = rng.random(part.shape, np.float32) - 0.5
        table.assign(to_ids(np.arange(start, start + len(part))), part)
    made = {}
    for name in ("dense", *GOALS):
        begin = time.perf_counter()
        if name == "dense":
            Dense(values, head).save(directory / name)
        else:
            serving = het_tf.serving
            format = serving.Portable() if name == "portable" else serving.Native()
            het_tf.export(model, directory / name, format, verbose=False)
        made[name] = {
            "save_s": time.perf_counter() - begin,
            "bytes": sum(file.stat().st_size for file in (directory / name).rglob("*") if file.is_file()),
        }
    return made


def callable_of(path: Path) -> Callable[..., np.ndarray]:
    """The signature, as a server runs it."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    meta = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    signature = meta.signature_def["serving_default"]
    feeds = [signature.inputs[name].name for name in NAMES]
    run = session.make_callable(signature.outputs["click"].name, feed_list=feeds)
    return lambda columns: run(*columns)


def measure(count: int, directory: Path, batches: list[int], calls: int) -> list[dict[str, Any]]:
    systems = {}
    loads = {}
    for name in ("dense", *GOALS):
        start = time.perf_counter()
        systems[name] = callable_of(directory / name)
        loads[name] = time.perf_counter() - start
    print(f"{count:,} rows; seconds to load: " + ", ".join(f"{k} {v:.2f}" for k, v in loads.items()))
    rng = np.random.default_rng(1)
    lines = []
    for share in (0.0, UNKNOWN):
        for batch in batches:
            times: dict[str, list[float]] = {name: [] for name in systems}
            for call in range(calls + 5):
                positions = rng.integers(0, count, (FEATURES, batch))
                ids = to_ids(positions)
                if share:
                    unknown = rng.random(ids.shape) < share
                    ids[unknown] = to_ids(positions + count)[unknown]
                answers = {}
                order = list(systems)
                rng.shuffle(order)  # no system always comes behind the same one
                for name in order:
                    columns = list(positions if name == "dense" else ids)
                    start = time.perf_counter()
                    answers[name] = systems[name](columns)
                    if call >= 5:
                        times[name].append(time.perf_counter() - start)
                if not share:
                    for name in GOALS:
                        np.testing.assert_allclose(answers[name], answers["dense"], atol=1e-5)
                np.testing.assert_array_equal(answers["portable"], answers["native"])
            line: dict[str, Any] = {"rows": count, "batch": batch, "unknown": share}
            line["us"] = {name: statistics.median(values) * 1e6 for name, values in times.items()}
            line["ratio"] = {
                name: statistics.median(a / b for a, b in zip(times[name], times["dense"], strict=True))
                for name in GOALS
            }
            lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7], help="of the table")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--calls", type=int, default=400, help="of each system")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    lines, made = [], {}
    for rows in map(int, arguments.rows):
        directory = Path(tempfile.mkdtemp(prefix="het_serving_"))
        try:
            made[rows] = make(rows, directory)
            het_tf.reset()
            lines += measure(rows, directory, arguments.batches, arguments.calls)
        finally:
            shutil.rmtree(directory)
    result = {
        "command": "python benchmarks/serving/run.py",
        "machine": report.machine(),
        "versions": {"het_tf": het_tf.__version__, "TensorFlow": tf.__version__},
        "model": {"features": FEATURES, "dim": DIM, "units": UNITS},
        "saved_models": made,
        "lines": lines,
        "goals": [
            report.goal(
                f"{name}, {line['rows']:,} rows, batch {line['batch']}", line["ratio"][name], "<=", limit
            )
            for line in lines
            if not line["unknown"]  # dense has no such ids
            for name, limit in GOALS.items()
        ],
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
