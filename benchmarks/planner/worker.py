"""A rank of run.py's real job: looks up and updates rows of a recorded stream, and says what travelled.

    horovodrun -np N python worker.py '{"ps": ..., "stream": FILE.npz, "dim": 16, "batch": 128,
        "rows": {TABLE: ROWS}, "warm": STEPS}'

The stream has one array `[samples, ids]` a table. Rank r of N takes batch r of N in every step, as a replay
does. Rank 0 prints one line of JSON: counters of all ranks in the steps that are counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

import het_tf
from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python.node import Node


def counters() -> dict[str, dict[str, Any]]:
    """Returns the counters of every table of this rank."""
    return {name: het_tf.Table(name).stats()["cache"] for name in het_tf.tables()}


def main() -> None:
    job = json.loads(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    het_tf.init(ps=job["ps"])
    with np.load(job["stream"]) as stream:
        ids = {name: stream[name] for name in stream.files}
    samples = len(next(iter(ids.values())))
    batch, workers, rank = job["batch"], hvd.size(), hvd.rank()
    steps = samples // (batch * workers)
    tables = {name: het_tf.TableConfig(name, job["dim"]) for name in ids}
    layer = het_tf.keras.EmbeddingCollection(
        {name: het_tf.FeatureConfig(table) for name, table in tables.items()},
        cache=het_tf.Cache(rows=job["rows"]),
    )

    @tf.function
    def step(inputs: dict[str, Any], noise: Any) -> Any:
        with tf.GradientTape() as tape:
            found = layer(inputs, training=True).values()
            loss = tf.add_n([tf.reduce_sum(part * noise) for part in found])
        (gradient,) = het_tf.workers.reduce_gradients([tape.gradient(loss, layer.anchor)], [layer.anchor])
        het_tf.apply([(gradient, layer.anchor)])

    before: dict[str, dict[str, Any]] = {}
    begin = 0.0
    rng = np.random.default_rng(rank)
    for number in range(steps):
        if number == job["warm"]:
            before, begin = counters(), time.perf_counter()
        first = (number * workers + rank) * batch
        inputs = {name: tf.constant(column[first : first + batch]) for name, column in ids.items()}
        step(inputs, tf.constant(rng.normal(size=job["dim"]), tf.float32))
        hvd.allreduce(tf.zeros([1]), name="meet")
    seconds = time.perf_counter() - begin
    after = counters()
    mine = {
        table: {
            name: after[table][name] - before[table][name]
            for name in after[table]
            if isinstance(after[table][name], int) and name in before[table]
        }
        for table in after
    }
    everyone = hvd.allgather_object(mine)
    if rank == 0:
        summed = {
            table: {name: sum(one[table][name] for one in everyone) for name in figures}
            for table, figures in mine.items()
        }
        with Node.of(addresses.parse(job["ps"]), 30) as server:
            held = int(server.info("het")["het_bytes"])
        print("RESULT " + json.dumps({"steps": steps - job["warm"], "seconds": seconds, "tables": summed,
                                      "server_bytes": held}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
