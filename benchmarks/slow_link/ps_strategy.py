"""The peer: the same models under tf.distribute's ParameterServerStrategy. ps_strategy.py ROLE NUMBER JOB

Role "ps" and "worker" are TensorFlow's servers, "chief" builds the model and runs steps on command. All
variables are on the parameter server: a worker reads the dense ones whole in every step, and of the tables
the rows of its batch. Workers do not wait for each other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.slow_link import control, training
from benchmarks.slow_link.job import Job
from benchmarks.slow_link.tasks import TASKS
from benchmarks.traffic.run import distinct_rows


def serve(job: Job, role: str, number: int) -> None:
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
    cluster = tf.train.ClusterSpec({name: job.addresses[name] for name in ("ps", "worker", "chief")})
    tf.distribute.Server(cluster, job_name=role, task_index=number, protocol="grpc", config=config).join()


def lead(job: Job) -> None:
    os.environ["TF_CONFIG"] = json.dumps({"cluster": job.addresses, "task": {"type": "chief", "index": 0}})
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    # Every worker draws the batches of worker 0, from its own place on: a worker does not learn its number.
    task = TASKS[job.model](job)
    feed = iter(coordinator.create_per_worker_dataset(lambda: task.batches(0)))
    with strategy.scope():
        rows = distinct_rows(Path(job.stream))
        model, side = task.model(lambda parts: training.PlainSide(parts, rows))
        model(next(iter(task.batches(0)))[0], training=False)
    variables = [weight.value for weight in model.trainable_variables] + side.table_variables
    elsewhere = [variable.name for variable in variables if "/job:ps" not in variable.device]
    if elsewhere:
        raise RuntimeError(f"{elsewhere} are not on the parameter server")

    @tf.function
    def step(batches: Any) -> Any:
        inputs, label = next(batches)
        with tf.GradientTape() as tape:
            loss = task.loss(model(inputs, training=True), label)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            training.descend(variable, gradient)
        return loss

    def run(command: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        for _ in range(command["steps"] * job.workers):
            last = coordinator.schedule(step, args=(feed,))
        coordinator.join()
        return {"seconds": time.perf_counter() - begin, "loss": float(last.fetch())}

    def make(command: dict[str, Any]) -> dict[str, Any]:
        del command  # it was made above
        return {}

    control.obey(job.control, {"make": make, "run": run})


def main() -> None:
    role, number, job = sys.argv[1], int(sys.argv[2]), Job.parse(sys.argv[3])
    if role == "chief":
        training.one_thread()
        lead(job)
    else:
        serve(job, role, number)


if __name__ == "__main__":
    main()
