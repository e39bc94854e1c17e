"""Ranks of TensorFlow train as one process that has all of their batches; many cases in a launch.

What ranks do on every backend is tests/plugin/backends/test_several_workers.py, what they write
tests/ext/checkpoint/test_checkpoint_ranks.py.
"""

import functools
import math
import os
import re
import subprocess
import sys
import time
from functools import partial

import het_ps_lib
import numpy as np
import pytest
import ranks
import tensorflow as tf
from floats_lib import MODEL, assert_close, of_columns
from ranks import refused, same

import het_tf
from het_tf.ext.streams.python.agreement import Stream
from het_tf.ext.workers.python.mesh_tensors import TensorMesh
from het_tf.python.session import collective, settings
from het_tf.workers import distribute, rank, reduce_gradients, size

keras = tf.keras
pytestmark = [pytest.mark.slow, ranks.SERVER]
EXAMPLE = ranks.ROOT / "examples" / "wide_deep.py"
STEPS, BATCH, IDS = 16, 8, 24


def batches(ranks, seed=5):
    """For each step and rank: ids [BATCH, 2], numbers [BATCH, 3], labels [BATCH, 1]; small integers."""
    rng = np.random.default_rng(seed)
    shape = (STEPS, ranks, BATCH)
    ids = rng.integers(0, IDS, (*shape, 2))
    x = rng.integers(-1, 2, (*shape, 3)).astype(np.float32)
    return ids, x, (ids.sum(-1, keepdims=True) % 3 == 0).astype(np.float32)


def part(ranks, rank):
    """All batches of one rank, one after the other; of all ranks together, step by step, if rank is None."""
    chosen = slice(None) if rank is None else slice(rank, rank + 1)
    return [one[:, chosen].reshape(-1, one.shape[-1]) for one in batches(ranks)]


# --- models that must equal those of one process -----------------------------------------------------------


class Slow(keras.layers.Layer):
    """Passes ids on, on some steps late: as when the ranks are not equally fast."""

    def __init__(self, seed, **options):
        super().__init__(**options)
        self.rng = np.random.default_rng(seed)

    def call(self, ids):
        def wait(x):
            time.sleep(0.03 * float(self.rng.random() < 0.4))
            return x

        out = tf.numpy_function(wait, [ids], tf.int64)
        out.set_shape(ids.shape)
        return out


def integers(y_true, y_pred):
    """A loss whose gradients are small integers that depend on the rows: a row too old or too new shows."""
    del y_true
    return tf.stop_gradient(tf.math.floormod(tf.floor(y_pred * 4.0), 5.0) - 2.0) * y_pred


WHOLE = {"initializer": "zeros", "optimizer": het_tf.optimizers.SGD(1.0)}  # rows stay whole numbers
FLOAT = {"optimizer": het_tf.optimizers.SGD(0.05)}
ADAM = {"optimizer": het_tf.optimizers.Adam(0.01), "l2": 0.01}
CELLS = {
    "whole_small_cache": {**WHOLE, "cache_rows": 3},
    "float": {**FLOAT, "eagerly": True},
    "placed": {**WHOLE, "eagerly": True},
    "on_demand": WHOLE,
    "on_demand_small_cache": {**WHOLE, "cache_rows": 3, "eagerly": True},
    # Under init(accumulate=True) all ranks' gradients are one update, also by optimizers with slots.
    "summed": {**ADAM, "cache_rows": 5},
    "on_demand_summed": {**ADAM, "cache_rows": 5},
}
SHORT = ("whole_small_cache", "placed", "on_demand")
LONG = (*SHORT, "float", "on_demand_small_cache")  # cells that are like the others, and take as long
LEFT = 10  # steps of a first pass of the streams of "on_demand", which is left then


def inputs_of(name, ids):
    return {name: ids, f"{name}/2": ids}


def make(name, rank, cache_rows=None, eagerly=False, **table):
    """A model of rows and of dense weights; "summed": of two tables, of which one has a schedule."""
    keras.utils.set_random_seed(7)
    ids, x = keras.Input((2,), dtype="int64"), keras.Input((3,))
    late = ids if rank is None else Slow(rank, dtype="int64")(ids)
    tables = {name: het_tf.FeatureConfig(het_tf.TableConfig(name, 4, **table), "sum")}
    if "summed" in name:
        rate = keras.optimizers.schedules.ExponentialDecay(0.2, 3, 0.7)
        second = het_tf.TableConfig(f"{name}/2", 3, optimizer=het_tf.optimizers.Adagrad(rate))
        tables[second.name] = het_tf.FeatureConfig(second, "mean", padding_id=0)
    cache = het_tf.Cache(staleness=0, rows=cache_rows)
    rows = het_tf.keras.EmbeddingCollection(tables, cache=cache, name=name)(inputs_of(name, late))
    whole = "initializer" in table
    dense = keras.layers.Dense(1, kernel_initializer="zeros" if whole else "glorot_uniform")
    if whole:
        out = keras.ops.sum(rows[name], axis=-1, keepdims=True) + dense(x)
    else:
        out = dense(keras.layers.Concatenate()([keras.layers.Dense(5, "tanh")(x), *rows.values()]))
    model = keras.Model([ids, x], out)
    rate, loss = (1.0, integers) if whole else (0.05, "mse")
    model.compile(keras.optimizers.SGD(rate), loss, run_eagerly=eagerly)
    return model


