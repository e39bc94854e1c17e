"""What ranks of TensorFlow do, started by `het run` or horovodrun: test_ranks.py. See also ranks_cases.py."""

from __future__ import annotations

import math
import os
import signal
import time
import warnings
from functools import partial
from unittest import mock

import keras
import numpy as np
import ranks
import saving_lib
import tensorflow as tf
from checkpoint_lib import fit, model, tables, weights
from exact_worker import BATCH, part, placed
from ranks_cases import refused, same
from rules_lib import learn
from safetensors.numpy import load as load_arrays

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.ps.python import address
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.partitions import positions
from het_tf.ext.serving.python.publishing import dense_store
from het_tf.ext.serving.python.publishing.versions import Versions
from het_tf.ext.streams.python.agreement import Stream
from het_tf.ext.workers.python.mesh_tensors import TensorMesh
from het_tf.python.session import collective, native, settings
from het_tf.workers import broadcast, distribute, rank, reduce_gradients, size


class TwoOptimizers(keras.Model):
    """Has no weights before its first batch, and a train_step with an optimizer beside the compiled one."""

    def __init__(self, name):
        super().__init__()
        self.rows = het_tf.keras.Embedding(4, combiner="mean", name=name, cache=het_tf.Cache(staleness=3))
        self.out = keras.layers.Dense(1)
        self.second = keras.optimizers.SGD(0.1)

    def call(self, inputs):
        return self.out(keras.ops.concatenate([self.rows(inputs[0]), inputs[1]], axis=1))

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


def functional(name, staleness=3):
    ids, x = keras.Input((2,), dtype="int64"), keras.Input((3,))
    rows = het_tf.keras.Embedding(4, combiner="sum", name=name, cache=het_tf.Cache(staleness=staleness))(ids)
    hidden = keras.layers.Concatenate()([rows, keras.layers.Dense(4)(x)])
    hidden = keras.layers.Dropout(0.2)(keras.layers.BatchNormalization()(hidden))
    return keras.Model([ids, x], keras.layers.Dense(1, dtype="float32")(hidden))


def ways(more=False):
    """Every way to train keeps the dense weights of the ranks equal, which begin with different ones."""
    opt = keras.optimizers
    found = {
        "clipnorm": (functional, dict(optimizer=opt.Adam(0.01, global_clipnorm=0.1))),
        "two": (TwoOptimizers, dict(optimizer="sgd", run_eagerly=True)),
    }
    if more:
        scaled = opt.LossScaleOptimizer(opt.Adam(0.01), initial_scale=2.0**10)
        found = {
            "ema": (functional, dict(optimizer=opt.SGD(0.1, use_ema=True, ema_overwrite_frequency=3))),
            "many": (functional, dict(optimizer="rmsprop", steps_per_execution=4)),
            "scaled": (functional, dict(optimizer=scaled)),
        }
    keras.utils.set_random_seed(100 + rank())
    ids, x, y = (one[:64] for one in part(2, rank()))
    for name, (build, options) in found.items():
        made = build(name)
        distribute(distribute(made)).compile(loss="mse", **options)
        history = made.fit([ids, x], y, batch_size=BATCH, epochs=2, verbose=0).history
        same(name, [*dense_of(made), history["loss"]])
        assert name == "two" or history["loss"][1] < history["loss"][0], (name, history)
        assert all(np.isfinite(w).all() for w in dense_of(made))


def dense_of(made):
    return [w.value.numpy() for w in made.trainable_weights]


def orders():
    """Ranks that place one stream in two orders are told before a dense update, and none waits."""
    made = functional("orders", staleness=0)
    distribute(made).compile("sgd", "mse")
    steps = []
    look = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(dense_of(made)))
    with refused(tf.errors.InvalidArgumentError, "ranks place samples differently: in pass 1 of"):
        made.fit(placed(size(), seed=rank()), verbose=0, callbacks=[look], steps_per_epoch=100)
    assert 0 < len(steps) <= 100
    same("orders", [len(steps), *steps[-1]])
    same("orders", dense_of(made))
    samples = tf.data.Dataset.from_tensor_slices({"id": np.arange(100)})
    with refused(RuntimeError, "batch is 2 on rank 0, 3 on rank 1"):
        het_tf.workers.shard_placed(samples, by="id", batch=2 + rank())
    Stream._passes.clear()  # the next function begins without streams
    Stream._notes = None


