"""het_tf.workers with ranks that are played: init, what is reduced, what is refused."""

import contextlib
import itertools
import os
import sys
import types
from unittest import mock

import numpy as np
import pytest
import rules_lib
import tensorflow as tf
from played_lib import Played
from rules_lib import data, keras

import het_tf
from het_tf.ext.ps.python import job_server
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.workers.python import find
from het_tf.ext.workers.python.horovod_workers import Horovod
from het_tf.python.session import settings

# --- init --------------------------------------------------------------------------------------------------


class Hvd(types.ModuleType):
    """Horovod's module, which a program has initialised with two ranks; this process is the first."""

    ranks, initialized = 2, True

    def is_initialized(self):
        return self.initialized

    def init(self):
        self.initialized = True

    def size(self):
        return self.ranks

    def rank(self):
        return 0


@pytest.fixture
def hvd(fresh, monkeypatch):
    hvd = Hvd("horovod.tensorflow")
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", hvd)
    return hvd


@pytest.fixture
def two(hvd, monkeypatch):
    """What het_tf.init connects."""
    two = Played()
    monkeypatch.setattr(find, "_connected", {})
    monkeypatch.setattr(find, "_connect", lambda *_: two)
    return two


def launched(monkeypatch, ranks):
    """The variables of horovodrun's first rank."""
    for name, value in (("HOROVOD_RANK", 0), ("HOROVOD_SIZE", ranks), ("HET_RUN_ID", "run")):
        monkeypatch.setenv(name, str(value))


def test_init_finds_horovod(fresh, hvd, monkeypatch):
    hvd.ranks, hvd.initialized = 1, False
    het_tf.init()
    assert settings.workers().size == 1 and het_tf.workers.rank() == 0, "nothing has started ranks"
    launched(monkeypatch, 2)
    with pytest.raises(RuntimeError, match="one of 2 ranks, but Horovod has found 1"):
        het_tf.init()
    hvd.initialized = False
    launched(monkeypatch, 1)
    het_tf.init()
    assert not hvd.initialized, "one rank needs no Horovod"
    hvd.initialized = True
    het_tf.init()
    het_tf.keras.Embedding(2, name="t")
    assert het_tf.Table("t").stats()["mode"] == "direct", "one rank needs no server"
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)  # not installed
    launched(monkeypatch, 2)
    with pytest.raises(RuntimeError, match=r"Horovod does not import .*het_tf doctor.*`het run` needs no"):
        het_tf.init()
    for name in ("RANK", "SIZE"):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", os.environ[f"HOROVOD_{name}"])
        monkeypatch.delenv(f"HOROVOD_{name}")
    with pytest.raises(ValueError, match=r"mpirun runs 2 ranks, .* no parameter server is given; .*HET_PS"):
        het_tf.init()  # they are connected without it


def test_an_elastic_job_is_refused(fresh, hvd, monkeypatch):
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    before = vars(settings.current).copy()
    refusal = "HOROVOD_ELASTIC is '1'.*elastic job.*`het run --nnodes MIN:MAX --max-restarts N`"
    with pytest.raises(NotImplementedError, match=refusal):
        het_tf.init(gradient_scale="sum")
    assert vars(settings.current) == before
    with pytest.raises(NotImplementedError, match=refusal):
        het_tf.keras.Embedding(2, name="t")


def test_several_ranks_never_train_tables_apart(fresh, hvd, monkeypatch):
    with pytest.raises(ValueError, match="every rank would train its own tables"):
        het_tf.init(ps="")
    launched(monkeypatch, 2)
    calls = (
        lambda: het_tf.keras.Embedding(2, name="t"),
        lambda: het_tf.workers.distribute(keras.Sequential()),
        lambda: het_tf.workers.shard(np.arange(4)),
        het_tf.workers.rank,
    )
    for initialized, call in itertools.product((True, False), calls):
        hvd.initialized = initialized
        with pytest.raises(RuntimeError, match=r"2 ranks, .* call het_tf\.init\(\)"):
            call()
    launched(monkeypatch, 1)
    for call in calls:
        call()


DIFFERENT = [
    ({"address": "redis://:secret@other:7000"}, {}, ValueError,
     r"address differs between the ranks: rank 0: '', rank 1: 'redis://\.\.\.@other:7000'.*HET_PS"),
    ({"namespace": "b"}, {"ps": "redis://localhost:1", "namespace": "a"}, ValueError,
     "namespace differs between the ranks: rank 0: 'a', rank 1: 'b'"),
    ({"deadline": 5.0}, {"ps": het_tf.Store("redis://localhost:1", keep_bytes=100)}, ValueError,
     r"deadline differs between the ranks: rank 0: '60\.0', rank 1: '5\.0'"),
    ({}, {"ps": "rediss://localhost:1?ca=/of/this/machine"}, OSError, "ca=/of/this/machine .*No such"),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "given", "error", "words"), DIFFERENT)
