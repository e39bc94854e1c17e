"""Two ranks on each backend, started by `het run`, Horovod or the variables of torchrun."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from functools import partial

import keras
import layers_lib
import numpy as np
import pytest
import ranks
from backends_lib import BACKEND, DIM, apply, array, elsewhere, gradients, on_jax, on_tensorflow, on_torch
from ranks import refused, same

import het_tf
from het_tf.ext.workers.python.backends import ops
from het_tf.python.session import collective
from het_tf.workers import broadcast, distribute, rank, reduce_gradients, shard

pytestmark = [pytest.mark.slow, ranks.SERVER]
IDS, ROWS, BATCH = 40, 192, 8
SYNCHRONOUS = het_tf.Cache(rows=64, staleness=0)


def data():
    """What all ranks together read in batches of ranks * BATCH."""
    ids = np.random.default_rng(3).integers(0, IDS, (ROWS, 2)).astype("int32")
    return ids, (ids.sum(1, keepdims=True) % 3 == 0).astype("float32")


def model_of(name, cache=SYNCHRONOUS, width=4):
    optimizer = het_tf.optimizers.Adam(0.02) if name == "accumulate" else het_tf.optimizers.SGD(0.5)
    embed = het_tf.keras.Embedding(DIM, name=name, optimizer=optimizer, cache=cache)
    inputs = keras.Input((2,), dtype="int32")
    hidden = keras.layers.Dense(width, "tanh")(keras.layers.Flatten()(embed(inputs)))
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", dtype="float32")(hidden), name="m")


def compiled(model):
    metrics = [keras.metrics.AUC(name="auc", num_thresholds=50), "mse"]
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=metrics)
    return model


def dense(model):
    return [one for layer in model.layers[2:] for one in layer.get_weights()]


def fitted(model, ids, labels, batch):
    history = model.fit(
        ids, labels, batch_size=batch, epochs=3, shuffle=False, verbose=0,
        validation_data=(ids[: 4 * batch], labels[: 4 * batch]),
    ).history  # fmt: skip
    het_tf.flush(all_ranks=True)
    found = {"rows": het_tf.Table(model.layers[1].name).lookup(np.arange(IDS))}
    found |= {f"weight{number}": one for number, one in enumerate(dense(model))}
    return found | {f"history/{key}": np.array(value) for key, value in history.items()}


def equals_the_union(name, of_ranks):
    """What `fit` has found is what one process finds with the union of the ranks' batches."""
    (start, found), (_, other) = of_ranks
    model = compiled(model_of(name, cache=None))
    for layer, number in zip([one for one in model.layers[2:] if one.weights], (0, 2), strict=True):
        layer.set_weights(start[number : number + 2])
    expected = fitted(model, *data(), 2 * BATCH)
    assert np.abs(expected["weight0"] - start[0]).max() > 0.05 and "history/val_auc" in expected
    for what, one in found.items():
        np.testing.assert_array_equal(one, other[what], err_msg=what)
        np.testing.assert_allclose(one, expected[what], rtol=0, atol=2e-5, err_msg=what)


# --- what ranks do ------------------------------------------------------------------------------------------


def fit(name="fit"):
    """`fit` begins with rank 0's weights, averages gradients, and merges metrics."""
    warnings.simplefilter("error", het_tf.HetWarning)
    keras.utils.set_random_seed(rank())
    model = distribute(compiled(model_of(name)))
    assert distribute(model) is model
    return dense(model), fitted(model, *shard(data()), BATCH)


def accumulate():
    """Under init(accumulate=True) a row that both ranks use gets one update by Adam; an error is of both."""
    het_tf.init(accumulate=True)
    found = fit("accumulate")
    model = distribute(compiled(model_of("nan")))
    ids, labels = shard(data())
    before = het_tf.Table("nan").lookup(np.arange(IDS))
    weights = np.full(BATCH, np.nan if rank() == 1 else 1.0, "float32")
    with refused(Exception, "is NaN or Inf"):
        model.train_on_batch(ids[:BATCH], labels[:BATCH], sample_weight=weights)
    np.testing.assert_array_equal(het_tf.Table("nan").lookup(np.arange(IDS)), before)
    return found


def batches():
    """train_on_batch begins with rank 0's weights, too, and the ranks stay equal."""
    keras.utils.set_random_seed(rank())
    model = distribute(compiled(model_of("batches")))
    ids, labels = shard(data())
    for begin in (0, BATCH, 2 * BATCH):
        model.train_on_batch(ids[begin : begin + BATCH], labels[begin : begin + BATCH])
    same("batches", dense(model))