def filtered(batches):
    """A dataset of unknown length."""
    ids, x, y = (one[: batches * BATCH] for one in part(2, 0))
    return tf.data.Dataset.from_tensor_slices(((ids, x), y)).batch(BATCH).filter(lambda *_: True)


def end_together():
    """Ranks whose streams have unknown lengths stop with the shortest; eagerly: test_shortest.py."""
    mine = filtered(7 + 4 * rank())
    made = functional("end_many", staleness=0)
    distribute(made).compile("sgd", "mse", steps_per_execution=4)
    batches = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(batch))
    made.fit(mine, epochs=2, verbose=0, validation_data=filtered(2 + rank()), callbacks=[count])
    made.fit(mine, epochs=3, steps_per_epoch=4, verbose=0, callbacks=[count])
    same("many", [batches, *dense_of(made)])
    assert batches[:4] == [3, 7] * 2
    made, optimizer = functional("end_loop", staleness=0), keras.optimizers.SGD(0.1)
    broadcast(made)

    @tf.function(autograph=False)  # which would convert Keras, too
    def step(ids, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((made([ids, x], training=True) - y) ** 2)
        variables = made.trainable_variables
        gradients = reduce_gradients(tape.gradient(loss, variables), variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    stream = het_tf.workers.until_shortest(mine)
    if rank() == 1:
        next(iter(stream))  # a single rank may look
    for (ids, x), y in stream:
        step(ids, x, y)
    assert int(optimizer.iterations) == 7, optimizer.iterations
    same("end_loop", dense_of(made))


def in_step():
    """A reduction that only orders ops keeps the ranks in step: none is more than a step ahead."""
    layer = het_tf.keras.Embedding(2, name="ordered", cache=het_tf.Cache(staleness=math.inf))
    log = [ranks.place() / f"steps-{one}" for one in (0, 1)]

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids))
        gradients = tape.gradient(loss, [layer.anchor])
        with tf.control_dependencies(reduce_gradients(gradients, [layer.anchor])):
            return tf.identity(loss)

    log[rank()].write_text("")
    collective.barrier()
    for _ in range(20):
        if rank() == 1:
            time.sleep(0.02)  # the other one would be ahead
        step(tf.constant([1], tf.int64))
        with log[rank()].open("a") as file:
            file.write(".")
        mine, other = (len(log[one].read_text()) for one in (rank(), 1 - rank()))
        assert mine <= other + 1
    collective.barrier()


def bits():
    """Horovod's means have the bits of those of het_tf's connections."""
    horovod = settings.workers()
    rng = np.random.default_rng(rank())
    gradients = [tf.constant(rng.normal(size=shape), tf.float32) for shape in ((3, 5), (), (0, 4), (70_000,))]
    gradients.append(tf.constant(rng.normal(size=7), tf.float64))
    indices = tf.constant(rng.integers(0, 9, 4 + rank()))
    rows = tf.constant(rng.normal(size=(4 + rank(), 2)), tf.float32)
    gradients.append(tf.IndexedSlices(rows, indices, tf.constant([9, 2], tf.int64)))
    ours = tf.function(lambda these: TensorMesh.mean(horovod, these, "bits"))(gradients)
    theirs = tf.function(lambda these: horovod.mean(these, "bits"))(gradients)
    for one, other in zip(tf.nest.flatten(ours, True), tf.nest.flatten(theirs, True), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(one, other)


# --- files, exports, versions ------------------------------------------------------------------------------


def keras_files():
    """het_tf.callbacks.Checkpoint writes files of Keras that have what both ranks have trained."""
    # push: a rank holds back what it has trained; pull 0: in the end rank 0 reads what there is.
    cache = het_tf.Cache(rows=64, staleness=het_tf.Bounds(0, 50), wire="float32")
    made = distribute(saving_lib.make_model("sgd", cache=cache))
    ids, labels = saving_lib.data(seed=rank())
    paths = [str(ranks.place() / name) for name in ("x.weights.h5", "x.keras")]
    saves = [het_tf.callbacks.Checkpoint(path, save_weights_only="h5" in path) for path in paths]
    with warnings.catch_warnings():
        warnings.simplefilter("error", het_tf.python.table.notes.TablesNotSavedWarning)
        made.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False, callbacks=saves)
    het_tf.flush(all_ranks=True)
    return {**saving_lib.everything(), "predictions": saving_lib.predictions(made)}


