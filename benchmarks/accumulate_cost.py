"""What does the mode accumulate cost beside the plain one, in time and in bytes?

    python benchmarks/accumulate_cost.py [--batch B] [--steps N] [--out FILE]

Two workers under horovodrun share 26 tables at one redis-server of this machine; ids as in the Criteo-like
stream, staleness 0 and 100. A step is a lookup, its gradient and what the mode exchanges; there is no dense
part, whose all-reduce would be the same in both modes. Both modes are measured in one run, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES = 26
DIM = 16
ROUNDS = 3
_WHAT, _WAY = ("row", "metadata"), ("in", "out")


def worker(given: dict) -> None:
    """One rank: rank 0 writes the figures of each case."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    import het_tf

    hvd.init()
    ids = het_tf.data.criteo_like(given["batch"] * 50 * hvd.size(), seed=1).categorical
    matrix = np.stack(list(ids.values()), 1)[hvd.rank() :: hvd.size()]
    figures: dict[str, list[dict[str, float]]] = {}
    for turn in range(ROUNDS):
        for staleness in (0, 100):
            for accumulate in (False, True):
                name = f"s={staleness}, {'accumulate' if accumulate else 'plain'}"
                space = f"{name}{turn}".replace(" ", "")
                het_tf.init(hvd=hvd, ps=given["ps"], accumulate=accumulate, namespace=space)
                figures.setdefault(name, []).append(measure(tf, het_tf, hvd, matrix, staleness, given))
    if hvd.rank() == 0:
        Path(given["out"]).write_text(json.dumps(figures))


def measure(tf, het_tf, hvd, matrix, staleness: int, given: dict) -> dict[str, float]:
    """Milliseconds and bytes of a step, medians and means over steps after a warm-up."""
    tables = [
        het_tf.TableConfig(f"t{number}", DIM, het_tf.optimizers.Adam(0.01)) for number in range(FEATURES)
    ]
    layer = het_tf.keras.EmbeddingCollection(
        {table.name: het_tf.FeatureConfig(table) for table in tables}, cache=het_tf.Cache(staleness=staleness)
    )
    exchanged, alltoall = tf.Variable(0.0), hvd.alltoall

    def counted(tensor, *args, **kwargs):
        exchanged.assign_add(tf.cast(tf.size(tensor), tf.float32))
        return alltoall(tensor, *args, **kwargs)

    hvd.alltoall = counted
    anchor = [getattr(weight, "value", weight) for weight in layer.trainable_variables]

    @tf.function(input_signature=[tf.TensorSpec([None, FEATURES], tf.int64)])
    def step(ids) -> None:
        with tf.GradientTape() as tape:
            rows = layer({f"t{number}": ids[:, number] for number in range(FEATURES)}, training=True)
            loss = tf.add_n([tf.reduce_mean(tf.square(row - 1.0)) for row in rows.values()])
        gradient = tape.gradient(loss, anchor)
        anchor[0].assign(hvd.allreduce(gradient[0], name="anchor"))

    def traffic() -> float:
        stats = [het_tf.Table(table.name).stats()["cache"] for table in tables]
        return float(sum(one[f"{what}_bytes_{way}"] for one in stats for what in _WHAT for way in _WAY))

    warm, times = 5, []
    for number in range(warm + given["steps"]):
        if number == warm:
            before = traffic()
            exchanged.assign(0.0)
        at = number * given["batch"] % (len(matrix) - given["batch"])
        batch = tf.constant(matrix[at : at + given["batch"]])
        begin = time.perf_counter()
        step(batch)
        times.append(time.perf_counter() - begin)
    server = (traffic() - before) / given["steps"]
    hvd.alltoall = alltoall
    het_tf.reset()
    return {
        "ms": 1000 * statistics.median(times[warm:]),
        "server_kb": server / 1000,
        "exchanged_kb": float(exchanged) / given["steps"] / 1000,
    }


def main() -> None:
    """Starts the server and the workers, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="rows of one worker")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(json.loads(arguments.worker))
        return
    from het_tf.python.ps.redis_server import LocalServer

    with tempfile.TemporaryDirectory() as directory:
        server = LocalServer.start(unix=True)
        try:
            given = {
                "ps": server.address, "batch": arguments.batch, "steps": arguments.steps,
                "out": str(Path(directory) / "figures"),
            }  # fmt: skip
            subprocess.run(
                [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "-H", "localhost:2", "--gloo",
                 sys.executable, __file__, "--worker", json.dumps(given)],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}, check=True,
            )  # fmt: skip
            figures = json.loads(Path(given["out"]).read_text())
        finally:
            server.stop()
    print(
        f"batch {arguments.batch} a worker, 2 workers, {FEATURES} tables x {DIM}, Adam, {os.cpu_count()} CPUs"
    )
    for name, rounds in figures.items():
        ms = statistics.median(one["ms"] for one in rounds)
        server_kb = statistics.median(one["server_kb"] for one in rounds)
        exchanged = statistics.median(one["exchanged_kb"] for one in rounds)
        print(f"{name:20} {ms:8.1f} ms a step, {server_kb:7.0f} kB server, {exchanged:7.0f} kB exchanged")
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
