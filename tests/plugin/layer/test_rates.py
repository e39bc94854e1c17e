"""The rate of a table's update: its own optimizer's, which may change, and the number of workers."""

import numpy as np
import pytest
import tensorflow as tf
from played_lib import Played
from rules_lib import MODES, embedding, keras, learn, rows

import het_tf
from het_tf.python.session import settings

pytestmark = pytest.mark.usefixtures("fresh")


def unit_steps(rate, count, mode, change=None):
    """Trains row 1 with gradient 1 `count` times and returns how far each step went."""
    layer = embedding(het_tf.optimizers.SGD(rate), initializer="zeros")
    moved = [0.0]

    def run(ids):
        learn(layer, lambda: layer(ids))

    run = tf.function(run) if mode == "graph" else run
    for i in range(count):
        if change:
            change(i)
        run(tf.constant([1], tf.int64))
        moved.append(-float(rows([1])[0, 0]))
    return np.diff(moved)


@pytest.mark.parametrize("mode", MODES)
def test_a_schedule_counts_the_updates_of_the_table(mode):
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    np.testing.assert_allclose(unit_steps(schedule, 4, mode), [1, 0.5, 0.25, 0.125], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_variable_is_read_at_every_update(mode):
    rate = tf.Variable(1.0)
    moved = unit_steps(rate, 3, mode, change=lambda i: rate.assign(float(i + 1)))
    np.testing.assert_allclose(moved, [1, 2, 3], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_model_follows_the_compiled_optimizer(mode):
    inputs = keras.Input((), dtype="int64")
    model = keras.Model(inputs, embedding(het_tf.optimizers.SGD("model"), initializer="zeros")(inputs))
    model.compile(keras.optimizers.Adam(0.5), loss=lambda y, x: tf.reduce_sum(x), run_eagerly=mode == "eager")
    ids = np.array([1])
    model.train_on_batch(ids, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-0.5] * 4], rtol=1e-5)
    model.optimizer.learning_rate.assign(0.25)
    model.train_on_batch(ids, np.zeros((1, 4), np.float32))
    np.testing.assert_allclose(rows([1]), [[-0.75] * 4], rtol=1e-5)


@pytest.mark.parametrize("scale, want", [("mean", -0.25), ("sum", -1.0)])
def test_gradients_are_scaled_by_the_number_of_workers(scale, want, monkeypatch):
    het_tf.init(gradient_scale=scale)
    # Past init(), which wants a real Horovod and a server for its ranks.
    monkeypatch.setattr(settings.current, "workers", Played(ranks=4))
    layer = embedding(het_tf.optimizers.SGD(1.0), initializer="zeros")
    learn(layer, lambda: layer(tf.constant([1])), reduce=True)
    np.testing.assert_allclose(rows([1]), [[want] * 4])