def metrics():
    """Of ranks with unequal rows they are those of one process; afterwards each rank has its own."""
    model = compiled(model_of("metrics"))
    broadcast(model)
    ids, labels = data()

    def evaluated(part):
        return model.evaluate(ids[part], labels[part], batch_size=16, verbose=0, return_dict=True)

    expected = evaluated(slice(0, 176))
    mine = evaluated([slice(0, 64), slice(64, 176)][rank()])
    found = het_tf.workers.global_metrics(model)
    assert set(found) == {"loss", "auc", "mse"} and abs(found["auc"] - mine["auc"]) > 1e-4
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, err_msg=name)
    assert float(model.get_metrics_result()["auc"]) == pytest.approx(mine["auc"])


def loop():
    """A loop of one's own: broadcast, reduce_gradients, apply. Then without reduce_gradients: refused."""
    keras.utils.set_random_seed(rank())
    model = model_of("loop")
    broadcast(model)
    optimizer = keras.optimizers.SGD(0.1)
    variables = model.trainable_variables
    optimizer.build(variables)
    ids, labels = (keras.ops.convert_to_tensor(one) for one in shard(data()))

    def loss():
        return keras.ops.mean((model(ids[:BATCH], training=True) - labels[:BATCH]) ** 2)

    for _ in range(3):
        _, found = gradients(loss, variables)
        apply(optimizer, reduce_gradients(found, variables), variables)
    same("loop", dense(model))
    assert het_tf.Table("loop").updates == 3
    _, found = gradients(loss, variables)
    with refused(Exception, "every rank would train a different model"):
        apply(optimizer, found, variables)
    if BACKEND != "tensorflow":
        with refused(ValueError, f"there are {len(found) - 1} gradients and {len(found)} variables"):
            reduce_gradients(found[1:], variables)


def nan():
    """A NaN of one rank is one of all: none updates a row, and all go on."""
    model = model_of("nan")
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0), "mse")
    model = distribute(model)
    ids, labels = shard(data())
    for number in range(3):
        y = labels[:BATCH] * (np.inf if number == 1 and rank() == 1 else 1)
        model.train_on_batch(ids[:BATCH], y.astype("float32"))
    assert het_tf.Table("nan").updates == 2
    same("nan", dense(model))
    assert np.isfinite(dense(model)[0]).all()


def shards():
    """Parts of arrays, and of a data set of PyTorch; what has no parts is refused."""
    part = shard({"x": np.arange(7), "y": (np.arange(7) + 10,)})
    assert part["x"].tolist() == [rank(), rank() + 2, rank() + 4] == (part["y"][0] - 10).tolist()
    assert len(shard(np.arange(7), drop_remainder=False)) == 4 - rank()
    with refused(ValueError, "data is a list, which het_tf.workers.shard does not support"):
        shard([1, 2])
    assert array(shard(keras.ops.arange(4))).tolist() == [rank(), rank() + 2]
    with refused(ImportError, "needs TensorFlow"):
        het_tf.workers.shard_placed(np.arange(7), by="user", batch=2)
    with refused(ImportError, "het_tf.workers.until_shortest needs TensorFlow"):
        het_tf.workers.until_shortest  # noqa: B018
    if BACKEND == "torch":
        shards_of_torch()
    with refused(ValueError, "x is a generator of unknown length on rank 0"):
        ops.fits(None, lambda x=None, steps_per_epoch=None: None)(one for one in range(3))
    fit = ops.fits(None, lambda x=None, steps_per_epoch=None: 5)
    assert fit((one for one in range(3)), steps_per_epoch=2) == 5


def shards_of_torch():
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    ids, labels = (keras.ops.convert_to_tensor(one) for one in data())
    mine = shard(TensorDataset(ids, labels))
    assert len(mine) == ROWS // 2 and (mine[1][0] == ids[2 + rank()]).all()
    with refused(ValueError, "(of a DataLoader its `dataset`)"):
        shard(DataLoader(mine))

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(mine)

    model = compiled(distribute(model_of("shards")))
    model.fit(DataLoader(mine, batch_size=BATCH), verbose=0)
    with refused(ValueError, "x is a DataLoader of unknown length on rank 0"):
        model.fit(DataLoader(Stream(), batch_size=BATCH), verbose=0)


def differ():
    """Ranks whose models or steps differ are all told, before a weight has changed."""
    ids, labels = shard(data())
    model = compiled(distribute(model_of("steps")))
    with refused(RuntimeError, "the ranks have 12, 11 batches an epoch"):
        end = ROWS // 2 - BATCH * rank()
        model.fit(ids[:end], labels[:end], batch_size=BATCH, verbose=0)
    model = compiled(distribute(model_of("differ", width=4 + rank())))
    with refused(RuntimeError, "model 'm' differs between rank 0 and rank 1 in its "):
        model.fit(ids, labels, batch_size=BATCH, verbose=0)


