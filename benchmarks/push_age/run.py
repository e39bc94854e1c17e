"""What does Cache(push_max_age=...) cost: bytes and time of a step?

    python benchmarks/push_age/run.py [--steps N] [--turns K] [--out FILE]

One worker with the default staleness trains against a parameter server, ten steps a second of 128 samples x
26 Zipf-distributed ids of 10^6 rows of 16 floats, with a cache of a tenth of them. So an age of one second is
ten steps. Bytes are those of the server's connections, both ways. Each setting runs in a process, and at a
server, of its own; settings take turns, and the first half of each run warms up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import report

SAMPLES, FEATURES, DIM, ROWS = 128, 26, 16, 1_000_000
PACE = 10.0  # steps a second
AGES = (None, 3.0, 1.0, 0.3)


def train(server: str, age: float | None, steps: int, answers: Any) -> None:
    """Trains, and answers the figures of a step of the second half."""
    import tensorflow as tf

    import het_tf
    from benchmarks.local_step import workload
    from het_tf.ext.ps.python import address as addresses
    from het_tf.ext.ps.python.node import Node

    het_tf.init(ps=server)
    node = Node.of(addresses.parse(server))
    layer = het_tf.keras.Embedding(DIM, name="item", cache=het_tf.Cache(rows=ROWS // 10, push_max_age=age))
    ids = workload.zipf_ids(steps * SAMPLES * FEATURES, ROWS).reshape(steps, -1)
    layer(tf.constant(ids[0]))

    @tf.function
    def step(batch: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(layer(batch) - 1.0))
        variables = layer.trainable_variables
        het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))

    def count() -> tuple[int, dict[str, int]]:
        info = node.info("stats")
        bytes_ = int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"])
        return bytes_, het_tf.Table("item").stats()["cache"]

    step(tf.constant(ids[0]))
    took = []
    begin = time.perf_counter()
    for number, batch in enumerate(ids):
        if number == steps // 2:
            bytes_before, before = count()
        time.sleep(max(0.0, begin + number / PACE - time.perf_counter()))
        start = time.perf_counter()
        step(tf.constant(batch))
        took.append(time.perf_counter() - start)
    bytes_after, after = count()
    half = steps - steps // 2
    pushes = {name: after[name] - before[name] for name in ("bound_push", "evict_push", "age_push")}
    answers.put(
        {
            "bytes": (bytes_after - bytes_before) / half,
            "step_ms": 1e3 * statistics.median(took[steps // 2 :]),
            **{name: rows / half for name, rows in pushes.items()},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import het_tf
    from het_tf.ext.ps.python.redis_server import LocalServer

    context = multiprocessing.get_context("spawn")
    runs: dict[float | None, list[dict[str, float]]] = {age: [] for age in AGES}
    for _ in range(options.turns):
        for age in AGES:
            with LocalServer.start() as server:
                answers = context.Queue()
                process = context.Process(
                    target=train, args=(server.address, age, options.steps, answers), daemon=True
                )
                process.start()
                runs[age].append(answers.get())
                process.join()
    found = []
    for age, figures in runs.items():
        mean = {name: statistics.mean(one[name] for one in figures) for name in figures[0]}
        found.append({"push_max_age": "none" if age is None else f"{age:g} s", **mean})
    for one in found:
        one["of_none"] = {name: one[name] / found[0][name] for name in ("bytes", "step_ms")}
    result = {"ages": found, "pace": PACE, "machine": report.machine()}
    result["versions"] = {"het_tf": het_tf.__version__}
    result["command"] = "python benchmarks/push_age/run.py"
    report.finish(result, options.out, __file__)


if __name__ == "__main__":
    main()
