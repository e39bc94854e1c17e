"""A model, batches and a step that N workers and one process run alike; and the workers' program.

    horovodrun -np 2 ... python accumulate_lib.py '{"what": "exact", "ps": ..., "out": ..., ...}'

Each rank writes what it has seen to `OUT/RANK.json`; rank 0 also the tables to `OUT/rows.npz`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import on_demand_lib
import tensorflow as tf

import het_tf
from het_tf.ext.workers.python import find
from het_tf.python.session import collective

BATCH = 12  # of one worker
NONE = -7  # padding
OPTIMIZERS = {
    "sgd": het_tf.optimizers.SGD(0.1),
    "momentum": het_tf.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "rmsprop": het_tf.optimizers.RMSprop(0.01),
    "adam": het_tf.optimizers.Adam(0.01),
    "adagrad": het_tf.optimizers.Adagrad(0.05),
    "row_wise": het_tf.optimizers.RowWiseAdagrad(0.05),
    "ftrl": het_tf.optimizers.Ftrl(0.05, l1=0.001, l2=0.01),
}
DIMS = {name: 2 + number for number, name in enumerate(OPTIMIZERS)} | {"second": 4}
STRANGE = np.array([1 - 2**63, 2**63 - 1, -1, 2**53 + 1], np.int64)


def batches(workers: int, steps: int, full: bool = False) -> list[dict[str, np.ndarray]]:
    """Worker w sees [t][...][w] at step t: few ids, so that workers share most of them.

    At step 3 worker 0 has no samples, unless `full`; from step 5 on every fifth time its feature "other"
    counts for nothing, whose ids are then not those of the other workers.
    """
    rng = np.random.default_rng(5)
    made = []
    for step in range(steps):
        ids = rng.integers(0, 15, (workers, BATCH, 3))
        ids[:, :2, 0] = rng.choice(STRANGE, (workers, 2))
        ids[:, 3, 1] = 100 + np.arange(workers)[:, None].T[0]  # ids of only one worker
        ids[:, 4, 2] = NONE
        weight = np.ones((workers, BATCH), np.float32)
        other = np.ones((workers, BATCH), np.float32)
        if step >= 5 and step % 5 == 0:
            other[0] = 0
            ids[0, :, 1] += 20
        if step == 3 and not full:
            weight[0] = 0
        made.append(
            {"ids": ids, "target": rng.normal(size=(workers, BATCH)).astype(np.float32),
             "weight": weight, "other": other}
        )  # fmt: skip
    return made


def of_worker(batch: dict[str, np.ndarray], worker: int) -> dict[str, np.ndarray]:
    """One worker's part; samples of weight 0 are not there at all."""
    keep = batch["weight"][worker] != 0
    return {name: values[worker][keep] for name, values in batch.items()}