def fit(model, data, batch):
    ids, x, y = data
    model.fit([ids, x], y, batch_size=batch, shuffle=False, verbose=0)


def result(model, name):
    """Dense weights, and of the tables rows, clocks and updates."""
    het_tf.flush()
    weights = [w.value.numpy() for w in model.trainable_weights if w.shape != ()]
    found = {f"{name}/w{i}": w for i, w in enumerate(weights)}
    for table in (one for one in het_tf.tables() if one.split("/")[0] == name):
        scan = het_tf.Table(table).scan()
        columns = ("ids", "rows", "clocks") if "summed" in name else ("ids", "rows")
        found |= {f"{table}/{column}": scan[column] for column in columns}
    return found


def placed(ranks, seed=None, how=het_tf.workers.shard_placed, **more):
    """The batches of this rank, of those of all ranks together placed by the first id; shuffled before."""
    ids, x, y = part(ranks, None)
    samples = tf.data.Dataset.from_tensor_slices(({"first": ids[:, 0], "ids": ids, "x": x}, y))
    if seed is not None:
        samples = samples.shuffle(len(y), seed=seed).repeat()
    batches = how(samples, by="first", batch=BATCH, **more)
    return batches.map(lambda features, y: ((features["ids"], features["x"]), y))


@functools.cache
def union(ranks, name):
    """The same in one process, on the batches of all ranks."""
    het_tf.reset()
    model = make(name, None, **CELLS[name])
    if name.startswith("on_demand"):
        fit(model, [one[: LEFT * ranks * BATCH] for one in part(ranks, None)], ranks * BATCH)
    fit(model, part(ranks, None), ranks * BATCH)
    return result(model, name)


def exact(names=SHORT, name="exact", **init):
    """Bulk-synchronous training of cells; returns what this rank ends with."""
    het_tf.init(**init)
    found = {}
    for cell in names:
        model = distribute(make(cell, rank(), **CELLS[cell]))
        steps = STEPS
        if cell == "placed":
            model.fit(placed(size()), verbose=0)
        elif cell.startswith("on_demand"):
            # Two passes, of which the first is left: `fit` has the ranks send what they have held back.
            looked_up = lambda features, y, cell=cell: inputs_of(cell, features["ids"])  # noqa: E731
            how = het_tf.workers.shard_on_demand
            mine = placed(size(), how=how, lookahead=model.get_layer(cell), inputs=looked_up)
            model.fit(mine, verbose=0, steps_per_epoch=LEFT)
            model.fit(mine, verbose=0)
            steps += LEFT
            assert het_tf.Table(cell).stats()["planned"] == steps
        else:
            fit(model, part(size(), rank()), BATCH)
        het_tf.flush(all_ranks=True)
        assert het_tf.Table(cell).updates == steps, "at every rank, whichever updates the row"
        found |= result(model, cell)
    return found


def equals_the_union(of_ranks):
    mine, other = of_ranks
    for name, found in mine.items():
        cell = name.split("/")[0]
        expected = union(2, cell)[name]
        np.testing.assert_array_equal(found, other[name], err_msg=name)
        if "initializer" in CELLS[cell] or name.endswith(("/ids", "/clocks")):
            np.testing.assert_array_equal(found, expected, err_msg=name)
            assert name != "placed/rows" or len(set(expected.ravel())) > 10, "the rows have moved"
        elif "summed" in name and name.endswith("/rows"):
            assert_close(found, expected, MODEL, magnitude=of_columns(expected), message=name)
        else:
            assert_close(found, expected, message=name)


# --- what ranks do -----------------------------------------------------------------------------------------


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
    Stream._passes.clear()  # the next function begins without streams
    Stream._notes = None


def filtered(batches):
    """A dataset of unknown length."""
    ids, x, y = (one[: batches * BATCH] for one in part(2, 0))
    return tf.data.Dataset.from_tensor_slices(((ids, x), y)).batch(BATCH).filter(lambda *_: True)


def end_together():
    """Ranks whose streams have unknown lengths stop with the shortest; loops, eagerly: test_shortest.py."""
    mine = filtered(7 + 4 * rank())
    made = functional("end_many", staleness=0)
    distribute(made).compile("sgd", "mse", steps_per_execution=4)
    batches = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(batch))
    made.fit(mine, epochs=2, verbose=0, validation_data=filtered(2 + rank()), callbacks=[count])
    made.fit(mine, epochs=3, steps_per_epoch=4, verbose=0, callbacks=[count])
    same("many", [batches, *dense_of(made)])
    assert batches[:4] == [3, 7] * 2


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


