"""What slow_link trains: models of the examples, their batches and losses, whichever side looks up the rows.

A task's batch has all ids of a step in one tensor, int64 `[B, width]`, which both sides (sides.py) read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from graphsage import graphsage
from wide_deep import wide_deep

from benchmarks.slow_link.job import Job
from benchmarks.traffic.streams import GRAPH_FANOUTS, read_stream

IDS = "ids"
NUMERIC = "numeric"
WIDTHS = (1, *np.cumprod(GRAPH_FANOUTS).tolist())
"""Nodes of each hop of a sample."""
DRAWN = 64
"""Batches of drawn inputs and labels, which come again and again."""

keras: Any = tf.keras


class Part(NamedTuple):
    """One table: its name, and the floats of a row."""

    name: str
    dim: int


Side = Callable[[tuple[Part, ...]], Any]


def id_batches(job: Job, worker: int, drawn: Any) -> tf.data.Dataset:
    """One worker's batches, without end: ids of the stream, and what is drawn for each step.

    Args:
      job: whose stream, batch and number of workers.
      worker: which; step by step the workers take batches that follow each other in the stream.
      drawn: a function from a step and its ids, int64 `[B, width]`, to the batch.
    """
    _, ids = read_stream(Path(job.stream))
    steps = len(ids) // (job.batch * job.workers)
    own = ids[: steps * job.workers * job.batch].reshape(steps, job.workers, job.batch, -1)[:, worker]

    def sample(step: tf.Tensor) -> Any:
        taken = tf.numpy_function(lambda at: own[at].astype(np.int64), [step], tf.int64)
        taken.set_shape([job.batch, own.shape[-1]])
        return drawn(step, taken)

    data = tf.data.Dataset.range(steps).repeat()
    return data.map(sample, num_parallel_calls=1).prefetch(2)


class Clicks:
    """Wide & Deep on the scaled Criteo-like stream: 26 ids and 13 numbers a sample."""

    stream = "criteo_scaled"

    def __init__(self, job: Job) -> None:
        self.job = job

    def model(self, side: Side) -> tuple[Any, Any]:
        """Returns the model, and the layer that `side` makes of its parts, whose rows the model takes."""
        looks_up = side((Part("deep", self.job.dim), Part("wide", 1)))
        inputs = {
            IDS: keras.Input((26,), dtype="int64", name=IDS),
            NUMERIC: keras.Input((13,), name=NUMERIC),
        }
        rows = looks_up({IDS: inputs[IDS]})
        logit = wide_deep(rows["wide"], rows["deep"], inputs[NUMERIC], tuple(self.job.hidden), 0.0)
        return keras.Model(inputs, logit), looks_up

    def batches(self, worker: int) -> tf.data.Dataset:
        """({"ids": int64 [B, 26], "numeric": float32 [B, 13]}, label [B, 1]); see `id_batches`."""
        rng = np.random.default_rng(worker)
        numeric = rng.standard_normal((DRAWN, self.job.batch, 13)).astype(np.float32)
        label = (rng.random((DRAWN, self.job.batch, 1)) < 0.25).astype(np.float32)

        def drawn(step: tf.Tensor, ids: tf.Tensor) -> Any:
            at = step % DRAWN
            return {IDS: ids, NUMERIC: tf.gather(numeric, at)}, tf.gather(label, at)

        return id_batches(self.job, worker, drawn)

    def loss(self, logits: Any, label: Any) -> Any:
        """The mean over the batch."""
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))


class Nodes:
    """GraphSAGE on an epoch of `graph_like`: a node and its drawn neighbours of two hops, 61 ids a sample."""

    stream = "graph"
    classes = 16

    def __init__(self, job: Job) -> None:
        self.job = job

    def model(self, side: Side) -> tuple[Any, Any]:
        """As of `Clicks`."""
        looks_up = side((Part("nodes", self.job.dim),))
        ids = keras.Input((sum(WIDTHS),), dtype="int64", name=IDS)
        rows = looks_up({IDS: ids})["nodes"]
        ends = np.cumsum(WIDTHS).tolist()
        hops = [rows[:, end - width : end] for end, width in zip(ends, WIDTHS, strict=True)]
        vectors = graphsage(hops, GRAPH_FANOUTS, self.job.hidden)
        return keras.Model({IDS: ids}, keras.layers.Dense(self.classes)(vectors)), looks_up

    def batches(self, worker: int) -> tf.data.Dataset:
        """({"ids": int64 [B, 61]}, class [B]); see `id_batches`."""
        rng = np.random.default_rng(worker)
        label = rng.integers(self.classes, size=(DRAWN, self.job.batch))

        def drawn(step: tf.Tensor, ids: tf.Tensor) -> Any:
            return {IDS: ids}, tf.gather(label, step % DRAWN)

        return id_batches(self.job, worker, drawn)

    def loss(self, logits: Any, label: Any) -> Any:
        """The mean over the batch."""
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits))


TASKS: dict[str, type[Clicks] | type[Nodes]] = {"wide_deep": Clicks, "graphsage": Nodes}