def union(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    parts = [of_worker(batch, worker) for worker in range(len(batch["weight"]))]
    return {name: np.concatenate([part[name] for part in parts]) for name in batch}


class Model:
    """Seven tables of different widths in one layer, and one with a schedule in a second."""

    def __init__(self, cache: het_tf.Cache | None = None) -> None:
        features: dict[str, het_tf.FeatureConfig] = {}
        for name, optimizer in OPTIMIZERS.items():
            table = het_tf.TableConfig(name, DIMS[name], optimizer, l2=0.01 if name == "adam" else 0.0)
            features[name] = het_tf.FeatureConfig(table, combiner="mean", padding_id=NONE)
            features[name + "_other"] = het_tf.FeatureConfig(table)
        self.layer = het_tf.keras.EmbeddingCollection(features, cache=cache)
        rate = tf.keras.optimizers.schedules.ExponentialDecay(0.2, 3, 0.7)
        self.second = het_tf.keras.Embedding(
            DIMS["second"], table="second", optimizer=het_tf.optimizers.Adagrad(rate), cache=cache
        )
        self.dense = tf.Variable(tf.ones([4]), name="dense")
        self.anchors = [*self.layer.trainable_variables, *self.second.trainable_variables]

    def loss(self, batch: dict[str, Any], samples: int) -> Any:
        ids = batch["ids"]
        rows = self.layer(self.inputs(ids), training=True)
        outputs = [tf.reduce_sum(self.second(ids[:, 0], training=True) * self.dense, 1)]
        for name in OPTIMIZERS:
            of_table = tf.reduce_sum(tf.sin(3.0 * rows[name]), 1)
            outputs.append(of_table + tf.reduce_sum(rows[name + "_other"], 1) * batch["other"])
        return tf.reduce_sum(tf.square(tf.add_n(outputs) - batch["target"])) / samples

    def inputs(self, ids: Any) -> dict[str, Any]:
        """Returns the inputs of the first layer."""
        return {name + end: ids[:, 1] if end else ids for name in OPTIMIZERS for end in ("", "_other")}

    @tf.autograph.experimental.do_not_convert  # which would take longer than the steps
    def step(self, batch: dict[str, Any], samples: int, workers: Any = None, scale: str = "mean") -> None:
        """One step; `samples`: what the sum of losses is divided by; `scale`: as gradient_scale."""
        with tf.GradientTape() as tape:
            loss = self.loss(batch, samples)
        variables = [self.dense, *self.anchors]
        gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, variables), variables)
        factor = workers.size if workers is not None and scale == "sum" else 1
        ((of_dense, dense),) = het_tf.apply(zip(gradients, variables, strict=True))
        dense.assign_sub(0.01 * factor * of_dense)

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        het_tf.flush()
        return {name: het_tf.Table(name).scan() for name in (*OPTIMIZERS, "second")}


