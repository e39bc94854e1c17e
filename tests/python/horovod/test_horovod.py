"""het_tf.horovod with a Horovod that is played: what is reduced, what is refused, callbacks, data."""

from __future__ import annotations

import types

import numpy as np
import pytest
import rules_lib
import tensorflow as tf

import het_tf
from het_tf.python.horovod import checks, collective, server
from het_tf.python.ps.errors import ServerError
from het_tf.python.session import native, runtime

keras = tf.keras
pytestmark = pytest.mark.tf215


class Played(types.ModuleType):
    """Horovod of `ranks` ranks, this process being `me`; the others do as it does, unless told to differ.

    Attributes:
      reduced: Names of all tensors that were all-reduced, when traced.
      others: Called with what this rank gathers; returns what the other ranks gather.
      extra: What the other ranks add to a sum, by a part of the name.
    """

    Average, Sum = "average", "sum"

    def __init__(self, ranks=2, me=0):
        super().__init__("horovod.tensorflow")
        self.ranks, self.me = ranks, me
        self.initialized = True
        self.reduced: list[str] = []
        self.gathered: list[str] = []
        self.others = lambda value: [value] * (ranks - 1)
        self.extra: dict[str, np.ndarray] = {}

    def is_initialized(self):
        return self.initialized

    def size(self):
        return self.ranks

    def rank(self):
        return self.me

    def allreduce(self, tensor, op, name, ignore_name_scope=False):
        self.reduced.append(name)
        for part, value in self.extra.items():
            if part in name:
                return tensor + value
        return tensor * (1 if op == self.Average else self.ranks)

    def allgather_object(self, value, name):
        self.gathered.append(name)
        found = list(self.others(value))
        found.insert(self.me, value)
        return found

    def broadcast(self, tensor, root_rank, name):
        return tensor if self.me == root_rank else tf.zeros_like(tensor)

    def broadcast_object(self, value, root_rank, name):
        return value


@pytest.fixture
def played(fresh, monkeypatch):
    """A played Horovod that het_tf believes to be initialised with, tables in this process."""
    hvd = Played()
    monkeypatch.setattr(runtime._settings, "hvd", hvd)
    yield hvd
    monkeypatch.setattr(runtime._settings, "hvd", None)


def data(rows=32):
    ids, y = rules_lib.data(rows)
    return ids, y


# --- init --------------------------------------------------------------------------------------------------


def test_init_refuses_what_is_no_horovod(fresh):
    with pytest.raises(TypeError, match=r"import horovod\.tensorflow as hvd"):
        het_tf.init(hvd=np)
    hvd = Played()
    hvd.initialized = False
    with pytest.raises(RuntimeError, match=r"hvd\.init\(\) before"):
        het_tf.init(hvd=hvd)
    assert runtime.horovod() is None
    het_tf.init(hvd=Played(ranks=1))
    het_tf.keras.Embedding(2, name="t")
    assert het_tf.table("t").stats()["mode"] == "direct", "one rank needs no server"


def test_several_ranks_never_train_tables_apart(fresh, monkeypatch):
    hvd = Played()
    with pytest.raises(ValueError, match="every rank would train tables of its own"):
        het_tf.init(hvd=hvd, ps="")
    monkeypatch.setitem(__import__("sys").modules, "horovod.tensorflow", hvd)
    for call in (
        het_tf.init,
        lambda: het_tf.init(ps="unix:///x"),
        lambda: het_tf.keras.Embedding(2, name="t"),
    ):
        with pytest.raises(RuntimeError, match=r"2 ranks, .* het_tf\.init\(hvd=hvd\)"):
            call()
    hvd.initialized = False
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"2 ranks, .* hvd\.init\(\); het_tf\.init\(hvd=hvd\)"):
        het_tf.keras.Embedding(2, name="t")
    monkeypatch.setenv("HOROVOD_SIZE", "1")
    het_tf.keras.Embedding(2, name="t")


def test_ranks_must_agree(fresh):
    hvd = Played()
    hvd.others = lambda mine: [{**mine, "address": "redis://:secret@other:7000"}]
    with pytest.raises(
        ValueError, match=r"values of address: rank 0: '', rank 1: 'redis://\.\.\.@other:7000'.*HET_PS"
    ):
        het_tf.init(hvd=hvd)
    hvd.others = lambda mine: [{**mine, "namespace": "b"}]
    with pytest.raises(ValueError, match="values of namespace: rank 0: 'a', rank 1: 'b'"):
        het_tf.init(hvd=hvd, ps="redis://localhost:1", namespace="a")
    hvd.others = lambda mine: [{**mine, "machine": ("far", "away")}]
    with pytest.raises(RuntimeError, match=r"2 machines \(.*, far\).*het-ps up"):
        het_tf.init(hvd=hvd)
    with pytest.warns(RuntimeWarning, match="on each of 2 machines, that machine itself"):
        with pytest.raises(ConnectionError):
            het_tf.init(hvd=hvd, ps="redis://localhost:1")
    assert runtime.horovod() is None