def export():
    """Rank 0 writes an export that has the rows of both ranks, and its error is one of both."""
    features = {"ids": het_tf.FeatureConfig(het_tf.TableConfig("item", 4))}
    layer = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(staleness=math.inf))
    ids = keras.Input((), dtype="int64", name="ids")
    made = keras.Model({"ids": ids}, layer({"ids": ids}))
    mine = {"ids": tf.constant([10 * rank(), 1], tf.int64)}  # which its cache holds back
    learn(layer, lambda: layer(mine, training=True)["ids"], reduce=True)
    path = ranks.place() / "export"
    assert (het_tf.export(made, path, verbose=False) is not None) == (rank() == 0)
    assert (path / "saved_model.pb").exists()  # whichever rank returns
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    asked = tf.constant([0, 1, 10, 99], tf.int64)
    stored = het_tf.Table("item").lookup(asked.numpy(), stored=True)
    np.testing.assert_array_equal(serve(ids=asked)["ids"].numpy(), stored)
    assert het_tf.Table("item").size == 3
    # Only rank 0 has something in the way, and the other one does not wait for it.
    with refused((FileExistsError, RuntimeError), "exists"):
        het_tf.export(made, path if rank() == 0 else ranks.place() / "elsewhere")


def publish():
    """Versions while both ranks train, and one with what both held back; rank 0 alone writes."""
    made = distribute(saving_lib.make_model("sgd", cache=het_tf.Cache(rows=64, staleness=math.inf)))
    ids, labels = saving_lib.data(seed=rank())
    publisher = het_tf.callbacks.Publish(every=0.01, keep=1000)
    made.fit(ids, labels, batch_size=2, epochs=2, verbose=0, callbacks=[publisher])
    with Client(address.parse(settings.parameter_server())) as client:
        versions = Versions(client, "").last()
        assert len(versions) > 2 and versions[-1].cut == positions(client, "")
        collective.barrier()
        learn(made, lambda: made(ids[:4], training=True), reduce=True)
        collective.barrier()
        before = positions(client, "")
        collective.barrier()
        assert (het_tf.publish(made) is not None) == (rank() == 0)
        collective.barrier()
        there = Versions(client, "").last(1)[0]
        assert there.number == versions[-1].number + 1 and there.cut == positions(client, "") != before
        content = load_arrays(dense_store.fetch(client, there))
        for name, array in dense.values(dense.weights_of(made)).items():
            np.testing.assert_array_equal(content[name], array)


# --- checkpoints -------------------------------------------------------------------------------------------


def whole_model():
    made = distribute(model(whole=True))
    broadcast(made)
    return made


def train(made, begin, end):
    """Each rank has batches of its own."""
    fit(made, 1000 * rank() + begin, 1000 * rank() + end)
    het_tf.flush(all_ranks=True)


def state(made):
    """Rows and dense weights; the same on all ranks."""
    found = tables()["item"]
    found = {name: found[name] for name in ("ids", "clocks", "counts", "rows")}
    found |= {f"w{number}": one for number, one in enumerate(weights(made))}
    return found | {"applies": np.int64(het_tf.Table("item").updates)}


def equal(found, expected, what):
    assert sorted(found) == sorted(expected), (sorted(found), sorted(expected))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{what}: {name}")


def save():
    """Two ranks train, save, go on; a second job of them continues from the checkpoint and ends equal."""
    made, place = whole_model(), ranks.place() / "c"
    train(made, 0, 4)
    with mock.patch.object(native, "call", side_effect=native.call) as call:
        path = checkpoint.save(place, made, step=4)
    calls = [one.args[0] for one in call.call_args_list]
    assert calls.count("HetSaveRows") == 8, "each rank writes half of the 16 files"
    assert calls.count("HetMarkDurable") == 1
    saved = state(made)
    train(made, 4, 7)
    later = state(made)
    train(made, 20, 22)
    assert checkpoint.restore(place, made).step == 4
    equal(state(made), saved, "restored")
    train(made, 4, 7)
    equal(state(made), later, "resumed")
    increment = checkpoint.save(place, made, step=7, since="latest", keep=1)
    assert checkpoint.checkpoints(place) == [path, increment]
    assert checkpoint.verify(increment).base is not None
    np.savez(ranks.place() / f"saved{rank()}.npz", **saved)
    np.savez(ranks.place() / f"later{rank()}.npz", **later)