def train(model: Model, steps: list[dict[str, np.ndarray]], how: str, *rest: Any) -> None:
    """`how`: "eager", or "loop" (five steps a call of a graph, as steps_per_execution)."""
    if how == "eager":
        for batch in steps:
            model.step({name: tf.constant(values) for name, values in batch.items()}, *rest)
        return
    types = {name: values.dtype for name, values in steps[0].items()}
    shapes = {name: [None, *values.shape[1:]] for name, values in steps[0].items()}
    signature = {name: tf.TensorSpec(shapes[name], types[name]) for name in types}
    data = tf.data.Dataset.from_generator(lambda: iter(steps), output_signature=signature)
    iterator = iter(data)

    @tf.function
    def run(iterator: Any, count: Any) -> None:
        for _ in tf.range(count):
            model.step(next(iterator), *rest)

    for _ in range(len(steps) // 5):
        run(iterator, tf.constant(5))


def stream(model: Model, workers: int, steps: int) -> Any:
    """This worker's batches of the same samples, placed by an id; rows travel on demand."""
    of_all = [union(batch) for batch in batches(workers, steps, full=True)]
    samples = {name: np.concatenate([batch[name] for batch in of_all]) for name in of_all[0]}
    samples["by"] = samples["ids"][:, 1]

    def looked_up(batch: dict[str, Any]) -> list[Any]:
        return [model.inputs(batch["ids"]), batch["ids"][:, 0]]

    return het_tf.workers.shard_on_demand(
        tf.data.Dataset.from_tensor_slices(samples), by="by", batch=BATCH,
        lookahead=[model.layer, model.second], inputs=looked_up,
    )  # fmt: skip


def train_stream(model: Model, of_worker: Any, *rest: Any) -> None:
    for batch in of_worker:
        model.step(batch, *rest)


# --- what the workers run -------------------------------------------------------------------------


def exact(workers: Any, given: dict[str, Any]) -> dict[str, Any]:
    steps = batches(workers.size, given["steps"])
    het_tf.init(
        ps=given["ps"], accumulate=True, gradient_scale=given.get("scale", "mean"),
        namespace=given["namespace"],
    )  # fmt: skip
    model = Model(cache=het_tf.Cache(staleness=0, rows=given["cache_rows"]))
    scale = given.get("scale", "mean")
    samples = BATCH if scale == "mean" else BATCH * workers.size
    if given["how"] == "on_demand":
        train_stream(model, stream(model, workers.size, given["steps"]), samples, workers, scale)
    else:
        train(model, [of_worker(step, workers.rank) for step in steps], given["how"], samples, workers, scale)
    het_tf.flush()
    collective.barrier()
    if workers.rank == 0:
        columns = {
            f"{table}/{column}": values
            for table, scan in model.tables().items()
            for column, values in scan.items()
        }
        np.savez(Path(given["out"]) / f"{given['namespace']}.npz", dense=model.dense.numpy(), **columns)
    return {
        "applies": {name: het_tf.Table(name).updates for name in OPTIMIZERS},
        "unsent": sum(het_tf.Table(name).stats()["cache"]["unsent_rows"] for name in OPTIMIZERS),
    }


def agreement(workers: Any, given: dict[str, Any]) -> dict[str, Any]:
    """A fault at worker 1 raises at all workers."""
    het_tf.init(ps=given["ps"], accumulate=True, namespace="agreement")
    one = workers.rank == 1
    seen: dict[str, Any] = {}

    def attempt(name: str, run: Any) -> None:
        try:
            seen[name] = repr(run())
        except tf.errors.OpError as error:
            seen[name] = f"{type(error).__name__}: {error.message}"
        except RuntimeError as error:
            seen[name] = f"{type(error).__name__}: {error}"

    def layer(name: str, rows: int | None = None) -> Any:
        return het_tf.keras.Embedding(
            2,
            name=name,
            optimizer=het_tf.optimizers.SGD(1.0),
            initializer="zeros",
            cache=het_tf.Cache(staleness=0, rows=rows),
        )

    keras = tf.keras
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)

    def gradient(embed: Any, ids: list[int], factor: float, scaled: bool = False) -> float:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embed(tf.constant(ids, tf.int64), training=True)) * factor
            if scaled:
                loss = optimizer.scale_loss(loss)
        variables = embed.trainable_variables
        gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, variables), variables)
        if scaled:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        else:
            het_tf.apply(zip(gradients, variables, strict=True))
        return 0.0

    def rows(embed: Any) -> Any:
        collective.barrier()
        return het_tf.Table(embed.name).lookup([1, 2])[:, 0].tolist()

    embed = layer("plain")
    attempt("nan", lambda: gradient(embed, [1, 2], float("nan") if one else 1.0))
    seen["nan rows"] = rows(embed)
    attempt("overflow", lambda: gradient(embed, [1, 2], float("inf") if one else 1.0, scaled=True))
    seen["overflow rows"] = rows(embed)
    attempt("after", lambda: gradient(embed, [1, 2], 1.0, scaled=True))
    seen["after rows"] = rows(embed)

    attempt("empty", lambda: gradient(embed, [] if one else [2, 2], 1.0))
    seen["empty rows"] = rows(embed)
    attempt("nobody", lambda: gradient(embed, [], 1.0))

    def second_derivative() -> None:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                value = tf.reduce_sum(embed(tf.constant([1], tf.int64), training=True) ** 2)
            first = inner.gradient(value, embed.trainable_variables[0])
        outer.gradient(first, embed.trainable_variables[0])

    attempt("second derivative", second_derivative)

    wide, other = layer("a"), layer("b")
    attempt("another order", lambda: gradient(wide if one else other, [1], 1.0))
    for each in (wide, other):
        seen[f"another order {each.name}"] = rows(each)

    for _ in range(20):  # lookups whose gradients are taken leave nothing pinned, small cache or not
        gradient(small := layer("small", rows=3), [1, 2, 3, 4, 5, 6], 1.0)
    seen["cached rows"] = het_tf.Table("small").stats()["cache"]["rows"]
    del small
    return seen


WHAT = {"exact": exact, "agreement": agreement, "beside": on_demand_lib.beside_a_stream}


def main() -> None:
    workers = find.workers(os.environ.get("HET_PS", ""))
    result = {}
    out = None
    for given in json.loads(sys.argv[1]):
        out = Path(given["out"])
        name = given.get("name", given["what"])
        result[name] = WHAT[given["what"]](workers, given)
        het_tf.reset(given.get("namespace", given["what"]))  # the next job may be at another server
    assert out is not None
    (out / f"{workers.rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
