"""`het_tf.publish` and `callbacks.Publish`: what a version has, when one is due, and what is refused."""

import math
import threading

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from played_lib import Played
from safetensors.numpy import load

import het_tf
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.ps.python import partitions
from het_tf.ext.serving.python.publishing import callback as callbacks
from het_tf.ext.serving.python.publishing import dense_store
from het_tf.ext.serving.python.publishing.versions import Versions
from het_tf.python.session import settings
from het_tf.python.session.workers import Workers

pytestmark = redis_lib.MARKS


def make_model(**cache):
    ids = tf.keras.Input((), dtype="int64", name="ids")
    layer = het_tf.keras.Embedding(2, name="item", initializer="zeros", optimizer="sgd",
                                   cache=het_tf.Cache(**{"staleness": math.inf, **cache}))  # fmt: skip
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1, name="out")(layer(ids)), name="clicks")
    model.compile("sgd", "mse")
    return model


def fit(model, batches=1, callback=None):
    ids = np.arange(8 * batches) % 32
    callbacks = [] if callback is None else [callback]
    model.fit(ids, np.ones((8 * batches, 1)), batch_size=8, shuffle=False, verbose=0, callbacks=callbacks)


@pytest.fixture
def model(server):
    het_tf.init(ps=server.address)
    return make_model()


def equals_the_model(client, version, model):
    there = load(dense_store.fetch(client, version))
    weights = dense.values(dense.weights_of(model))
    assert list(weights) == ["model/out/kernel", "model/out/bias"]
    for name, array in weights.items():
        np.testing.assert_array_equal(there[name], array)


def test_a_version_has_the_rows_and_the_dense_weights_of_its_moment(model, client):
    """Would catch a cut from before the flush, which lets old rows meet new dense weights."""
    fit(model)
    held_back = het_tf.Table("item").stats()["cache"]["unsent_rows"]
    before = partitions.positions(client, "")
    version = het_tf.publish(model)
    assert held_back == 8 and version.cut != before
    assert version.cut == partitions.positions(client, ""), "nothing was trained since"
    assert version.number == 1 and version == Versions(client, "").last()[-1]
    assert version.time - 60 < version.trained_through < version.time
    equals_the_model(client, version, model)
    fit(model)
    second = het_tf.publish(model, trained_through={"day": 3, "hours": (1, 2.5)}, keep=1)
    assert second.trained_through == {"day": 3, "hours": [1, 2.5]}
    (kept,) = Versions(client, "").last()
    assert kept.number == 2 and kept.sha256 != version.sha256
    equals_the_model(client, kept, model)


def test_a_directory_takes_the_dense_weights(model, client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    version = het_tf.publish(model, directory="weights")
    assert version.dense == f"file:{tmp_path}/weights/{version.sha256}.safetensors"
    equals_the_model(client, version, model)
    monkeypatch.setattr(dense_store, "LIMIT", 11)  # 2 floats of the kernel, 1 of the bias
    with pytest.raises(ValueError, match=r"have 12 B, and the parameter server takes 11 B; give directory="):
        het_tf.publish(model)


EVERYWHERE = [
    ({"keep": 0}, ValueError, "keep is 0; give a number of versions, an integer from 1 to 1000"),
    ({"keep": 1001}, ValueError, "keep is 1001"),
    ({"keep": True}, ValueError, "keep is True"),
    ({"directory": 3}, TypeError, "directory is 3; give a path"),
]
OF_CALLBACK = [
    ({"every": 0}, ValueError, "every is 0; give seconds > 0"),
    ({"every": True}, ValueError, "every is True"),
    ({"every": math.inf}, ValueError, "every is inf"),
    ({"trained_through": 3}, TypeError, "trained_through is 3; give a function"),
]
OF_PUBLISH = [
    ({"trained_through": {1, 2}}, ValueError, r"trained_through is \{1, 2\}: .*; give a JSON value"),
    ({"trained_through": math.nan}, ValueError, "trained_through is nan: .*; give a JSON value"),
    ({"trained_through": "x" * 70_000}, ValueError, "has 70002 bytes as JSON; give at most 65536"),
]


def test_arguments_that_cannot_be_published_are_refused(model, client):
    for arguments, error, message in EVERYWHERE + OF_CALLBACK:
        with pytest.raises(error, match=message):
            het_tf.callbacks.Publish(**arguments)
    for arguments, error, message in EVERYWHERE + OF_PUBLISH:
        with pytest.raises(error, match=message):
            het_tf.publish(model, **arguments)
    with pytest.raises(TypeError, match="model is 'model'; give a Keras model"):
        het_tf.publish("model")
    with pytest.raises(ValueError, match="no layers of het_tf, so there are no rows to follow"):
        het_tf.publish(tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)]))
    with het_tf.namespace("other"):
        second = het_tf.keras.Embedding(1, name="second")
    both = tf.keras.Model(model.input, model.output + second(model.input))
    with pytest.raises(ValueError, match="are in the namespaces '', 'other', but a version has rows of one"):
        het_tf.publish(both)
    het_tf.reset("other")
    assert Versions(client, "").last() == []


def test_a_namespace_has_its_own_versions(server, client):
    het_tf.init(ps=server.address)
    with het_tf.namespace("a"):
        model = make_model()
    assert het_tf.publish(model).dense.startswith("redis:het:a:dense:")
    assert len(Versions(client, "a").last()) == 1 and not Versions(client, "").last()
    het_tf.reset("a")