@pytest.mark.parametrize("me", [0, 1])
def test_a_missing_server_program_is_said_on_every_rank(fresh, monkeypatch, me):
    def start(**_):
        raise ServerError(
            "neither redis-server nor valkey-server is on PATH; run: apt-get install redis-server"
        )

    hvd = Played(me=me)
    monkeypatch.setattr(server.LocalServer, "start", start)
    if me:  # rank 0 tells
        monkeypatch.setattr(
            hvd, "broadcast_object", lambda *_, **__: ("", "run: apt-get install redis-server")
        )
    with pytest.raises(RuntimeError, match=r"rank 0 could not start one: .*apt-get install redis-server"):
        het_tf.init(hvd=hvd)


# --- distribute --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", rules_lib.MODES)
@pytest.mark.parametrize("late", [False, True])
def test_distribute_reduces_every_gradient_once(played, mode, late):
    model = rules_lib.make_model("adam", mode=mode)
    if not late:
        optimizer, model.optimizer = model.optimizer, None
        assert het_tf.horovod.distribute(het_tf.horovod.distribute(model)) is model
        model.optimizer = optimizer
    else:
        played.ranks = 1
        model.fit(*data(), verbose=0, batch_size=32)  # traced once without
        played.ranks = 2
        het_tf.horovod.distribute(het_tf.horovod.distribute(model))
    model.fit(*data(), verbose=0, batch_size=32)
    assert model.train_on_batch(*data()) is not None
    numbers = [name.rpartition(".")[2] for name in played.reduced if "gradient" in name]
    steps = 2 if mode == "eager" else len(numbers) // 3  # as often as Keras traces
    assert steps and numbers == ["0", "1", "2"] * steps  # anchor, kernel, bias
    assert "apply" not in vars(model.optimizer) and "apply_gradients" not in vars(model.optimizer)


def test_dense_weights_see_the_average_and_rows_their_share(played):
    """The other rank does the same: the average is the gradient itself, and each rank gives rows a half."""
    found = []
    for ranks in (0, 1, 2):
        played.ranks = max(ranks, 1)
        keras.utils.set_random_seed(3)
        with het_tf.namespace(f"ranks{ranks}"):
            model = het_tf.horovod.distribute(rules_lib.make_model("sgd", het_tf.optimizers.SGD(0.1)))
            if ranks:
                model.fit(*data(), verbose=0, batch_size=32)
            found.append((model.layers[-1].get_weights(), rules_lib.rows()))
    (_, initial), (one, rows_of_one), (two, rows_of_two) = found
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(rows_of_one - initial, 2 * (rows_of_two - initial), rtol=1e-3, atol=1e-6)
    assert np.abs(rows_of_one - initial).max() > 1e-4


def test_distribute_refuses(fresh, monkeypatch):
    model = rules_lib.make_model()
    with pytest.raises(RuntimeError, match=r"hvd\.init\(\); het_tf\.init\(hvd=hvd\)"):
        het_tf.horovod.distribute(model)
    hvd = Played()
    monkeypatch.setattr(runtime._settings, "hvd", hvd)
    with pytest.raises(TypeError, match="give a Keras model"):
        het_tf.horovod.distribute("model")
    model.optimizer._allreduce_grads = lambda grads: grads  # as hvd.DistributedOptimizer has it
    if checks.KERAS_3:
        with pytest.raises(RuntimeError, match="Compile with the Keras optimizer itself"):
            het_tf.horovod.distribute(model)
    monkeypatch.setattr(runtime._settings, "hvd", None)


def test_a_fit_that_nothing_reduces_is_refused(played):
    model = rules_lib.make_model()
    with pytest.raises(RuntimeError, match=r"distribute\(model\) before fit"):
        model.fit(*data(), verbose=0)
    with pytest.raises(RuntimeError, match=r"distribute\(model\) before fit"):
        model.fit(*data(), verbose=0, callbacks=[het_tf.callbacks.Broadcast()])
    model.evaluate(*data(), verbose=0)
    model.predict(data()[0], verbose=0)
    with tf.GradientTape() as tape:  # a custom loop reduces by itself
        loss = tf.reduce_sum(model(data()[0], training=True))
    tape.gradient(loss, model.trainable_variables)