def saved():
    """A checkpoint has the rows of both ranks, and rank 0 alone writes it."""
    model = distribute(compiled(model_of("saved", het_tf.Cache(rows=64, staleness=50))))
    saver = het_tf.callbacks.Checkpoint(str(ranks.place() / "checkpoints"))
    model.fit(*shard(data()), batch_size=BATCH, verbose=0, callbacks=[saver])
    stored = partial(het_tf.Table("saved").lookup, np.arange(IDS), stored=True)
    collective.barrier()
    before = stored()
    collective.barrier()
    if rank() == 0:
        het_tf.Table("saved").clear()
    collective.barrier()
    het_tf.checkpoint.restore(ranks.place() / "checkpoints", model)
    np.testing.assert_array_equal(stored(), before)


def layers():
    """Layers that each rank has adapted to other data compute as those of rank 0 after the first step."""

    def of_ranks(layer, x):
        return collective.gather(array(keras.ops.cast(layer(x), "float32")).tolist(), "layers")

    for name in ("normalization", "own", "file", *["text"] * (BACKEND == "tensorflow")):
        model, x, layer = layers_lib.build(name, rank() == 0)
        if rank() and name == "text":
            layer.adapt(np.array([["eel"]]))
        before = of_ranks(layer, x["x"])
        assert before[0] != before[1], name
        distribute(model).train_on_batch(x, layers_lib.LABELS)
        after = of_ranks(layer, x["x"])
        assert after[0] == after[1], name
        assert name == "own" or after[0] == before[0], name


def die(victim, how):
    """One rank ends in the middle of training."""
    model = distribute(compiled(model_of("dies")))

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and rank() == victim:
                if how == "error":
                    raise OSError(f"the disk of rank {victim} is full")
                os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)

    model.fit(*shard(data()), batch_size=BATCH, verbose=0, epochs=1000, callbacks=[End()])


# --- launches -----------------------------------------------------------------------------------------------

CASES = [fit, batches, metrics, loop, differ, layers, saved]
CASES += [nan, shards, accumulate] if BACKEND != "tensorflow" else []


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    yield from ranks.launched(tmp_path_factory.mktemp("ranks"), *CASES)


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_are_through(job, case):
    """Most assertions are in the case."""
    of_ranks = job.values(case.__name__)
    if case in (fit, accumulate):
        equals_the_union(case.__name__, of_ranks)


# --- ranks that end, or do not fit together ----------------------------------------------------------------

KILLED = ".* failed first: killed by SIGKILL"
ERROR, STOPPED = "OSError: the disk of rank 1 is full", r"rank 1 is stopped \(SIGSTOP\); the parameter server"
HOROVOD = (on_tensorflow, ranks.HOROVOD)
LONG = pytest.mark.long


LOSSES = [
    ("het_tf", 1, "kill", "rank 1 (has ended|is lost)", KILLED),
    pytest.param("het_tf", 1, "stop", "rank 1 is lost: nothing has come from it for 2 s; its process is",
                 ".* is stopped", marks=on_tensorflow),
    pytest.param("het_tf", 1, "error", "rank 1 has ended", f".* failed first: .*{ERROR}",
                 marks=[LONG] if BACKEND == "tensorflow" else []),
    pytest.param("horovod", 0, "kill", "", "Process 0 exit with status code 137", marks=HOROVOD),
    pytest.param("horovod", 1, "kill", "", "Process 1 exit with status code 137", marks=[LONG, *HOROVOD]),
    pytest.param("horovod", 1, "error", "", ERROR, marks=[LONG, *HOROVOD]),
    # Rank 0 kept the server for the stopped rank, which can send nothing, after its own step had failed.
    pytest.param("horovod", 1, "stop", "", STOPPED, marks=[LONG, *HOROVOD]),
]  # fmt: skip


@pytest.mark.parametrize(("launcher", "victim", "how", "others", "cause"), LOSSES)
def test_a_rank_that_is_lost_is_named_and_leaves_nothing(tmp_path, launcher, victim, how, others, cause):
    """A rank that is stopped ended a job of Horovod after 48 s, with an error that named no rank."""
    names = ("STALL_SHUTDOWN_TIME", "STALL_CHECK_TIME", "GLOO_TIMEOUT") if how == "stop" else ()
    more = {f"HOROVOD_{name}_SECONDS": "6" for name in names}
    if launcher == "het_tf":
        more, cause = {"options": ("--timeout", 2)}, f"het run: rank {victim} {cause}"
    job = ranks.Job(
        tmp_path, partial(die, victim=victim, how=how), launcher=launcher, TMPDIR=str(tmp_path), **more
    )
    assert job.end() != 0
    assert re.search(cause, job.out), job.out[-4000:]
    assert not others or re.search(rf"(Error|Exception)[\s\S]*{others}", job.out), job.out[-4000:]
    assert f"rank {1 - victim} is done" not in job.out and "runs the parameter server of this job" in job.out
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is" not in job.out
    for _ in range(100 if launcher == "horovod" else 1):  # the server's keeper looks every now and then
        if not (left := [*ranks.servers_below(tmp_path), *tmp_path.glob("het_ps_*")]):
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {left}")