def test_only_rank_0_writes(model, client, monkeypatch):
    """Would catch a rank that appends its own version, and an error that the other ranks do not get."""
    fit(model)
    monkeypatch.setattr(settings.current, "workers", Played(me=1))
    assert het_tf.publish(model) is None and Versions(client, "").last() == []
    hvd = Played(me=0)
    monkeypatch.setattr(settings.current, "workers", hvd)
    assert het_tf.publish(model).number == 1
    met = len(hvd.gathered)
    hvd.others = lambda value: [([], ["OSError"], "no space")]
    with pytest.raises(OSError, match="rank 1 could not begin to publish: no space"):
        het_tf.publish(model)
    assert len(hvd.gathered) == met + 1


def test_versions_while_fit_runs_and_one_at_its_end(model, client):
    steps = []
    publish = het_tf.callbacks.Publish(
        every=1e-6, keep=1000, trained_through=lambda: int(model.optimizer.iterations)
    )
    for _ in range(2):  # a second fit goes on
        fit(model, batches=300, callback=publish)
        versions = Versions(client, "").last()
        steps.append([one.trained_through for one in versions])
        equals_the_model(client, versions[-1], model)
    assert steps[0][-1] == 300 and steps[1][-1] == 600
    assert len(steps[0]) > 2 and sorted(set(steps[1])) == steps[1], "no step is published twice"
    assert [one.number for one in versions] == list(range(1, len(versions) + 1))
    assert partitions.positions(client, "") == versions[-1].cut


class Clock:
    """Time of a callback that only the test moves."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(callbacks.time, "monotonic", lambda: self.now)


class Recorded:
    """A publisher that writes when the test lets it."""

    def __init__(self):
        self.taken, self.go, self.error = [], threading.Event(), None
        self.go.set()

    def take(self, ranks, through):
        self.taken.append(through and through())
        return self.taken[-1:]

    def write(self, taken):
        assert self.go.wait(300)
        if self.error is not None:
            raise self.error

    def close(self):
        pass


@pytest.fixture
def begun(model, monkeypatch):
    """A begun callback, its clock and its publisher."""
    clock, recorded = Clock(monkeypatch), Recorded()
    monkeypatch.setattr(callbacks, "Publisher", lambda *_: recorded)

    def begun(**arguments):
        callback = het_tf.callbacks.Publish(**arguments)
        callback.set_model(model)
        callback.on_train_begin()
        return callback, clock, recorded

    return begun


def test_a_version_is_due_after_so_many_seconds(begun, monkeypatch):
    """Would catch an exchange of the ranks at every step, and versions that drift with the steps' length."""
    exchanged = []
    monkeypatch.setattr(settings.current, "workers", hvd := Played())
    callback, clock, recorded = begun(every=1.0, trained_through=lambda: clock.now)
    for _ in range(1010):
        clock.now += 0.01
        before = len(hvd.gathered)
        callback.on_train_batch_end(0)
        if len(hvd.gathered) > before:
            exchanged.append(clock.now)
        if callback._writing is not None:
            callback._writing.exception()  # the thread is through
    np.testing.assert_allclose(recorded.taken, np.arange(1, 10.001), atol=0.1)
    assert len(exchanged) < 40, exchanged
    clock.now += 0.01
    monkeypatch.setattr(settings.current, "workers", Workers())
    callback.on_train_end()


@pytest.mark.parametrize(("ranks", "late"), [(1, 2), (2, 100)])
def test_steps_that_become_longer_make_versions_late_by_few_steps(begun, monkeypatch, ranks, late):
    """Would catch a number of steps to the next version that is trusted for hours."""
    monkeypatch.setattr(settings.current, "workers", Played(ranks))
    callback, clock, recorded = begun(every=1.0)
    for _ in range(30):
        clock.now += 0.001
        callback.on_train_batch_end(0)
    for _ in range(late):
        clock.now += 0.5
        callback.on_train_batch_end(0)
    assert recorded.taken
    callback.on_train_end()


def test_a_slow_server_makes_versions_fewer_and_stops_no_step(begun):
    """Would catch a step that waits for the thread, and two versions in it at once."""
    callback, clock, recorded = begun(every=1.0)
    recorded.go.clear()
    for _ in range(50):
        clock.now += 0.5
        callback.on_train_batch_end(0)
    assert len(recorded.taken) == 1
    recorded.go.set()
    callback._writing.result(30)
    clock.now += 0.5
    callback.on_train_batch_end(0)
    assert len(recorded.taken) == 2
    callback.on_train_end()
    assert len(recorded.taken) == 2, "nothing was trained since"
    assert callback._thread is None and callback._writing is None


@pytest.mark.parametrize("later", [True, False])
def test_an_error_of_the_thread_ends_fit(begun, later):
    """At a later step, or if it was of the last version at the end."""
    callback, clock, recorded = begun(every=1.0)
    recorded.error = ConnectionError("no answer")
    clock.now += 0.1
    callback.on_train_batch_end(0)
    with pytest.raises(ConnectionError, match="no answer"):
        while later and clock.now < 1e6:  # until the thread has failed
            clock.now += 1.0
            callback.on_train_batch_end(0)
        callback.on_train_end()
    recorded.error = None
    callback.on_train_end()
    assert callback._thread is None


def test_a_model_that_its_first_step_builds(server, client):
    class Subclassed(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embed = het_tf.keras.Embedding(2, name="item")
            self.out = tf.keras.layers.Dense(1, name="out")

        def call(self, ids):
            return self.out(self.embed(ids))

    het_tf.init(ps=server.address)
    model = Subclassed()
    model.compile("sgd", "mse")
    fit(model, batches=2, callback=het_tf.callbacks.Publish(every=1e-6))
    assert dense_store.fetch(client, Versions(client, "").last()[-1])
