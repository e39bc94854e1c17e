"""Callbacks and data of het_tf.workers, with ranks that are played."""

from unittest import mock

import numpy as np
import pytest
import rules_lib
import tensorflow as tf
from rules_lib import data, keras

import het_tf
from het_tf.ext.streams.python import on_demand
from het_tf.ext.workers.python.backends import ops


def test_broadcast_takes_weights_and_optimizer_of_rank_0(played):
    model = het_tf.workers.distribute(rules_lib.make_model("adam"))
    model.fit(*data(), verbose=0)
    played.me = 1  # the played rank 0 has zeros everywhere
    het_tf.workers.broadcast(model)
    for variable in [*model.weights, *model.optimizer.variables]:
        assert not np.any(tf.convert_to_tensor(variable).numpy()), variable
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(RuntimeError, match="no weights yet"):
        het_tf.workers.broadcast(unbuilt)
    # With another number of weights the ranks would wait for each other.
    played.others = lambda mine: [{**mine, "weights and optimizer": mine["weights and optimizer"][1:]}]
    with pytest.raises(RuntimeError, match="between rank 0 and rank 1 in its weights and optimizer"):
        het_tf.workers.broadcast(model)


class Late(keras.Model):
    """Has no weights before its first batch."""

    def __init__(self):
        super().__init__()
        self.rows = rules_lib.embedding()
        self.out = keras.layers.Dense(1)

    def call(self, ids):
        return self.out(tf.reshape(self.rows(ids), [-1, 12]))


class BuildsItself(Late):
    """Makes its weights in a `build` of its own, which Keras calls while it traces the first step."""

    def build(self, input_shape):
        self.out.build((None, 12))
        self.built = True


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("kind", [Late, BuildsItself])
def test_broadcast_of_weights_that_the_first_step_makes(played, kind, eagerly):
    model = het_tf.workers.distribute(kind())
    model.compile(keras.optimizers.SGD(1e-12), "mse", run_eagerly=eagerly)
    played.me = 1  # the played rank 0 has zeros everywhere
    ids = np.tile(data(1)[0], (64, 1))
    targets = np.full((64, 1), 3.0)  # the loss of the first step is its square, if the weights are zeros
    losses = model.fit(ids, targets, verbose=0, batch_size=32).history["loss"]
    kernel, bias = (weight.numpy() for weight in model.out.weights)
    assert kernel.shape == (12, 1) and np.abs(kernel).max() < 1e-6 and np.abs(bias).max() < 1e-6
    # Eagerly the weights are made, and used, before there is an update to come before.
    assert eagerly or losses == [pytest.approx(9.0, rel=1e-5)], "the first step is one of rank 0's weights"


def test_each_fit_begins_with_rank_0(played):
    """Also where a rank changes its weights between two; and so does a first batch without `fit`."""
    model = het_tf.workers.distribute(rules_lib.make_model(keras.optimizers.SGD(1e-12)))
    played.me = 1  # the played rank 0 has zeros everywhere
    kernel = model.layers[-1].kernel
    model.train_on_batch(*data())
    assert np.abs(kernel.numpy()).max() < 1e-6
    kernel.assign(tf.ones_like(kernel))
    model.train_on_batch(*data())
    assert np.abs(kernel.numpy()).max() > 0.9, "only a first batch"
    model.fit(*data(), verbose=0)
    assert np.abs(kernel.numpy()).max() < 1e-6


def test_a_fit_flushes_for_its_own_passes(played, monkeypatch):
    """Defect: a fit flushes for a stream on demand that an earlier one has ended; or a rank does so alone."""
    flushed = []
    monkeypatch.setattr(ops, "flush", lambda all_ranks: flushed.append(all_ranks))
    monkeypatch.setattr(on_demand._Passes, "begun", on_demand._Passes())
    monkeypatch.setattr(on_demand._Passes, "ended", 0)
    model = het_tf.workers.distribute(rules_lib.make_model())
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: on_demand._Passes.begin())
    for callback, wanted in ((begin, 3), (None, 3)):
        model.fit(*data(), epochs=2, verbose=0, validation_data=data(), callbacks=callback)
        assert flushed == [True] * wanted  # at each evaluation, and at the end
    played.others = lambda value: [value + 1 if "passes" in played.gathered[-1] else value]
    model.fit(*data(), verbose=0)
    assert len(flushed) == 5


