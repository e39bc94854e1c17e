"""The mode `accumulate`: a model, batches and a step of N ranks and one process (test_ranks.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL, assert_close, of_columns
from ranks_cases import refused

import het_tf
from het_tf.python.session import collective
from het_tf.workers import rank, size

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
    def step(self, batch: dict[str, Any], samples: int, factor: int = 1) -> None:
        """One step; `samples`: what the sum of losses is divided by; `factor`: of the dense gradient."""
        with tf.GradientTape() as tape:
            loss = self.loss(batch, samples)
        variables = [self.dense, *self.anchors]
        gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, variables), variables)
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


def one_process(ranks: int, steps: int, full: bool = False) -> Model:
    """A process that sees the ranks' batches as one."""
    het_tf.reset()
    model = Model()
    train(model, [union(batch) for batch in batches(ranks, steps, full)], "eager", BATCH * ranks)
    return model


def equals(expected: Model, found: dict[str, Any]) -> None:
    """What rank 0 has returned is what one process has."""
    assert_close(found["dense"], expected.dense.numpy())
    for table, scan in expected.tables().items():
        mine, dim = found["tables"][table], DIMS[table]
        for column in ("ids", "clocks"):  # one tick per key and step, by any worker
            np.testing.assert_array_equal(mine[column], scan[column], table)
        assert_close(mine["rows"][:, :dim], scan["rows"][:, :dim], message=table)
        slots = scan["rows"][:, dim:]
        assert_close(mine["rows"][:, dim:], slots, MODEL, magnitude=of_columns(slots), message=table)


# --- what the ranks run ------------------------------------------------------------------------------------


def exact(
    name: str, how: str, steps: int, ps: str | None = None, cache_rows: int = 1000, scale: str = "mean"
) -> dict[str, Any]:
    het_tf.init(ps=ps, accumulate=True, gradient_scale=scale, namespace=name)
    model = Model(cache=het_tf.Cache(staleness=0, rows=cache_rows))
    samples, factor = (BATCH, 1) if scale == "mean" else (BATCH * size(), size())
    if how == "on_demand":
        for batch in stream(model, size(), steps):
            model.step(batch, samples, factor)
    else:
        mine = [of_worker(step, rank()) for step in batches(size(), steps)]
        train(model, mine, how, samples, factor)
    het_tf.flush(all_ranks=True)
    found = {"dense": model.dense.numpy(), "tables": model.tables()}
    stats = [het_tf.Table(table).stats()["cache"] for table in OPTIMIZERS]
    return found | {
        "applies": {table: het_tf.Table(table).updates for table in OPTIMIZERS},
        "unsent": sum(one["unsent_rows"] for one in stats),
    }


def agreement() -> None:
    """A fault at rank 1 raises at all ranks; ranks without samples take part."""
    het_tf.init(accumulate=True)
    one = rank() == 1
    keras = tf.keras
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)

    def layer(name: str, rows: int | None = None) -> Any:
        cache = het_tf.Cache(staleness=0, rows=rows)
        sgd = het_tf.optimizers.SGD(1.0)
        return het_tf.keras.Embedding(2, name=name, optimizer=sgd, initializer="zeros", cache=cache)

    def update(embed: Any, ids: list[int], factor: float = 1.0, scaled: bool = False) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embed(tf.constant(ids, tf.int64), training=True)) * factor
            if scaled:
                loss = optimizer.scale_loss(loss)
        variables = embed.trainable_variables
        gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, variables), variables)
        apply = optimizer.apply_gradients if scaled else het_tf.apply
        apply(zip(gradients, variables, strict=True))

    def expect(rows: list[float], embed: Any) -> None:
        collective.barrier()
        assert het_tf.Table(embed.name).lookup([1, 2])[:, 0].tolist() == rows, rows
        collective.barrier()

    embed = layer("plain")
    with refused(tf.errors.InvalidArgumentError, "worker 1 of 2: gradient of table") as raised:
        update(embed, [1, 2], float("nan") if one else 1.0)
    assert "no worker has updated a row" in str(raised.value)
    expect([0.0, 0.0], embed)
    update(embed, [1, 2], float("inf") if one else 1.0, scaled=True)  # an overflow skips the step at all
    expect([0.0, 0.0], embed)
    update(embed, [1, 2], scaled=True)  # counts: both ranks' gradients, each half
    expect([-1.0, -1.0], embed)
    update(embed, [] if one else [2, 2])  # half of two gradients
    expect([-1.0, -2.0], embed)
    update(embed, [])

    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            value = tf.reduce_sum(embed(tf.constant([1], tf.int64), training=True) ** 2)
        first = inner.gradient(value, embed.trainable_variables[0])
    with pytest.raises(Exception, match="no derivative"):
        outer.gradient(first, embed.trainable_variables[0])

    both = layer("a"), layer("b")
    with refused(tf.errors.FailedPreconditionError, "same order"):
        update(both[rank()], [1])
    for each in both:
        expect([0.0, 0.0], each)
    for _ in range(20):  # lookups whose gradients are taken leave nothing pinned, small cache or not
        update(layer("small", rows=3), [1, 2, 3, 4, 5, 6])
    assert het_tf.Table("small").stats()["cache"]["rows"] <= 3
