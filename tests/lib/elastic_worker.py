"""A worker of the elastic tests: counts down one row, a step at a time, and may die.

    python elastic_worker.py '{"ps": ..., "out": ..., "accumulate": false, ...}'

Every worker adds a line for each step to `OUT/PID`; the last rank 0 writes `OUT/done`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import het_tf
from het_tf.python.session import collective

STEPS = 24
COMMIT = 4


def main() -> None:
    import horovod.tensorflow as hvd

    given = json.loads(sys.argv[1])
    out = Path(given["out"])
    het_tf.init(ps=given["ps"], accumulate=given.get("accumulate", False))

    ids = tf.keras.Input((1,), dtype="int64")
    rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay([10_000], [1.0, 0.0])
    embed = het_tf.keras.Embedding(
        2, name="counted", optimizer=het_tf.optimizers.SGD(rate), initializer="zeros",
        cache=het_tf.Cache(staleness=4 if given.get("stale") else 0),
    )  # fmt: skip
    rows = tf.keras.layers.Flatten()(embed(ids))
    output = tf.keras.layers.Dense(1, kernel_initializer="ones")(rows)
    model = tf.keras.Model(ids, tf.keras.layers.Concatenate()([rows, output]))

    def loss(_: Any, outputs: Any) -> Any:
        return tf.reduce_sum(outputs[:, :2]) + 0.0 * tf.reduce_sum(outputs[:, 2:])

    model.compile(tf.keras.optimizers.Adam(0.01), loss)

    @tf.function
    def custom() -> None:
        with tf.GradientTape() as tape:
            total = loss(None, model(tf.ones([1, 1], tf.int64), training=True))
        weights = model.trainable_variables
        gradients = het_tf.workers.reduce_gradients(tape.gradient(total, weights), weights)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def keras() -> None:
        model.train_on_batch(np.ones([1, 1], np.int64), np.zeros([1, 3], np.float32))

    step = keras if given.get("keras") else custom
    if given.get("keras"):
        het_tf.workers.distribute(model)

    def wait_for_another(state: Any) -> None:
        """Tells the launcher of a second host, until its worker is there: the commit then leaves `train`."""
        (out / "hosts").write_text("localhost:1\n127.0.0.1:1\n")
        for _ in range(200):
            time.sleep(0.3)
            state.commit()
        raise TimeoutError("no second worker has come")

    def train(state: Any) -> None:
        while state.step < STEPS:
            dies = hvd.rank() == given.get("victim") and hvd.size() == 2 and state.step == given["dies_at"]
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            if given.get("grows_at") == state.step and hvd.size() == 1:
                wait_for_another(state)
            step()
            state.step += 1
            stats = het_tf.Table("counted").stats()["cache"]
            line = {
                "step": state.step,
                "size": hvd.size(),
                "bounds": [stats["pull_bound"], stats["push_bound"]],
            }
            with (out / str(os.getpid())).open("a") as file:
                file.write(json.dumps(line) + "\n")
            if state.step % COMMIT == 0:
                state.commit()

    state = het_tf.horovod.ElasticState(model, step=0)
    het_tf.horovod.run_elastic(train)(state)
    het_tf.flush()
    if hvd.rank() == 0:
        table = het_tf.Table("counted")
        done = {
            "row": table.lookup([1])[0].tolist(),
            "iterations": int(model.optimizer.iterations),
            "applies": table.updates,
            "step": state.step,
            "scale": float(tf.convert_to_tensor(collective.gradient_scale())),
        }
        (out / "done").write_text(json.dumps(done))


if __name__ == "__main__":
    main()
