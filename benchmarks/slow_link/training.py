"""What every system of slow_link trains: the models, their batches, and one step.

The models are those of het_tf.models; only the side that looks up rows differs from system to system. All
weights learn by SGD, as in HET's own runs: rows then travel without optimizer slots.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from job import Job  # noqa: E402

import het_tf  # noqa: E402
from het_tf.python.models.embedding_side import Part  # noqa: E402

RATE = 0.01
IDS = "ids"
NUMERIC = "numeric"


def one_thread() -> None:
    """Gives TensorFlow one thread: N workers and a server share the cores of one machine."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)


def batches(job: Job, worker: int, same: bool = False) -> tf.data.Dataset:
    """One worker's batches, without end: ({"ids": int64 [B, 26], "numeric": float32 [B, 13]}, label [B, 1]).

    Args:
      job: whose stream, batch and number of workers.
      worker: which; step by step the workers take batches that follow each other in the stream.
      same: the first batch again and again.
    """
    from traffic_streams import read_stream

    _, ids = read_stream(Path(job.stream))
    steps = len(ids) // (job.batch * job.workers)
    own = ids[: steps * job.workers * job.batch].reshape(steps, job.workers, job.batch, -1)[:, worker]
    rng = np.random.default_rng(worker)
    numeric = rng.standard_normal((64, job.batch, 13)).astype(np.float32)
    label = (rng.random((64, job.batch, 1)) < 0.25).astype(np.float32)

    def sample(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        taken = tf.numpy_function(lambda at: own[at].astype(np.int64), [step], tf.int64)
        taken.set_shape([job.batch, own.shape[-1]])
        return {IDS: taken, NUMERIC: tf.gather(numeric, step % 64)}, tf.gather(label, step % 64)

    data = tf.data.Dataset.range(1 if same else steps).repeat()
    return data.map(sample, num_parallel_calls=1).prefetch(2)


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

    def __init__(self, name: str, parts: tuple[Part, ...], cache: dict[str, Any]) -> None:
        super().__init__(name="het_rows")
        features = {
            part.name: het_tf.FeatureConfig(
                het_tf.TableConfig(f"{name}/{part.name}", part.dim, het_tf.optimizers.SGD(RATE))
            )
            for part in parts
        }
        self.names = [part.name for part in parts]
        self.collection = het_tf.keras.EmbeddingCollection(
            features, cache=het_tf.Cache(**cache), name="tables"
        )

    def ids(self, inputs: dict[str, Any], label: Any = None) -> dict[str, Any]:
        """What the collection is called with, of a batch."""
        del label
        return dict.fromkeys(self.names, inputs[IDS])

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(self.collection(self.ids(inputs)))


def make_model(job: Job, side: Callable[[tuple[Part, ...]], Any]) -> Any:
    """Returns a model of het_tf.models whose rows come from the layer that `side` makes of its parts."""
    from het_tf.python.data import criteo_like_description

    arguments: dict[str, Any] = {"embedding_dim": job.dim, "hidden_units": job.hidden, "embedding": "keras"}
    if job.model == "dcn":
        arguments["cross_rank"] = job.cross_rank
    made = {"wide_deep": het_tf.models.WideDeep, "deepfm": het_tf.models.DeepFM, "dcn": het_tf.models.DCNv2}
    model = made[job.model](criteo_like_description(), **arguments)
    model.rows = side(
        model.rows.parts
    )  # the side that it has made itself has no weights before its first call
    return model


def missing_option(options: dict[str, Any]) -> str:
    """Why the installed het_tf cannot run a system with these options; "" if it can."""
    if options.get("prefetch"):
        ahead = getattr(het_tf, "prefetch", None)
        if ahead is None or "check_ahead" not in inspect.signature(ahead).parameters:
            return "this het_tf has no het_tf.prefetch(check_ahead=True)"
    known = inspect.signature(het_tf.Cache).parameters
    for name in options.get("cache", ()):
        if name not in known:
            return f"this het_tf has no {name}= of caches"
    return ""


class Trainer:
    """One system: its model, its batches, and how its gradients are exchanged.

    Args:
      job: the launch.
      name: of the system.
      options: "kind" local (rows in this process, not shared: what a step computes), allgather (the same,
        and Horovod gathers the gradients of rows) or het; "cache": arguments of `het_tf.Cache`; "prefetch":
        whether batches are looked up ahead.
      worker: rank.
    """

    def __init__(self, job: Job, name: str, options: dict[str, Any], worker: int) -> None:
        import horovod.tensorflow as hvd

        self.job, self.worker = job, worker
        self.kind = options["kind"]
        self.ahead = options.get("prefetch", False)
        if self.kind == "het":
            self.model = make_model(
                job, lambda parts: HetSide(f"{job.model}_{name}", parts, options["cache"])
            )
        else:
            rows = row_count(job)
            self.model = make_model(job, lambda parts: PlainSide(parts, rows))
        self.feeds: dict[bool, Iterator[Any]] = {}
        self.model(next(self.feed())[0], training=False)  # makes the weights
        dense = [weight.value for weight in self.model.trainable_variables]
        tables = getattr(self.model.rows, "table_variables", [])
        for variable in dense:
            variable.assign(hvd.broadcast(variable, 0))
        self.dense_bytes = 4 * sum(int(np.prod(variable.shape)) for variable in dense)

        @tf.function
        def step(inputs: Any, label: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(self.model(inputs, training=True), label)
            gradients = tape.gradient(loss, [*dense, *tables])
            for variable, gradient in zip(dense, hvd.grouped_allreduce(gradients[: len(dense)]), strict=True):
                variable.assign_sub(RATE * gradient)
            for variable, gradient in zip(tables, gradients[len(dense) :], strict=True):
                if self.kind == "allgather":
                    gradient = hvd.allreduce(gradient)  # IndexedSlices: gathers ids and rows of all workers
                descend(variable, gradient)
            return loss

        self.step = step

    def feed(self, same: bool = False) -> Iterator[Any]:
        """The system's own batches; they go on where they stopped."""
        if same not in self.feeds:
            data = batches(self.job, self.worker, same)
            if self.ahead:
                data = het_tf.prefetch(
                    data, self.model.rows.collection, inputs=self.model.rows.ids, check_ahead=True
                )
            self.feeds[same] = iter(data)
        return self.feeds[same]


def loss_of(logits: Any, label: Any) -> Any:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))


def descend(variable: tf.Variable, gradient: Any) -> None:
    """Takes one step of SGD; an id that occurs several times counts several times."""
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(RATE * gradient.values, gradient.indices))
    else:
        variable.assign_sub(RATE * gradient)


def row_count(job: Job) -> int:
    """Distinct ids of the stream."""
    return int(np.fromfile(job.stream, np.uint64, 4)[3])
