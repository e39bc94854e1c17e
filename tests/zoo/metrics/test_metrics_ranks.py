"""Metrics over ranks, with a Horovod that is played: as if one process had seen all samples."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf.python.metrics import states

keras = tf.keras


def make():
    m = het_tf.metrics
    return [m.GAUC(by="user"), m.NormalizedEntropy(), m.Calibration(), keras.metrics.AUC(num_thresholds=20)]


def feed(metrics, user, y, p):
    for metric in metrics:
        metric.update_state(y, p, **({"groups": user} if isinstance(metric, het_tf.metrics.GAUC) else {}))
    return metrics


def play(played, others):
    """The other rank has these metrics."""
    columns = iter(others[0].samples.columns())
    played.gives = lambda tensor: next(columns)
    sums = [v.numpy().astype(np.float64).ravel() for v in states.variables_of(others)]
    played.extra = {"metrics": np.concatenate([np.zeros(1), *sums])}


def test_states_of_all_ranks_are_those_of_all_samples(played, fresh):
    user, y, p = fresh.integers(0, 9, 120), fresh.integers(0, 2, 120), fresh.integers(1, 9, 120) / 10
    for cut in (50, 0, 120):  # a rank may have seen nothing
        mine = feed(make(), user[:cut], y[:cut], p[:cut])
        before = [float(one.result()) for one in mine]
        play(played, feed(make(), user[cut:], y[cut:], p[cut:]))
        with het_tf.workers.global_states(mine):
            found = [float(one.result()) for one in mine]
            groups = mine[0].groups, mine[0].left_out
        union = feed(make(), user, y, p)
        np.testing.assert_allclose(found, [float(one.result()) for one in union], rtol=1e-6)
        assert groups == (union[0].groups, union[0].left_out)
        np.testing.assert_array_equal([float(one.result()) for one in mine], before, "its own again")
        assert cut in (0, 120) or not np.allclose(found, before)


def test_states_return_after_an_error(played, fresh):
    user, y, p = fresh.integers(0, 9, 60), fresh.integers(0, 2, 60), fresh.random(60)
    mine = feed(make(), user[:30], y[:30], p[:30])
    before = [float(one.result()) for one in mine]
    play(played, feed(make(), user[30:], y[30:], p[30:]))
    with pytest.raises(KeyError), het_tf.workers.global_states(mine):
        raise KeyError
    np.testing.assert_array_equal([float(one.result()) for one in mine], before)


def test_logs_of_fit_are_those_of_all_ranks(played, fresh):
    """Both ranks have the same batches: of twice the samples GAUC and its like are the same, sums double."""
    inputs = {
        "user": keras.Input((), dtype="int64", name="user"), "x": keras.Input((3,), name="x"),
    }  # fmt: skip
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(inputs["x"]))
    model = het_tf.metrics.with_inputs(het_tf.workers.distribute(model))
    model.compile("sgd", "binary_crossentropy", metrics=[make()[0], make()[2]], jit_compile=False)
    x = {"user": fresh.integers(0, 9, 64), "x": fresh.random((64, 3)).astype("float32")}
    y = fresh.integers(0, 2, (64, 1)).astype("float32")
    history = model.fit(x, y, batch_size=32, verbose=0, validation_data=(x, y)).history
    assert played.gathered.count("het_tf.samples") == 2 * 4, "the columns of GAUC, in training and validation"
    expected = model.evaluate(x, y, verbose=0, return_dict=True)
    for name in ("gauc", "calibration"):
        assert history[f"val_{name}"][0] == pytest.approx(expected[name], abs=1e-6)
