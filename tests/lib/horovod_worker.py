"""Cases of ranks that train together (ranks_worker.py): every way to train, metrics, loops, and a death."""

from __future__ import annotations

import math
import os
import signal
import time
from functools import partial

import numpy as np
import tensorflow as tf
from exact_worker import BATCH, part, placed

import het_tf
from het_tf.python.session import collective

keras = tf.keras


class Subclassed(keras.Model):
    """Has no weights before its first batch."""

    def __init__(self, name):
        super().__init__()
        self.rows = het_tf.keras.Embedding(4, combiner="mean", name=name, cache=het_tf.Cache(staleness=3))
        self.out = keras.layers.Dense(1)

    def call(self, inputs):
        return self.out(keras.ops.concatenate([self.rows(inputs[0]), inputs[1]], axis=1))


class TwoOptimizers(Subclassed):
    """A train_step of its own, with a second optimizer beside the compiled one."""

    def train_step(self, data):
        (ids, x), y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self([ids, x]) - y) ** 2)
        weights = self.trainable_variables
        gradients = tape.gradient(loss, weights)
        for optimizer, chosen in ((self.optimizer, 0), (self.second, 1)):
            pairs = [one for i, one in enumerate(zip(gradients, weights, strict=True)) if i % 2 == chosen]
            optimizer.apply_gradients(pairs)
        return {"loss": loss}


def functional(name, staleness=3, normalize=True):
    ids, x = keras.Input((2,), dtype="int64"), keras.Input((3,))
    rows = het_tf.keras.Embedding(4, combiner="sum", name=name, cache=het_tf.Cache(staleness=staleness))(ids)
    hidden = keras.layers.Concatenate()([rows, keras.layers.Dense(4)(x)])
    hidden = keras.layers.BatchNormalization()(hidden) if normalize else hidden
    return keras.Model([ids, x], keras.layers.Dense(1, dtype="float32")(keras.layers.Dropout(0.2)(hidden)))


def sequential(name):
    return keras.Sequential([
        keras.Input((2,), dtype="int64"), het_tf.keras.Embedding(4, combiner="sum", name=name),
        keras.layers.Dense(1),
    ])  # fmt: skip


def ways(more):
    """Name, model, compile arguments: those that differ most, and the other ones."""
    opt = keras.optimizers
    if not more:
        yield "clipnorm", functional, dict(optimizer=opt.Adam(0.01, global_clipnorm=0.1))
        yield "two", TwoOptimizers, dict(optimizer="sgd", run_eagerly=True)
        return
    yield "eager", functional, dict(optimizer="adagrad", run_eagerly=True)
    yield "subclassed", Subclassed, dict(optimizer="adam")
    yield "ema", functional, dict(optimizer=opt.SGD(0.1, use_ema=True, ema_overwrite_frequency=3))
    yield "many", functional, dict(optimizer="rmsprop", steps_per_execution=4)
    yield "scaled", functional, dict(optimizer=opt.LossScaleOptimizer(opt.Adam(0.01), initial_scale=2.0**10))
    yield "sequential", sequential, dict(optimizer="adam")


def weights_of(model):
    return [w.value.numpy() for w in model.trainable_weights]


def same(workers, what, values):
    """Asserts that the ranks hold equal arrays."""
    of_ranks = workers.gather_objects([np.asarray(v).tolist() for v in values], "same")
    for one in of_ranks[1:]:
        for a, b in zip(of_ranks[0], one, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=what)


def refused(error, part, call):
    try:
        call()
    except error as found:
        assert part in str(found), str(found)
    else:
        raise AssertionError(f"not refused: {part}")


def train_in_every_way(workers, more=False):
    """Every way to train keeps the dense weights of the ranks equal."""
    rank = workers.rank
    keras.utils.set_random_seed(100 + rank)  # the ranks begin with different weights
    ids, x, y = (one[:64] for one in part(2, rank))
    for name, build, options in ways(more):
        model = build(name)
        if name == "sequential":
            model.compile(loss="mse", **options)
            het_tf.workers.distribute(model)
        else:
            het_tf.workers.distribute(het_tf.workers.distribute(model)).compile(loss="mse", **options)
        if name == "two":
            model.second = keras.optimizers.SGD(0.1)
        inputs = ids if name == "sequential" else [ids, x]
        history = model.fit(inputs, y, batch_size=BATCH, epochs=2, verbose=0).history
        same(workers, name, [*weights_of(model), history["loss"]])
        assert name == "two" or history["loss"][1] < history["loss"][0], (name, history)
        assert all(np.isfinite(w).all() for w in weights_of(model))


def orders(workers):
    """Ranks that place one stream in two orders are told before a dense update, and none waits."""
    model = functional("orders", staleness=0)
    het_tf.workers.distribute(model).compile("sgd", "mse")
    steps = []
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(weights_of(model))
    )
    fit = partial(model.fit, verbose=0, callbacks=[look])
    mine = placed(workers.size, seed=workers.rank)
    said = "ranks place samples differently: in pass 1 of"
    refused(tf.errors.InvalidArgumentError, said, lambda: fit(mine, steps_per_epoch=100))
    assert 0 < len(steps) <= 100
    same(workers, "orders", [len(steps), *steps[-1]])
    same(workers, "orders", weights_of(model))
    samples = tf.data.Dataset.from_tensor_slices({"id": np.arange(100)})
    batch = 2 + workers.rank
    said = "batch is 2 on rank 0, 3 on rank 1"
    refused(RuntimeError, said, lambda: het_tf.workers.shard_placed(samples, by="id", batch=batch))