def agreement():
    """Gradients that are one update: a fault of rank 1 is one of all; ranks without samples take part."""
    het_tf.init(accumulate=True)
    one = rank() == 1
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)

    def layer(name, rows=None):
        cache, sgd = het_tf.Cache(staleness=0, rows=rows), het_tf.optimizers.SGD(1.0)
        return het_tf.keras.Embedding(2, name=name, optimizer=sgd, initializer="zeros", cache=cache)

    def update(embed, ids, factor=1.0, scaled=False):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embed(tf.constant(ids, tf.int64), training=True)) * factor
            if scaled:
                loss = optimizer.scale_loss(loss)
        variables = embed.trainable_variables
        gradients = reduce_gradients(tape.gradient(loss, variables), variables)
        apply = optimizer.apply_gradients if scaled else het_tf.apply
        apply(zip(gradients, variables, strict=True))

    def expect(rows, embed):
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
    both = layer("a"), layer("b")
    with refused(tf.errors.FailedPreconditionError, "same order"):
        update(both[rank()], [1])
    for each in both:
        expect([0.0, 0.0], each)
    for _ in range(20):  # lookups whose gradients are taken leave nothing pinned, small cache or not
        update(layer("small", rows=3), [1, 2, 3, 4, 5, 6])
    assert het_tf.Table("small").stats()["cache"]["rows"] <= 3


# --- launches ----------------------------------------------------------------------------------------------

LAUNCHERS = {
    "het_run": (ways, end_together, in_step, orders, agreement),
    "horovod": (ways, end_together, in_step, bits),  # what passes through its means
}
SHORTEST = ("the data of rank 0 ended first, after 7 batches",)  # of end_together


@pytest.fixture(scope="module")
def horovod(tmp_path_factory):
    place, functions = tmp_path_factory.mktemp("horovod"), LAUNCHERS["horovod"]
    yield from ranks.launched(place, *functions, exact, launcher="horovod", said=SHORTEST)


@pytest.fixture(scope="module")
def het_run(tmp_path_factory):
    place, functions = tmp_path_factory.mktemp("ranks"), LAUNCHERS["het_run"]
    with het_ps_lib.cluster(place / "cluster") as address:
        summed = partial(exact, name="summed", names=["summed"], accumulate=True, ps=address)
        yield from ranks.launched(place, *functions, exact, summed, said=SHORTEST)


def of(launcher, *more):
    return pytest.param(launcher, *more, marks=ranks.HOROVOD if launcher == "horovod" else ())


CASES = [of(launcher, case) for launcher in LAUNCHERS for case in LAUNCHERS[launcher]]


@pytest.mark.parametrize(("launcher", "case"), CASES)
def test_both_ranks_are_through(request, launcher, case):
    """The assertions are in the case."""
    request.getfixturevalue(launcher).values(case.__name__)


EXACT = [("het_run", "exact"), of("horovod", "exact"), ("het_run", "summed")]


@pytest.mark.parametrize(("launcher", "case"), EXACT)
def test_two_ranks_equal_one_process_on_the_union_batch(request, fresh, launcher, case):
    equals_the_union(request.getfixturevalue(launcher).values(case))


@pytest.mark.long
@ranks.HOROVOD
def test_two_ranks_on_two_shards_equal_one_process(fresh, tmp_path):
    """With "on_demand_summed"; without TensorFlow: OnDemandExact.EveryOptimizerWhereGradientsAreSummed."""
    functions = [partial(exact, names=LONG), partial(ways, more=True)]
    functions.append(partial(exact, names=["on_demand_summed"], name="summed", accumulate=True))
    with het_ps_lib.cluster(tmp_path / "cluster") as address:
        job = ranks.Job(tmp_path, *functions, launcher="horovod", HET_PS=address)
        for case in ("exact", "summed"):
            equals_the_union(job.values(case))
        job.values("ways")
        assert job.end() == 0


def test_one_worker_exchanges_nothing(fresh):
    expected = union(2, "summed")
    het_tf.init(ps="", accumulate=True)
    for name, found in union.__wrapped__(2, "summed").items():
        np.testing.assert_array_equal(found, expected[name])


# --- whole programs ----------------------------------------------------------------------------------------


@pytest.mark.long
@ranks.HOROVOD
def test_the_example_on_two_ranks_reaches_single_process_auc_and_prints_on_rank_0_alone(tmp_path):
    def auc_of(text):
        (found,) = re.findall(r"test AUC (\d\.\d{4})", text)
        return float(found)

    variables = {**os.environ, "PYTHONPATH": str(ranks.ROOT)}
    command = [sys.executable, str(EXAMPLE), "--staleness", "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    single = auc_of(done.stdout)
    with het_ps_lib.cluster(tmp_path) as address:
        done = ranks.launch(EXAMPLE, "--staleness", 100, HET_PS=address)
    assert done.returncode == 0, done.stdout[-4000:]
    assert auc_of(done.stdout) > single - 0.003
    assert "[0]<stdout>:" in done.stdout and "[1]<stdout>:" not in done.stdout
    steps = set(re.findall(r"<stdout>:(\d+)/\d+ .*val_auc", done.stdout))
    assert steps == {"91"}, "each rank has half of the 183 batches, and one tells"