def test_ranks_must_agree(two, theirs, given, error, words):
    compared = []
    two.others = lambda mine: [compared.append(mine["address"]) or {**mine, **theirs}]
    with pytest.raises(error, match=words):
        het_tf.init(**given)
    assert "ca=" not in compared[0], "a file of this machine is no part of what ranks compare"
    assert settings.workers().size == 1


def test_an_address_of_each_machine_is_warned_of(two):
    two.others = lambda mine: [{**mine, "machine": ("far", "away")}]
    with pytest.warns(RuntimeWarning, match="names a different machine on each of 2 machines"):
        with pytest.raises(ConnectionError):
            het_tf.init(ps="redis://localhost:1")


@pytest.mark.parametrize("me", [0, 1])
def test_a_missing_server_program_is_said_on_every_rank(two, monkeypatch, me):
    def start(**_):
        raise ServerError("no server is on PATH; run: apt-get install redis-server")

    two.me = me
    monkeypatch.setattr(job_server.LocalServer, "start", start)
    if me:  # rank 0 tells
        monkeypatch.setattr(two, "broadcast", lambda *_, **__: ("", "run: apt-get install redis-server"))
    with pytest.raises(RuntimeError, match=r"rank 0 could not start one: .*apt-get install redis-server"):
        het_tf.init()


def test_ranks_of_several_machines_need_an_address():
    job_server.refuse_other_machines([("near", "a"), ("near", "a")])
    with pytest.raises(RuntimeError, match=r"2 machines \(near, far\).*het ps up"):
        job_server.refuse_other_machines([("near", "a"), ("far", "b"), ("near", "a")])


WAITS = [
    (False, True, 29, 60, "at most 31 s more"),
    (False, False, 0, 60, "at most 55 s more"),
    (True, False, 29, 29, "rank 1 has not ended after 29 s"),
    (True, False, 0, 10, "rank 1 has not ended after 10 s"),
    (True, True, 0, 0, "rank 1 is stopped (SIGSTOP)"),
]