def load():
    """As many ranks as like restore what others have saved, and train on."""
    made, place = whole_model(), ranks.place()
    train(made, 50, 51)
    checkpoint.restore(place / "c", made)
    equal(state(made), dict(np.load(place / "later0.npz")), "restored")
    train(made, 60, 62)
    same("state", state(made).values())
    checkpoint.restore(place / "c" / "ckpt-00000004", made)
    equal(state(made), dict(np.load(place / "saved0.npz")), "the first one")


def fail():
    """An error of one rank is raised on all, no rank waits, and the last checkpoint stays."""
    place = ranks.place() / "fail"
    made = whole_model()
    train(made, 0, 2)
    path = checkpoint.save(place, made, step=1)
    expected = state(made)
    last = size() - 1
    native_call = native.call

    def broken(function, error):
        def call(name, *arguments):
            if name == function and rank() == last:
                raise error
            return native_call(name, *arguments)

        return mock.patch.object(native, "call", call)

    theirs = "" if rank() == last else f"rank {last} could not "
    for function, error, what in (
        ("HetFlush", ConnectionError("no server"), "send what its caches held back: "),
        ("HetSaveRows", OSError(28, "No space left on device"), "write its share: "),
        ("HetSaveRows", MemoryError("out of memory"), "write its share: "),
    ):
        with broken(function, error), refused(type(error), theirs and theirs + what):
            checkpoint.save(place, made, step=2)
        collective.barrier()
        assert list(place.iterdir()) == [path], list(place.iterdir())
    for function, what in (("HetStoreInfo", "read the checkpoint: damaged"), ("HetFlush", "send")):
        with broken(function, ValueError("damaged")), refused(ValueError, theirs and theirs + what):
            checkpoint.restore(place, made)
        equal(state(made), expected, function)
    with broken("HetLoadRows", ConnectionError("no server")), refused(ConnectionError, "given up half-way"):
        checkpoint.restore(place, made)
    checkpoint.restore(place, made)
    equal(state(made), expected, "restored at last")

    # Only rank 0: dense weights, the directory.
    no_space = mock.patch.object(dense, "write", side_effect=OSError(28, "No space left on device", "dense"))
    with no_space, refused(OSError, "" if rank() == 0 else "rank 0 could not end the save: "):
        checkpoint.save(place, made, step=2)
    (place.parent / "file").write_text("")
    collective.barrier()
    for error, words, call in (
        (NotADirectoryError, "is a file", partial(checkpoint.save, place.parent / "file")),
        (FileNotFoundError, "there is no checkpoint", partial(checkpoint.restore, place / "nowhere")),
        (ValueError, "give a later step", partial(checkpoint.save, place, step=1)),
        (ValueError, "different arguments", partial(checkpoint.save, place, step=5 + rank())),
    ):
        with refused(error, words):
            call(model=made)
    assert checkpoint.checkpoints(place) == [path]
    equal(state(made), expected, "in the end")


def resumed(dies):
    """A job that saves each epoch, goes on from the last one, and may die on the way."""
    place = ranks.place() / "c"
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(rank())
    ids = rng.integers(0, 50, (640, 2))
    y = (ids.sum(1, keepdims=True) % 3 == 0).astype(np.float32)
    inputs = keras.Input((2,), dtype="int64")
    rows = het_tf.keras.Embedding(4, name="item", combiner="sum", cache=het_tf.Cache(staleness=0))(inputs)
    made = distribute(keras.Model(inputs, keras.layers.Dense(1)(rows)))
    made.compile(keras.optimizers.SGD(0.1), "mse")
    done = checkpoint.restore(place, made).step // 20 if place.exists() else 0

    class Die(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if dies and os.environ["HET_RESTART"] == "0" and rank() == 1 and epoch == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    more = {"initial_epoch": done, "callbacks": [het_tf.callbacks.Checkpoint(place), Die()]}
    made.fit(ids, y, batch_size=32, epochs=4, shuffle=False, verbose=0, **more)
    table = het_tf.Table("item").scan()
    return [*(table[name] for name in ("ids", "clocks", "rows")), *made.layers[-1].get_weights()]
