"""How long does the lookup of one small step take through the op, beside a tf.gather of the same shape?

    python benchmarks/small_step/run.py [--repeats K] [--out FILE]

A step of the HET paper's size: 128 samples x 26 features = 3,328 ids, 1,535 of them unique, 16 floats a row,
every row there (and in the embedding cache, where there is one). Once as one input of 3,328 ids, and as 26
inputs of 128: on one table and on 26. Each call of a tf.function makes 50 lookups one after the other, so the
cost of Python and of the call is not in the figure. They are of 50 different steps, whose rows come from
memory, or of one step ("again"), whose rows are in the CPU's caches. The systems take turns, and the figure
is the median over the calls of the time of one lookup. One thread runs and waits for nothing, so its CPU
time, by which the goal is judged, is the wall time of a core without other work.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
# It would drop the gathers: nobody looks at the rows.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

import het_tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import report
from benchmarks.local_step import workload

SAMPLES, FEATURES, UNIQUE, DIM = 128, 26, 1535, 16
ROWS = 1_000_000
LOOKUPS = 50  # of a call
GOAL_MS = 0.1


def step_ids() -> np.ndarray:
    """Returns int64 [LOOKUPS, SAMPLES, FEATURES], each step with exactly UNIQUE different ids."""
    rng = np.random.default_rng(4)
    steps = []
    for seed in range(LOOKUPS):
        popular = dict.fromkeys(workload.zipf_ids(40 * UNIQUE, ROWS, seed=seed).tolist())
        unique = np.array(list(popular)[:UNIQUE])
        again = unique[rng.zipf(1.5, 64 * UNIQUE) % UNIQUE][: SAMPLES * FEATURES - UNIQUE]
        steps.append(rng.permutation(np.concatenate([unique, again])).reshape(SAMPLES, FEATURES))
        assert len(np.unique(steps[-1])) == UNIQUE
    return np.stack(steps)


def repeated(lookup: Callable, ids: np.ndarray, split: bool) -> Callable[[], tf.Tensor]:
    """A function without arguments that runs `lookup` for each step, one after the other."""
    steps = [
        [tf.constant(column) for column in step.T] if split else tf.constant(step.reshape(-1)) for step in ids
    ] * (LOOKUPS // len(ids))

    @tf.function
    def run():
        seen = tf.constant(0.0)
        for step in steps:
            with tf.control_dependencies([seen]):
                rows = tf.nest.flatten(lookup(step))
            # Keeps all of it alive and in order.
            with tf.control_dependencies(rows):
                seen = tf.constant(0.0) + seen
        return seen

    run()
    return run


def systems(all_steps: np.ndarray) -> dict[str, tuple[str, Callable]]:
    """{name: (the gather to compare with, function)}."""
    values = np.zeros((ROWS, DIM), np.float32)
    variable = tf.Variable(values)
    variables = [tf.Variable(values[: ROWS // 10]) for _ in range(FEATURES)]
    all_ids = np.arange(ROWS, dtype=np.int64)

    def table(name: str) -> het_tf.TableConfig:
        return het_tf.TableConfig(name, DIM, het_tf.optimizers.SGD(0.01))

    def fill(name: str, keys: np.ndarray) -> None:
        het_tf.Table(name).assign(keys, values[: len(keys)])

    one = het_tf.keras.Embedding(table("one"))
    fill("one", all_ids)
    cached = het_tf.keras.Embedding(table("cached"), cache=het_tf.Cache(rows=ROWS, staleness=math.inf))
    fill("cached", all_ids)
    shared = het_tf.keras.EmbeddingCollection([het_tf.FeatureConfig(one.tables[0]) for _ in range(FEATURES)])
    many_tables = [table(f"many{number}") for number in range(FEATURES)]
    many = het_tf.keras.EmbeddingCollection([het_tf.FeatureConfig(config) for config in many_tables])
    for number, config in enumerate(many_tables):
        fill(config.name, np.unique(all_steps[:, :, number] % (ROWS // 10)))

    result: dict[str, tuple[str, Callable]] = {}
    for again, ids in (("", all_steps), (", again", all_steps[:1])):
        few = ids % (ROWS // 10)
        one_gather, many_gathers = f"tf.gather, 1 input{again}", f"tf.gather, 26 inputs{again}"
        result[one_gather] = one_gather, repeated(lambda x: tf.gather(variable, x), ids, False)
        result[many_gathers] = (
            many_gathers,
            repeated(lambda xs: [tf.gather(v, x) for v, x in zip(variables, xs, strict=True)], few, True),
        )
        for name, layer, of, split in (
            ("het_tf direct, 1 input", one, ids, False),
            ("het_tf cache, 1 input", cached, ids, False),
            ("het_tf direct, 26 inputs, 1 table", shared, ids, True),
            ("het_tf direct, 26 inputs, 26 tables", many, few, True),
        ):
            # Only a step of training keeps rows, and fills the cache: it is what the figure is of.
            run = repeated(lambda x, layer=layer: layer(x, training=True), of, split)
            result[name + again] = many_gathers if split else one_gather, run
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100, help="calls of each system, of 50 lookups each")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()

    measured = systems(step_ids())
    wall: dict[str, list[float]] = {name: [] for name in measured}
    cpu: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(arguments.repeats):
        for name, (_, run) in measured.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            run()
            wall[name].append((time.perf_counter() - begin) / LOOKUPS * 1e3)
            cpu[name].append((time.process_time() - begin_cpu) / LOOKUPS * 1e3)

    lines = []
    for name, (gather, _) in measured.items():
        lines.append({
            "lookup": name,
            "wall_ms": statistics.median(wall[name]),
            "best_wall_ms": min(wall[name]),
            "cpu_ms": statistics.median(cpu[name]),
            "of_gather": statistics.median(
                a / b for a, b in zip(cpu[name], cpu[gather], strict=True)
            ),
        })  # fmt: skip
    result = {
        "command": " ".join(["python benchmarks/small_step/run.py", *sys.argv[1:]]),
        "step": {"ids": SAMPLES * FEATURES, "unique": UNIQUE, "dim": DIM, "rows": ROWS},
        "lookups": lines,
        "goals": [
            report.goal(f"{line['lookup']}, CPU ms", line["cpu_ms"], "<=", GOAL_MS)
            for line in lines
            if "het_tf" in line["lookup"] and "1 input" in line["lookup"]
        ],
        "machine": report.machine(),
        "versions": report.versions(het_tf, tf),
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