def test_a_train_step_that_goes_past_the_optimizers_is_refused(played):
    class Own(keras.Sequential):
        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x) - y) ** 2)
            for weight, gradient in zip(
                self.trainable_weights, tape.gradient(loss, self.trainable_weights), strict=True
            ):
                weight.assign_sub(0.1 * gradient)
            return {"loss": loss}

    model = Own([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    het_tf.horovod.distribute(model)
    x = np.ones((4, 3), np.float32)
    with pytest.raises(RuntimeError, match="reduce_gradients"):
        model.fit(x, x[:, :1], verbose=0)


def test_ranks_that_differ_are_named(played):
    model = het_tf.horovod.distribute(rules_lib.make_model())
    played.others = lambda mine: [{**mine, "tables": []}] if isinstance(mine, dict) else [mine]
    for _ in range(2):  # it is compared again, and refused again
        with pytest.raises(RuntimeError, match="between rank 0 and rank 1 in its tables"):
            model.fit(*data(), verbose=0)
    if checks.KERAS_3:
        model = het_tf.horovod.distribute(rules_lib.make_model())
        played.others = lambda mine: [{**mine, "initial weights": "x"}] if isinstance(mine, dict) else [mine]
        with pytest.raises(RuntimeError, match=r"initial weights .* rank 1; give fit .*Broadcast\(\)"):
            model.fit(*data(), verbose=0)
    played.others = lambda mine: [7]
    with pytest.raises(RuntimeError, match="1, 7 batches an epoch"):
        model.fit(*data(), verbose=0, batch_size=32, callbacks=[het_tf.callbacks.Broadcast()])


def test_reduce_gradients_keeps_the_nest(played):
    nest = [tf.constant([1.0, 2.0]), None, {"a": tf.constant(3.0)}]
    reduced = het_tf.horovod.reduce_gradients(nest)
    assert reduced[1] is None and float(reduced[2]["a"]) == 3.0
    assert len(played.reduced) == 2
    played.ranks = 1
    assert het_tf.horovod.reduce_gradients(nest) is nest


def test_the_gate_is_there_for_staleness_0_alone(played):
    for staleness, gates in ((0, 1), (1, 0), (None, 0)):
        layer = rules_lib.embedding(name=f"s{staleness}", cache=het_tf.Cache(staleness=staleness, rows=10))
        before = len(played.reduced)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(np.array([1, 2, 2])))
        tape.gradient(loss, layer.trainable_variables)
        names = played.reduced[before:]
        assert [name.startswith("het_tf.gate") for name in names] == [True] * gates


# --- callbacks ---------------------------------------------------------------------------------------------


def test_callbacks_want_horovod(fresh):
    model = rules_lib.make_model()
    for callback in (
        het_tf.callbacks.Broadcast(),
        het_tf.callbacks.MetricAverage(),
        het_tf.callbacks.LearningRateScaling(),
    ):
        with pytest.raises(RuntimeError, match=r"needs Horovod; .*het_tf\.init\(hvd=hvd\)"):
            model.fit(*data(), verbose=0, callbacks=[callback])


def test_broadcast_takes_weights_and_optimizer_of_rank_0(played):
    model = het_tf.horovod.distribute(rules_lib.make_model("adam"))
    model.fit(*data(), verbose=0)
    played.me = 1  # the played rank 0 has zeros everywhere
    het_tf.horovod.broadcast(model)
    variables = model.optimizer.variables
    for variable in [*model.weights, *(variables() if callable(variables) else variables)]:
        assert not np.any(tf.convert_to_tensor(variable).numpy()), variable
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(RuntimeError, match="no weights yet"):
        het_tf.horovod.broadcast(unbuilt)
    # With another number of weights the ranks would wait for each other.
    played.others = lambda mine: [{"weights and optimizer": mine["weights and optimizer"][1:]}]
    with pytest.raises(RuntimeError, match="between rank 0 and rank 1 in its weights and optimizer"):
        het_tf.horovod.broadcast(model)


def test_metrics_are_summed_and_left_as_they_are(played):
    model = rules_lib.make_model(loss="mse", metrics=[keras.metrics.MeanAbsoluteError(name="mae")])
    ids, y = data()
    model.evaluate(ids, y, verbose=0)
    before = [tf.convert_to_tensor(v).numpy() for metric in model.metrics for v in metric.variables]
    local = {name: float(value) for name, value in model.get_metrics_result().items()}
    # The other rank has seen 96 rows of error 10 where this one has seen 32 of its own.
    played.extra["metrics"] = np.array([0.0] + [960.0, 96.0] * (len(before) // 2))
    found = het_tf.horovod.global_metrics(model)
    assert set(found) == {"loss", "mae"}
    for name, value in found.items():
        assert value == pytest.approx((local[name] * 32 + 960) / 128, rel=1e-5)
    for a, b in zip(
        before,
        [tf.convert_to_tensor(v).numpy() for metric in model.metrics for v in metric.variables],
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_metric_average_puts_global_values_into_the_logs(played):
    model = het_tf.horovod.distribute(rules_lib.make_model(loss="mse"))
    seen = []

    class After(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            played.extra["metrics"] = np.array([0.0, 960.0, 96.0])

        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    class Before(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))
            logs["own"] = 4.0
            played.extra["log_values"] = np.array([0.0, 2.0])

    ids, y = data()
    model.fit(
        ids, y, verbose=0, batch_size=32, validation_data=(ids, y),
        callbacks=[Before(), het_tf.callbacks.MetricAverage(), After()],
    )  # fmt: skip
    own, shared = seen
    assert shared["own"] == 3.0
    for name in ("loss", "val_loss"):
        assert shared[name] == pytest.approx((own[name] * 32 + 960) / 128, rel=1e-5)


def test_the_learning_rate_grows_with_the_ranks_once(played):
    model = het_tf.horovod.distribute(rules_lib.make_model(keras.optimizers.SGD(0.1)))
    rates = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(round(float(np.asarray(self.model.optimizer.learning_rate)), 5))

    callbacks = [het_tf.callbacks.LearningRateScaling(warmup_epochs=2), Look()]
    model.fit(*data(), verbose=0, batch_size=16, epochs=3, callbacks=callbacks)
    assert rates == [0.1, 0.125, 0.15, 0.175, 0.2, 0.2]
    model.fit(*data(), verbose=0, batch_size=32, callbacks=[het_tf.callbacks.LearningRateScaling(), Look()])
    assert rates[-1] == 0.2, "a second fit does not scale again"
    for arguments in ({"warmup_epochs": -1}, {"factor": 0}):
        with pytest.raises(ValueError, match="give a number"):
            het_tf.callbacks.LearningRateScaling(**arguments)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model = het_tf.horovod.distribute(rules_lib.make_model(keras.optimizers.SGD(schedule)))
    with pytest.raises(ValueError, match=r"hvd\.size\(\) where it is made"):
        model.fit(*data(), verbose=0, callbacks=[het_tf.callbacks.LearningRateScaling()])


@pytest.mark.filterwarnings("error::het_tf.TablesNotSavedWarning")
def test_rank_0_writes_while_all_others_wait(played, tmp_path):
    model = het_tf.horovod.distribute(rules_lib.make_model())
    for me in (1, 0):
        played.me = me
        path = tmp_path / f"{me}.weights.h5"
        played.gathered.clear()
        log = het_tf.horovod.on_rank_zero(keras.callbacks.CSVLogger(str(tmp_path / f"{me}.csv")))
        checkpoint = het_tf.callbacks.Checkpoint(str(path), save_weights_only=True)
        model.fit(*data(), verbose=0, callbacks=[checkpoint, log])
        assert path.exists() == (me == 0) == (tmp_path / f"{me}.csv").exists()
        assert played.gathered[-2:] == ["het_tf.flush", "het_tf.checkpoint"], (
            "every rank takes part, and waits"
        )


def test_a_checkpoint_that_rank_0_cannot_write_is_known_to_all(played, monkeypatch, tmp_path):
    checkpoint = het_tf.callbacks.Checkpoint(str(tmp_path / "x.weights.h5"), save_weights_only=True)
    model = rules_lib.make_model()
    monkeypatch.setattr(
        model, "save_weights", lambda *_, **__: (_ for _ in ()).throw(OSError("disk is full"))
    )
    checkpoint.set_model(model)
    with pytest.raises(OSError, match="disk is full"):
        checkpoint.on_epoch_end(0, {})
    assert played.gathered[-1] == "het_tf.checkpoint", "the others are not left to wait"
    played.me = 1
    monkeypatch.setattr(played, "others", lambda mine: ["disk is full"])
    monkeypatch.setattr("het_tf.python.horovod.callbacks.flush_all", lambda: None)
    with pytest.raises(RuntimeError, match="rank 0 could not write the checkpoint: disk is full"):
        checkpoint.on_epoch_end(0, {})


def test_a_rank_that_cannot_send_is_known_to_all(played, monkeypatch):
    layer = het_tf.keras.Embedding(2, name="t")
    with monkeypatch.context() as patched:
        patched.setattr(played, "others", lambda mine: ["the server is away"])
        with pytest.raises(ConnectionError, match=r"rank 1 could not send .*: the server is away"):
            het_tf.horovod.flush_all()

    def fail(*_):
        raise TimeoutError("no answer")

    played.gathered.clear()
    with monkeypatch.context() as patched:
        patched.setattr(native, "call", fail)
        with pytest.raises(TimeoutError, match="no answer"):
            het_tf.horovod.flush_all()
    assert played.gathered == ["het_tf.flush"], "the others are not left to wait"
    del layer


def test_cache_stats_of_all_ranks(played):
    model = het_tf.horovod.distribute(rules_lib.make_model())
    mine, of_all = het_tf.callbacks.CacheStats(), het_tf.callbacks.CacheStats(all_ranks=True)
    model.fit(*data(), verbose=0, batch_size=8, callbacks=[mine, of_all])
    assert of_all.epochs[0]["t"]["applies"] == 2 * mine.epochs[0]["t"]["applies"] == 8
    assert of_all.epochs[0]["t"]["rows"] == mine.epochs[0]["t"]["rows"], "a table is counted once"


# --- data --------------------------------------------------------------------------------------------------


def parts(played, make, ranks=3, **options):
    played.ranks = ranks
    found = []
    for me in range(ranks):
        played.me = me
        found.append(het_tf.horovod.shard(make(), **options))
    return found


def test_shards_are_equal_and_apart(played):
    numbers = np.arange(11)
    for unknown in (False, True):

        def make(unknown=unknown):
            dataset = tf.data.Dataset.from_tensor_slices({"a": numbers, "b": (numbers * 2,)})
            return dataset.filter(lambda x: True) if unknown else dataset

        found = [[int(x["a"]) for x in one] for one in parts(played, make)]
        assert found == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    pairs = parts(played, lambda: tf.data.Dataset.zip((tf.data.Dataset.range(5), tf.data.Dataset.range(5)))
                  .filter(lambda a, b: True), ranks=2)  # fmt: skip
    assert [[(int(a), int(b)) for a, b in one] for one in pairs] == [[(0, 0), (2, 2)], [(1, 1), (3, 3)]]
    rest = parts(played, lambda: tf.data.Dataset.range(11), drop_remainder=False)
    assert [len(list(one)) for one in rest] == [4, 4, 3]
    endless = parts(played, lambda: tf.data.Dataset.range(5).repeat(), ranks=2)
    assert [int(x) for x in endless[1].take(4)] == [1, 3, 0, 2]

    arrays = parts(played, lambda: (numbers, {"x": numbers * 10}))
    assert [list(one[0]) for one in arrays] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert list(arrays[1][1]["x"]) == [10, 40, 70]
    assert [len(one) for one in parts(played, lambda: numbers, drop_remainder=False)] == [4, 4, 3]

    splits = het_tf.data.load("criteo_like:100")
    stream = parts(played, lambda: splits.train, ranks=2)
    assert stream[0].rows == stream[1].rows
    examples = splits.valid.read()
    held = parts(played, lambda: examples, ranks=2, drop_remainder=False)
    assert len(held[0]) + len(held[1]) == len(examples)


def test_shard_refuses(played):
    with pytest.raises(ValueError, match=r"give a tf\.data\.Dataset"):
        het_tf.horovod.shard([1, 2, 3])
    with pytest.raises(ValueError, match=r"\[3, 4\] rows"):
        het_tf.horovod.shard((np.zeros(3), np.zeros(4)))
    with pytest.raises(ValueError, match="1 elements for 2 ranks"):
        het_tf.horovod.shard(tf.data.Dataset.range(1))


def test_names_count_up_in_a_graph_and_begin_again_in_the_next():
    for _ in range(2):
        with tf.Graph().as_default():
            assert [collective.name("x"), collective.name("y"), collective.name("x")] == [
                "het_tf.x.1", "het_tf.y.1", "het_tf.x.2",
            ]  # fmt: skip