def filtered(batches):
    """A dataset of unknown length."""
    ids, x, y = (one[: batches * BATCH] for one in part(2, 0))
    return tf.data.Dataset.from_tensor_slices(((ids, x), y)).batch(BATCH).filter(lambda *_: True)


def end_together(workers):
    """Ranks whose streams have unknown lengths stop with the shortest; eagerly: test_shortest.py."""
    mine = filtered(7 + 4 * workers.rank)
    model = functional("end_many", staleness=0)
    het_tf.workers.distribute(model).compile("sgd", "mse", steps_per_execution=4)
    batches = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(batch))
    model.fit(mine, epochs=2, verbose=0, validation_data=filtered(2 + workers.rank), callbacks=[count])
    model.fit(mine, epochs=3, steps_per_epoch=4, verbose=0, callbacks=[count])
    same(workers, "many", [batches, *weights_of(model)])
    assert batches[:4] == [3, 7] * 2
    model, optimizer = functional("end_loop", staleness=0), keras.optimizers.SGD(0.1)
    het_tf.workers.broadcast(model)

    @tf.function(autograph=False)  # which would convert Keras, too
    def step(ids, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model([ids, x], training=True) - y) ** 2)
        gradients = het_tf.workers.reduce_gradients(
            tape.gradient(loss, model.trainable_variables), model.trainable_variables
        )
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    stream = het_tf.workers.until_shortest(mine)
    if workers.rank == 1:
        next(iter(stream))  # a single rank may look
    for (ids, x), y in stream:
        step(ids, x, y)
    assert int(optimizer.iterations) == 7, optimizer.iterations
    same(workers, "end_loop", weights_of(model))


def metrics(workers, place):
    """Metrics over ranks with unequal rows are those of one process with all rows."""
    model = functional("metrics", normalize=False)
    auc = keras.metrics.AUC(num_thresholds=50, from_logits=True, name="auc")
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=[auc, "mse"], run_eagerly=True)
    het_tf.workers.broadcast(model)
    ids, x, y = part(2, None)
    pieces = [slice(0, 100), slice(100, 220)]  # of two ranks; rank 1 has more
    mine = pieces[workers.rank]
    model.evaluate([ids[mine], x[mine]], y[mine], batch_size=16, verbose=0)
    found = het_tf.workers.global_metrics(model)
    local = model.get_metrics_result()
    model.evaluate([ids[:220], x[:220]], y[:220], batch_size=20, verbose=0)
    expected = {name: float(value) for name, value in model.get_metrics_result().items()}
    assert set(found) == {"loss", "auc", "mse"}
    assert abs(found["auc"] - expected["auc"]) < 1e-7 and abs(found["auc"] - float(local["auc"])) > 1e-4
    for name in found:
        assert abs(found[name] - expected[name]) < 1e-5, (name, found, expected)
    # The same through fit, at a learning rate that leaves the weights as they are.
    model = functional("metrics", normalize=False)
    het_tf.workers.distribute(model).get_layer("metrics").trainable = False
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=[auc])
    ids_, x_, y_ = part(2, workers.rank)
    log = model.fit(
        [ids_, x_], y_, batch_size=BATCH, verbose=0, validation_data=([ids[mine], x[mine]], y[mine])
    ).history
    same(workers, "history", [log[name] for name in ("loss", "auc", "val_loss", "val_auc")])
    model.evaluate([ids[:220], x[:220]], y[:220], batch_size=20, verbose=0)
    assert abs(log["val_auc"][0] - float(model.get_metrics_result()["auc"])) < 1e-6


def loops(workers, place):
    """A custom loop."""
    ids, x, y = (tf.constant(one) for one in part(2, workers.rank))
    model, optimizer = functional("loop", staleness=0), keras.optimizers.Adam(0.01)
    het_tf.workers.broadcast(model)

    @tf.function(autograph=False)
    def step(ids, x, y):
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model([ids, x], training=True) - y) ** 2)
        gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, weights), weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    for begin in range(0, 80, BATCH):
        step(*(one[begin : begin + BATCH] for one in (ids, x, y)))
    same(workers, "loop", weights_of(model))
    in_step(workers, place)


def in_step(workers, place):
    """A reduction that only orders ops keeps the ranks in step: none is more than a step ahead."""
    layer = het_tf.keras.Embedding(2, name="ordered", cache=het_tf.Cache(staleness=math.inf))
    log = [place / f"steps-{rank}" for rank in (0, 1)]

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids))
        gradients = tape.gradient(loss, [layer.anchor])
        with tf.control_dependencies(het_tf.workers.reduce_gradients(gradients, [layer.anchor])):
            return tf.identity(loss)

    def steps(rank):
        return len(log[rank].read_text())

    log[workers.rank].write_text("")
    collective.barrier()
    for _ in range(20):
        if workers.rank == 1:
            time.sleep(0.02)  # the other one would be ahead
        step(tf.constant([1], tf.int64))
        with log[workers.rank].open("a") as file:
            file.write(".")
        assert steps(workers.rank) <= steps(1 - workers.rank) + 1
    collective.barrier()


def die(workers, place, victim_and_how):
    """One rank ends in the middle of training."""
    victim, _, how = victim_and_how.partition(":")
    model = functional("dying", staleness=0)
    het_tf.workers.distribute(model).compile("sgd", "mse")
    ids, x, y = part(2, workers.rank)

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5 and workers.rank == int(victim):
                if how == "error":
                    raise ValueError("the data is bad here")
                os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)

    model.fit([ids, x], y, batch_size=BATCH, epochs=1000, verbose=0, callbacks=[End()])