@pytest.mark.parametrize(("failed", "stopped", "leaving", "ends", "told"), WAITS)
def test_wait_for_rank_ends_at_time_limit(monkeypatch, capsys, failed, stopped, leaving, ends, told):
    """A failed rank 0 that waits for a stopped process only holds the job up."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    # The server of the job, and a connection to it: rank 1 does not go.
    server = mock.Mock(address="unix:///s", **{"ask.return_value": "id=3 name=het_rank_1_77 age=1"})
    clock = Clock()
    monkeypatch.setattr(job_server, "time", clock)
    monkeypatch.setattr(job_server, "_server", server)
    monkeypatch.setattr(job_server, "_stopped", lambda process: stopped and process == 77)
    monkeypatch.setattr(job_server, "_leave", lambda: clock.sleep(leaving))
    monkeypatch.setattr(job_server.Node, "of", lambda address: contextlib.nullcontext(server))
    monkeypatch.setattr(sys, "last_value", RuntimeError() if failed else None, raising=False)
    job_server._end_of_job()
    assert ends <= clock.now < ends + 1
    assert told in capsys.readouterr().err


# --- distribute --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", rules_lib.MODES)
@pytest.mark.parametrize("late", [False, True])
def test_distribute_reduces_every_gradient_once(played, mode, late):
    model = rules_lib.make_model("adam", mode=mode)
    if not late:
        optimizer, model.optimizer = model.optimizer, None
        assert het_tf.workers.distribute(het_tf.workers.distribute(model)) is model
        model.optimizer = optimizer
    else:
        played.ranks = 1
        model.fit(*data(), verbose=0, batch_size=32)  # traced once without
        played.ranks = 2
        het_tf.workers.distribute(het_tf.workers.distribute(model))
    model.fit(*data(), verbose=0, batch_size=32)
    assert model.train_on_batch(*data()) is not None
    numbers = [name.rpartition(".")[2] for name in played.reduced if "gradient" in name]
    steps = 2 if mode == "eager" else len(numbers) // 3  # as often as Keras traces
    assert steps and numbers == ["0", "1", "2"] * steps  # anchor, kernel, bias
    assert "apply" not in vars(model.optimizer) and "apply_gradients" not in vars(model.optimizer)


@pytest.mark.parametrize(("scale", "want"), [("mean", -0.25), ("sum", -1.0)])
def test_gradients_are_scaled_by_the_number_of_workers(fresh, monkeypatch, scale, want):
    het_tf.init(gradient_scale=scale)
    monkeypatch.setattr(settings.current, "workers", Played(ranks=4))  # past init, which wants real ones
    layer = rules_lib.embedding(het_tf.optimizers.SGD(1.0), initializer="zeros")
    rules_lib.learn(layer, lambda: layer(tf.constant([1])), reduce=True)
    np.testing.assert_allclose(het_tf.Table("t").lookup([1]), [[want] * 4])


def test_distribute_refuses(fresh, monkeypatch):
    model = rules_lib.make_model()
    fit = model.fit
    assert het_tf.workers.distribute(model) is model and model.fit == fit, "one worker"
    monkeypatch.setattr(settings.current, "workers", Played())
    with pytest.raises(TypeError, match="give a Keras model"):
        het_tf.workers.distribute("model")
    model.optimizer._allreduce_grads = lambda grads: grads  # as hvd.DistributedOptimizer has it
    with pytest.raises(RuntimeError, match="Compile with the Keras optimizer itself"):
        het_tf.workers.distribute(model)


def test_a_fit_that_nothing_reduces_is_refused(played):
    model = rules_lib.make_model()
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"distribute\(model\) before fit"):
        model.fit(*data(), verbose=0)
    model.evaluate(*data(), verbose=0)
    model.predict(data()[0], verbose=0)


def test_a_mean_of_the_ranks_tickets_is_refused(played):
    """As Horovod's own tape takes it. Would catch: rows trained by a mean of two ranks' norms."""
    layer = rules_lib.embedding()
    tickets = []
    for rank in range(2):
        played.me = rank
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(np.array([1])))
        (ticket,) = het_tf.workers.reduce_gradients([tape.gradient(loss, layer.anchor)], [layer.anchor])
        tickets.append(tf.roll(ticket, -rank, 0))  # each rank's is its first
    with pytest.raises(tf.errors.InvalidArgumentError, match="averaged over workers"):
        het_tf.apply([((tickets[0] + tickets[1]) / 2, layer.anchor)])
    assert het_tf.Table("t").updates == 0


def test_train_step_bypassing_optimizer_is_refused(played):
    class Own(keras.Sequential):
        def train_step(self, batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(batch[0]) - batch[1]) ** 2)
            weights = self.trainable_weights
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(0.1 * gradient)
            return {"loss": loss}

    model = Own([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    het_tf.workers.distribute(model)
    x = np.ones((4, 3), np.float32)
    with pytest.raises(RuntimeError, match="reduce_gradients"):
        model.fit(x, x[:, :1], verbose=0)


def test_reduce_gradients_keeps_the_nest(played):
    nest = [tf.constant([1.0, 2.0]), None, {"a": tf.constant(3.0)}]
    variables = [tf.Variable([0.0, 0.0]), tf.Variable(0.0), {"a": tf.Variable(0.0)}]
    reduced = het_tf.workers.reduce_gradients(nest, variables)
    assert reduced[1] is None and float(reduced[2]["a"]) == 3.0
    assert len(played.reduced) == 2
    played.ranks = 1
    assert het_tf.workers.reduce_gradients(nest, variables) is nest


def test_means_of_a_graph_have_names_that_restart_in_each_graph():
    """Would catch ranks that wait for each other, because one has traced a step more often."""
    names = []
    workers = object.__new__(Horovod)
    workers.hvd = types.SimpleNamespace(
        allreduce=lambda tensor, name, **_: names.append(name) or tensor, Average="average"
    )
    for _ in range(2):
        with tf.Graph().as_default():
            for label in ("x", "y", "x"):
                workers.mean([tf.constant(1.0)], label)
    assert names == ["x.1.0", "y.1.0", "x.2.0"] * 2


def test_an_update_waits_for_all_ranks_at_staleness_0_alone(played):
    for staleness, waits in ((0, 1), (1, 0), (None, 0)):
        layer = rules_lib.embedding(name=f"s{staleness}", cache=het_tf.Cache(staleness=staleness, rows=10))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(np.array([1, 2, 2])))
        variables = layer.trainable_variables
        gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, variables), variables)
        before = len(played.reduced)
        het_tf.apply(zip(gradients, variables, strict=True))
        assert [name.startswith("het_tf.updated") for name in played.reduced[before:]] == [True] * waits
