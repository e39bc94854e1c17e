"""How many bytes does one budget for 26 tables save, beside equal rows a table in the same memory?

    python benchmarks/cache_budget/run.py [--samples N] [--batch B] [--workers W] [--out FILE]

Real workers, one process each, train Criteo-like rows through a redis-server with the module: a layer with a
table for each of the 26 fields, 16 floats a row, and het_tf's defaults for all but the size of the cache. The
sizes are shares of what all rows of the stream would take. `equal rows` is `Cache(rows=N)`, `one budget` is
`Cache(bytes=...)` of the same bytes in all. The first quarter of the steps warms up and is not counted. Bytes
are the clients' own count of all frames, both ways.

Streams (benchmarks/traffic/streams.py): "criteo_like", a short part of an epoch, in which most rare ids occur
once; "criteo_scaled", in which each of the joined rare ids occurs as often as in an epoch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/lib")]

from benchmarks import report

FIELDS, DIM, SEED = 26, 16, 1
STREAMS = ("criteo_like", "criteo_scaled")
SHARES = (0.02, 0.1)
LINE = 4 * (DIM + 1) + 58  # bytes of a cached row, as the core counts them (core/cache/table_cache.h)
GOAL = 0.05
CLASSES = ("miss_pull", "update_pull", "bound_push", "evict_push")
BYTES = ("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out")


def worker(address: str, stream: str, cache: dict, batch: int, number: int, workers: int) -> tuple:
    """Trains its share of the stream; counters of its caches a counted step, and the capacity of each."""
    import numpy as np
    import tensorflow as tf

    import het_tf
    from benchmarks.traffic.streams import read_stream

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    het_tf.init(ps=address, threads=1)
    ids = read_stream(Path(stream))[1].astype(np.int64)
    names = [f"field{i}" for i in range(FIELDS)]
    features = {name: het_tf.FeatureConfig(het_tf.TableConfig(name, DIM)) for name in names}
    layer = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(**cache), reuse=True)
    noise = tf.random.stateless_normal([batch, DIM], [SEED, number])

    @tf.function
    def step(batch_ids: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            rows = layer(dict(zip(names, tf.unstack(batch_ids, axis=1), strict=True)), training=True)
            loss = tf.add_n([tf.reduce_sum(row * noise) for row in rows.values()])
        het_tf.apply(
            zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True)
        )

    def counted() -> Counter:
        total: Counter = Counter()
        for name in names:
            total.update({key: of[key] for of in [het_tf.Table(name).stats()["cache"]] for key in wanted})
        return total

    wanted = ("reads", "hits", *CLASSES, *BYTES)
    steps = len(ids) // (batch * workers)
    for at in range(steps):
        if at == steps // 4:
            before = counted()
        begin = (at * workers + number) * batch
        step(tf.constant(ids[begin : begin + batch]))
    after, counts = counted(), steps - steps // 4
    capacity = [het_tf.Table(name).stats()["cache"]["capacity"] for name in names]
    return {key: (after[key] - before[key]) / counts for key in wanted}, capacity


def run(stream: Path, cache: dict, batch: int, workers: int) -> dict:
    """One run of all workers; figures are of one worker and step."""
    import redis_lib

    with tempfile.TemporaryDirectory() as folder, redis_lib.running(Path(folder)) as server:
        begin = time.perf_counter()
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            arguments = [(server.address, str(stream), cache, batch, i, workers) for i in range(workers)]
            found = pool.starmap(worker, arguments)
        seconds = time.perf_counter() - begin
    mean = {key: sum(one[key] for one, _ in found) / workers for key in found[0][0]}
    return {
        **mean,
        "hit_rate": mean["hits"] / mean["reads"],
        "bytes": sum(mean[key] for key in BYTES),
        "capacity": found[0][1],
        "seconds": seconds,
    }


def main() -> None:
    """Measures, prints the table, writes the JSON."""
    from benchmarks.traffic.streams import make_stream, read_stream

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--samples", type=int, default=524_288, help="of each stream")
    parser.add_argument("--batch", type=int, default=1024, help="samples of a worker and step")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    runs = []
    for name in STREAMS:
        stream = make_stream(Path(tempfile.gettempdir()) / "het_traffic", name, arguments.samples, SEED)
        distinct = len(read_stream(stream)[0])
        for share in SHARES:
            rows = int(share * distinct / FIELDS)
            one: dict = {"stream": name, "share": share, "rows_a_table": rows, "bytes": rows * FIELDS * LINE}
            for rule, cache in {"equal rows": {"rows": rows}, "one budget": {"bytes": one["bytes"]}}.items():
                one[rule] = found = run(stream, cache, arguments.batch, arguments.workers)
                saved = 1 - found["bytes"] / one["equal rows"]["bytes"]
            runs.append({**one, "saved": saved})
    settings = {key: getattr(arguments, key) for key in ("samples", "batch", "workers")}
    result = {
        "command": "python benchmarks/cache_budget/run.py",
        **settings,
        "seed": SEED,
        "dim": DIM,
        "machine": report.machine(),
        "runs": runs,
        "goals": [
            report.goal(f"{run['stream']}, {run['share']:.0%}: bytes saved", run["saved"], ">=", GOAL)
            for run in runs
        ],
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