def by_variables(server, place, *functions, backends=(BACKEND, BACKEND)):
    """Two processes with the variables of torchrun; returns their statuses and outputs."""
    launched = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "HET_RUN_ID": "variables"}
    pythons = {"tensorflow": os.environ.get("HET_TEST_TENSORFLOW", sys.executable)}
    processes = [
        subprocess.Popen(
            [pythons.get(backend, sys.executable), ranks.__file__, place, ranks.calls(*functions)],
            env=ranks.environment(**launched, RANK=str(rank), HET_PS=server, KERAS_BACKEND=backend),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, backend in enumerate(backends)
    ]  # fmt: skip
    outs = [one.communicate(timeout=300)[0] for one in processes]
    return [one.returncode for one in processes], outs


@on_jax  # test_modules_under_ddp_equal_one_process has torchrun itself
def test_the_variables_of_torchrun_start_ranks(server, tmp_path):
    statuses, outs = by_variables(server, tmp_path, batches)
    assert statuses == [0, 0], outs


@on_torch  # of all backends: once
def test_another_backend_on_one_rank_is_named_on_both(server, tmp_path):
    other = "tensorflow" if "HET_TEST_TENSORFLOW" in os.environ else "jax"
    statuses, outs = by_variables(server, tmp_path, batches, backends=("torch", other))
    assert 0 not in statuses
    for out in outs:
        assert f"Keras' backend is 'torch' on rank 0 and '{other}' on rank 1; set KERAS_BACKEND" in out, out


def embedding():
    het_tf.keras.Embedding(2, name="t")


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
HOROVODRUN = {
    "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "localhost", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1",
}  # fmt: skip


BAD_LAUNCHES = [
    (TORCHRUN, het_tf.init, ValueError, "torchrun runs 2 ranks, which share tables, and no para"),
    (TORCHRUN, partial(het_tf.init, ps=""), ValueError, 'ps is "", the store inside each process, but '),
    (TORCHRUN, embedding, RuntimeError, r"torchrun runs 2 ranks, but het_tf was not told"),
    (HOROVODRUN, partial(het_tf.init, ps="unix:///nowhere"), NotImplementedError,
     f"Keras' backend is '{BACKEND}', and het_tf uses Horovod on"),
]  # fmt: skip


@elsewhere
@pytest.mark.parametrize(("variables", "call", "error", "words"), BAD_LAUNCHES)
def test_ranks_that_cannot_train_together_are_refused(monkeypatch, variables, call, error, words):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HET_PS", raising=False)
    with pytest.raises(error, match=words):
        call()


@on_jax
def test_a_distribution_over_several_processes_is_refused(monkeypatch):
    import jax

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(keras.distribution, "distribution", object)
    with pytest.raises(NotImplementedError, match=r"'t' is used under keras\.distribution over 2 processes"):
        embedding()


@elsewhere
def test_a_group_of_another_size_than_the_launcher_says_is_refused(monkeypatch):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ops, "group", lambda: (f"{BACKEND}.distributed", 0, 3))
    with pytest.raises(ValueError, match=r"distributed says rank 0 of 3, and torchrun says rank 0 of 2"):
        het_tf.init(ps="unix:///nowhere")


@on_torch
def test_a_group_without_a_launcher_says_the_ranks(monkeypatch):
    """As torch.multiprocessing.spawn makes it; the group gives them a word for their run."""
    import torch

    from het_tf.ext.workers.python import find

    monkeypatch.setattr(ops, "group", lambda: ("torch.distributed", 1, 2))
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "gloo")
    monkeypatch.setattr(torch.distributed, "broadcast", lambda word, _: word.copy_(torch.arange(8)))
    said = "torch.distributed: rank 1 of 2, 0 of 1 on its node, run 0001020304050607"
    assert str(find._of_group(None)) == said
    with pytest.raises(RuntimeError, match=r"torch\.distributed runs 2 ranks, but het_tf was not told"):
        embedding()
    with pytest.raises(ValueError, match=r"torch\.distributed runs 2 ranks, which share tables, and no par"):
        het_tf.init()