@pytest.mark.parametrize("how", ["list", "keras", "one", "place"])
def test_callbacks_read_the_logs_of_all_ranks(played, how):
    """However `callbacks` are given. Would catch: EarlyStopping that decides apart on each rank."""

    class Logging(keras.Sequential):
        def train_step(self, batch):
            return {**super().train_step(batch), "mine": tf.constant(1.0)}

    model = het_tf.workers.distribute(Logging([keras.Input((3,)), keras.layers.Dense(1)]))
    model.compile("sgd", "mse", metrics=["mae"])
    played.extra = {"het_tf.log_values": np.array([0.0, 3.0])}  # of the other rank
    seen, x, y = [], np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    if how == "place":
        model.fit(x, y, None, 1, 0, [look])
    else:
        given = {"list": [look], "one": look, "keras": keras.callbacks.CallbackList([look], model=model)}
        model.fit(x, y, verbose=0, callbacks=given[how])
    assert len(seen) == 1 and seen[0]["mine"] == 2.0 and set(seen[0]) == {"mine", "loss", "mae"}
    assert "het_tf.metrics" in played.reduced


@pytest.mark.filterwarnings("error::het_tf.python.table.notes.TablesNotSavedWarning")
def test_rank_0_writes_while_all_others_wait(played, tmp_path):
    model = het_tf.workers.distribute(rules_lib.make_model())
    for me in (1, 0):
        played.me = me
        path = tmp_path / f"{me}.weights.h5"
        played.gathered.clear()
        checkpoint = het_tf.callbacks.Checkpoint(str(path), save_weights_only=True)
        model.fit(*data(), verbose=0, callbacks=[checkpoint])
        assert path.exists() == (me == 0)
        at = played.gathered.index("het_tf.checkpoint")
        assert played.gathered[at - 1] == "het_tf.flush", "every rank takes part, and waits"


def test_failed_write_of_rank_0_raises_on_all(played, monkeypatch, tmp_path):
    checkpoint = het_tf.callbacks.Checkpoint(str(tmp_path / "x.weights.h5"), save_weights_only=True)
    model = rules_lib.make_model()
    monkeypatch.setattr(model, "save_weights", mock.Mock(side_effect=OSError("disk is full")))
    checkpoint.set_model(model)
    with pytest.raises(OSError, match="disk is full"):
        checkpoint.on_epoch_end(0, {})
    assert played.gathered[-1] == "het_tf.checkpoint", "the others are not left to wait"
    played.me = 1
    played.others = lambda mine: [([], ["OSError"], "disk is full")]
    monkeypatch.setattr("het_tf.ext.checkpoint.python.callback.flush", lambda all_ranks: None)
    with pytest.raises(OSError, match="rank 0 could not write the checkpoint: disk is full"):
        checkpoint.on_epoch_end(0, {})


def test_table_stats_of_all_ranks(played):
    model = het_tf.workers.distribute(rules_lib.make_model())
    mine, of_all = het_tf.callbacks.TableStats(), het_tf.callbacks.TableStats(all_ranks=True)
    model.fit(*data(), verbose=0, batch_size=8, callbacks=[mine, of_all])
    assert of_all.epochs[0]["t"]["updates"] == 2 * mine.epochs[0]["t"]["updates"] == 8
    assert of_all.epochs[0]["t"]["rows"] == mine.epochs[0]["t"]["rows"], "a table is counted once"


def parts(played, make, ranks=3, **options):
    played.ranks = ranks
    found = []
    for me in range(ranks):
        played.me = me
        found.append(het_tf.workers.shard(make(), **options))
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


def test_shard_refuses(played):
    with pytest.raises(ValueError, match=r"give a tf\.data\.Dataset"):
        het_tf.workers.shard([1, 2, 3])
    with pytest.raises(ValueError, match=r"\[3, 4\] rows"):
        het_tf.workers.shard((np.zeros(3), np.zeros(4)))
    with pytest.raises(ValueError, match="1 elements for 2 ranks"):
        het_tf.workers.shard(tf.data.Dataset.range(1))
