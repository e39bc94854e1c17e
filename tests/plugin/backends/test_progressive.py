"""ProgressiveEvaluation: what a batch is predicted before it is trained on, in windows."""

import csv

import keras
import numpy as np
import pytest
from backends_lib import BACKEND, array, on_tensorflow

import het_tf
from het_tf.python import ids

BATCH, ROWS = 16, 160
Progressive = het_tf.callbacks.ProgressiveEvaluation


def data(seed=0):
    rng = np.random.default_rng(seed)
    x = {"user": rng.integers(0, 7, ROWS).astype(ids.widest()), "x": rng.random((ROWS, 2)).astype("float32")}
    return x, (x["user"] % 2 == rng.integers(0, 2, ROWS)).astype("float32")[:, None]


def model(calls=None, **compiled):
    keras.utils.set_random_seed(3)
    user, x = keras.Input((), dtype=ids.widest(), name="user"), keras.Input((2,), name="x")
    rows = het_tf.keras.Embedding(3, name="users", optimizer=het_tf.optimizers.SGD(1.0))(user)
    if calls is not None:
        rows = keras.layers.Lambda(lambda x: calls.append(1) or x, output_shape=(3,))(rows)
    out = keras.layers.Dense(1, "sigmoid")(keras.layers.Concatenate()([rows, x]))
    made = keras.Model({"user": user, "x": x}, out)
    made.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", **compiled)
    return made


def metrics():
    return [keras.metrics.AUC(name="auc"), keras.metrics.MeanSquaredError(name="mse")]


def results(y, p):
    """Returns the results of metrics() over these samples."""
    found = metrics()
    for one in found:
        one.update_state(y, p)
    return [float(one.result()) for one in found]


def predicted_before(passes=1):
    """Each batch predicted, then trained on: by hand."""
    made, (x, y), found = model(), data(), []
    for _ in range(passes):
        for i in range(0, ROWS, BATCH):
            batch = {name: one[i : i + BATCH] for name, one in x.items()}
            found.append(array(made(batch, training=False)))
            made.train_on_batch(batch, y[i : i + BATCH])
    het_tf.reset()
    return np.concatenate(found)


def fit(made, callback, **options):
    x, y = data()
    return made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback], **options).history


def test_windows_are_of_predictions_before_the_update(tmp_path):
    p, labels = predicted_before(passes=2), np.tile(data()[1], (2, 1))
    path = tmp_path / "progressive.csv"
    made = model(metrics=["mae"])
    step = made.train_step
    callback = Progressive(metrics(), window=4, path=str(path))
    history = fit(made, callback, epochs=2, validation_data=data(1))
    assert [one["batches"] for one in callback.windows] == [4, 4, 4, 4, 4]
    assert [one["samples"] for one in callback.windows] == [64] * 5
    assert [one["epoch"] for one in callback.windows] == [0, 0, 1, 1, 1]
    names = ["auc", "mse"]
    for number, window in enumerate(callback.windows):
        part = slice(64 * number, 64 * (number + 1))
        expected = results(labels[part], p[part])
        np.testing.assert_allclose([window[name] for name in names], expected, rtol=1e-5)
    for epoch in (0, 1):  # over all so far, in the middle of a window too
        part = slice(0, ROWS * (epoch + 1))
        found = [history[f"progressive_{name}"][epoch] for name in names]
        np.testing.assert_allclose(found, results(labels[part], p[part]), rtol=1e-5)
    lines = list(csv.DictReader(path.open()))
    assert [line["window"] for line in lines] == ["1", "2", "3", "4", "5", "all"]
    assert float(lines[1]["auc"]) == callback.windows[1]["auc"]
    assert float(lines[-1]["mse"]) == history["progressive_mse"][-1]
    assert (lines[-1]["batches"], lines[-1]["samples"]) == ("20", "320")
    assert made.train_step == step and "mae" in history and "val_mae" in history


def test_there_is_no_second_forward_pass():
    calls, other = [], []
    for seen, callback in ((calls, Progressive(metrics(), window=100, overall=False)), (other, None)):
        fit(model(seen, run_eagerly=True), callback or keras.callbacks.Callback())
    assert len(calls) == len(other) >= ROWS // BATCH


@pytest.mark.skipif(BACKEND == "torch", reason="Keras executes one step on PyTorch")
def test_window_ends_with_execution_that_fills_it():
    callback = Progressive([keras.metrics.MeanSquaredError()], window=3, overall=False)
    history = fit(model(steps_per_execution=2), callback)
    assert [one["batches"] for one in callback.windows] == [4, 4, 2] and list(history) == ["loss"]


@on_tensorflow
@pytest.mark.long
def test_windows_of_all_ranks(played, tmp_path):
    made = het_tf.workers.distribute(model())
    path = tmp_path / "x.csv"
    callback = Progressive(metrics(), 5, str(path))
    fit(made, callback)
    assert [one["samples"] for one in callback.windows] == [160, 160], "of both ranks"
    assert path.exists()
    path.unlink()
    played.me = 1
    callback.on_train_begin()
    assert not path.exists(), "rank 0 writes"


def test_several_outputs():
    x = keras.Input((2,), name="x")
    made = keras.Model(x, {"a": keras.layers.Dense(1, name="a")(x), "b": keras.layers.Dense(1, name="b")(x)})
    made.compile("sgd", {"a": "mse", "b": "mse"}, run_eagerly=True)
    inputs, (_, y) = np.ones((ROWS, 2), "float32"), data()
    callback = Progressive({"b": [keras.metrics.MeanSquaredError(name="of_b")]}, window=99)
    made.fit(inputs, {"a": y, "b": 0 * y}, batch_size=ROWS, verbose=0, callbacks=[callback])
    assert callback.windows[0]["of_b"] >= 0
    mse = [keras.metrics.MeanSquaredError()]
    for given, message in (
        (mse, "the model has several outputs; give .* a dict"),
        ({"c": mse}, "metrics of output 'c', which the labels and predictions lack"),
    ):
        with pytest.raises(ValueError, match=message):
            made.fit(inputs, {"a": y, "b": y}, verbose=0, callbacks=[Progressive(given)])


class Silent(keras.Model):
    def train_step(self, *given):
        logs = {"loss": keras.ops.convert_to_tensor(0.0)}
        return logs if len(given) == 1 else (logs, given[0])


def test_what_is_refused(tmp_path):
    mse = keras.metrics.MeanSquaredError
    for window in (0, 1.5, True):
        with pytest.raises(ValueError, match="give a number of batches, an integer of 1 or more"):
            Progressive([mse()], window)
    with pytest.raises(ValueError, match="give Keras metrics as objects"):
        Progressive(["mse"])
    with pytest.raises(ValueError, match="give each a different one, name="):
        Progressive([mse(), mse()])
    missing = tmp_path / "not" / "there.csv"
    with pytest.raises(ValueError, match=r"there.csv' of ProgressiveEvaluation cannot be written: No such"):
        fit(model(), Progressive([mse()], path=str(missing)))
    x = keras.Input((2,))
    silent = Silent(x, x)
    silent.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="did not call compute_metrics"):
        silent.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0, callbacks=[Progressive([mse()])])
