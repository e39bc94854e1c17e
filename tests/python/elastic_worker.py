"""A worker of the elastic and the static tests: counts down one row, a step at a time, and may die.

    python elastic_worker.py '{"ps": ..., "out": ..., "elastic": true, "accumulate": false, ...}'

Every worker adds a line for each step to `OUT/PID`; whoever is rank 0 at the end writes `OUT/done`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

import het_tf
from het_tf.python import runtime

STEPS = 24
COMMIT = 4


def main() -> None:
    import horovod.tensorflow as hvd

    given = json.loads(sys.argv[1])
    out = Path(given["out"])
    hvd.init()
    het_tf.init(hvd=hvd, ps=given["ps"], accumulate=given.get("accumulate", False))

    ids = tf.keras.Input((1,), dtype="int64")
    rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay([10_000], [1.0, 0.0])
    embed = het_tf.keras.Embedding(
        2, name="counted", optimizer=het_tf.optimizers.SGD(rate), initializer="zeros",
        **({"total_staleness": 9} if given.get("total") else {"staleness": 0}),
    )  # fmt: skip
    dense = tf.keras.layers.Dense(1, kernel_initializer="ones")
    rows = embed(ids)
    model = tf.keras.Model(ids, [rows, dense(tf.keras.layers.Flatten()(rows))])
    model.compile(tf.keras.optimizers.Adam(0.01))
    values = [getattr(weight, "value", weight) for weight in model.trainable_variables]

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            row, output = model(tf.ones([1, 1], tf.int64), training=True)
            loss = tf.reduce_sum(row) + 0.0 * tf.reduce_sum(output)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, values)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    def train(state: Any) -> None:
        while state.step < STEPS:
            dies = hvd.rank() == given.get("victim") and hvd.size() == 2 and state.step == given["dies_at"]
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            step()
            state.step += 1
            stats = het_tf.table("counted").options["cache"]
            line = {
                "step": state.step,
                "size": hvd.size(),
                "bounds": [stats["pull_bound"], stats["push_bound"]],
            }
            with (out / str(os.getpid())).open("a") as file:
                file.write(json.dumps(line) + "\n")
            if state.step % COMMIT == 0:
                state.commit()

    if given["elastic"]:
        state = het_tf.horovod.ElasticState(model, step=0)
        het_tf.horovod.run_elastic(train)(state)
    else:

        class State:
            step = 0

            def commit(self) -> None:
                het_tf.flush()

        state = State()
        train(state)
    het_tf.flush()
    if hvd.rank() == 0:
        table = het_tf.table("counted")
        done = {
            "row": table.lookup([1])[0].tolist(),
            "iterations": int(model.optimizer.iterations),
            "applies": table.applies,
            "step": state.step,
            "scale": float(tf.convert_to_tensor(runtime.gradient_scale())),
        }
        (out / "done").write_text(json.dumps(done))


if __name__ == "__main__":
    main()
