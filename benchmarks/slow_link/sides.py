"""How every system of slow_link looks up rows and takes a step; what it trains is in tasks.py.

Only the side that looks up rows differs from system to system. All weights learn by SGD, as in HET's own
runs: rows then travel without optimizer slots; rows of the system "adagrad" have one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import het_tf
from benchmarks.slow_link.job import Job
from benchmarks.slow_link.tasks import IDS, TASKS, Part
from benchmarks.traffic.run import distinct_rows
from het_tf.python.layer.variable import TableVariable

RATE = 0.01


def one_thread() -> None:
    """Gives TensorFlow one thread: N workers and a server share the cores of one machine."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)


class PlainSide(tf.keras.layers.Layer):
    """Rows in dense variables of TensorFlow, one a part; ids are row numbers."""

    def __init__(self, parts: tuple[Part, ...], rows: int) -> None:
        super().__init__(name="plain_rows")
        self.parts = parts
        self.table_variables = [
            tf.Variable(tf.random.uniform([rows, part.dim], -0.05, 0.05, seed=1), name=part.name)
            for part in parts
        ]

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(self.parts, self.table_variables, strict=True)
        return {part.name: tf.gather(variable, inputs[IDS]) for part, variable in pairs}


class HetSide(tf.keras.layers.Layer):
    """Rows in tables of het_tf."""

    def __init__(self, name: str, parts: tuple[Part, ...], options: dict[str, Any]) -> None:
        super().__init__(name="het_rows")
        optimizers = het_tf.optimizers
        adagrad = options.get("adagrad", False)
        rule = optimizers.RowWiseAdagrad(0.05, decay_steps=1) if adagrad else optimizers.SGD(RATE)
        features = {
            part.name: het_tf.FeatureConfig(het_tf.TableConfig(f"{name}/{part.name}", part.dim, rule))
            for part in parts
        }
        self.names = [part.name for part in parts]
        self.collection = het_tf.keras.EmbeddingCollection(
            features, cache=het_tf.Cache.from_config(options["cache"]), name="tables"
        )

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(self.collection(dict.fromkeys(self.names, inputs[IDS])))


class Trainer:
    """One system: its model, its batches, and how its gradients are exchanged.

    Args:
      job: the launch.
      name: of the system.
      options: "kind" local (rows in this process, not shared: what a step computes), allgather (the same,
        and Horovod gathers the gradients of rows) or het; "cache": arguments of `het_tf.Cache`;
        "adagrad": whether rows learn by AdaGrad, and have its bounds.
      worker: rank.
    """

    def __init__(self, job: Job, name: str, options: dict[str, Any], worker: int) -> None:
        import horovod.tensorflow as hvd

        self.job, self.worker = job, worker
        self.kind = options["kind"]
        self.task = TASKS[job.model](job)
        if self.kind == "het":
            made = self.task.model(lambda parts: HetSide(f"{job.model}_{name}", parts, options))
        else:
            made = self.task.model(lambda parts: PlainSide(parts, distinct_rows(Path(job.stream))))
        self.model, self.side = made
        self._feed: Iterator[Any] | None = None
        self.model(next(self.feed())[0], training=False)  # makes the weights
        weights = self.model.trainable_variables
        dense = [one.value for one in weights if not isinstance(one, TableVariable)]
        rows = [one for one in weights if isinstance(one, TableVariable)]
        tables = getattr(self.side, "table_variables", [])
        for variable in dense:
            variable.assign(hvd.broadcast(variable, 0))
        self.dense_bytes = 4 * sum(int(np.prod(variable.shape)) for variable in dense)

        @tf.function
        def step(inputs: Any, label: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = self.task.loss(self.model(inputs, training=True), label)
            gradients, of_rows = tape.gradient(loss, [[*dense, *tables], rows])
            of_rows = het_tf.workers.reduce_gradients(of_rows, rows)
            for variable, gradient in zip(dense, hvd.grouped_allreduce(gradients[: len(dense)]), strict=True):
                variable.assign_sub(RATE * gradient)
            for variable, gradient in zip(tables, gradients[len(dense) :], strict=True):
                if self.kind == "allgather":
                    gradient = hvd.allreduce(gradient)  # IndexedSlices: gathers ids and rows of all workers
                descend(variable, gradient)
            het_tf.apply(zip(of_rows, rows, strict=True))
            return loss

        self.step = step

    def feed(self) -> Iterator[Any]:
        """The system's own batches; they go on where they stopped."""
        if self._feed is None:
            self._feed = iter(self.task.batches(self.worker))
        return self._feed


def descend(variable: tf.Variable, gradient: Any) -> None:
    """Takes one step of SGD; an id that occurs several times counts several times."""
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(RATE * gradient.values, gradient.indices))
    else:
        variable.assign_sub(RATE * gradient)
