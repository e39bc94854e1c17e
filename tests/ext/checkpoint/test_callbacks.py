"""Callbacks: Checkpoint, with a directory, and RestoreBest; what is saved when, and which epoch is best."""

import checkpoint_lib
import numpy as np
import pytest
from saving_lib import keras, make_model, train

import het_tf
from het_tf.ext.checkpoint.python import direction, manifest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]


class Say(keras.callbacks.Callback):
    """Puts values under the names of metrics into the logs of each epoch."""

    def __init__(self, name, values):
        super().__init__()
        self.name, self.values = name, values

    def on_epoch_end(self, epoch, logs=None):
        logs[self.name] = self.values[epoch]


def f1(y_true, y_pred):
    return y_pred * y_true


class Own(keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_pred)


class Directed(Own):
    _direction = "up"


METRICS = [
    (lambda: keras.metrics.AUC(), "val_auc", 1),
    (lambda: keras.metrics.AUC(name="mine"), "mine", 1),
    (lambda: "accuracy", "val_accuracy", 1),
    (lambda: "acc", "acc", 1),
    (lambda: "mse", "val_mse", -1),
    (lambda: "mae", "mae", -1),
    (lambda: keras.metrics.RootMeanSquaredError(), "val_root_mean_squared_error", -1),
    (lambda: keras.metrics.BinaryCrossentropy(), "val_binary_crossentropy", -1),
    (lambda: keras.metrics.Precision(), "val_precision", 1),
    (lambda: keras.metrics.RecallAtPrecision(0.5), "val_recall_at_precision", 1),
    (lambda: keras.metrics.FalsePositives(), "val_false_positives", -1),
    (lambda: keras.metrics.TruePositives(), "val_true_positives", 1),
    (lambda: keras.metrics.CosineSimilarity(), "val_cosine_similarity", 1),
    (lambda: keras.metrics.KLDivergence(), "val_kl_divergence", -1),
    (lambda: Directed(), "val_directed", 1),
    (lambda: Own(), "val_own", 0),
    (lambda: f1, "val_f1", 0),
    (lambda: "mse", "val_loss", -1),
    (lambda: "mse", "unknown", 0),
]


@pytest.mark.parametrize(("metric", "monitor", "sign"), METRICS, ids=[one[1] for one in METRICS])
def test_the_metric_decides_which_values_are_better(metric, monitor, sign):
    one = metric()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=[one])
    name = monitor.removeprefix("val_")
    if isinstance(one, keras.metrics.Metric) and name not in (one.name, "mine"):
        monitor = monitor.replace(name, one.name)
    model.train_on_batch(np.ones((4, 2)), np.array([[0.0], [1.0], [1.0], [0.0]]))
    if sign:
        assert direction.sign(model, monitor) == sign
    else:
        with pytest.raises(ValueError, match=r"give mode='max' or mode='min'"):
            direction.sign(model, monitor)


def test_a_metric_of_one_of_several_outputs():
    x = keras.Input((2,))
    outputs = {name: keras.layers.Dense(1, activation="sigmoid", name=name)(x) for name in ("click", "buy")}
    model = keras.Model(x, outputs)
    losses = dict.fromkeys(outputs, "binary_crossentropy")
    model.compile("sgd", losses, metrics={"click": [keras.metrics.AUC(name="auc")], "buy": ["mse"]})
    y = np.array([[0.0], [1.0]])
    logs = model.fit(np.ones((2, 2)), {"click": y, "buy": y}, verbose=0).history
    assert "click_auc" in logs
    signs = [direction.sign(model, f"val_{name}") for name in ("click_auc", "buy_mse", "buy_loss")]
    assert signs == [1, -1, -1]


def test_checkpoints_of_better_epochs(tmp_path):
    model = make_model()
    model.compile("sgd", "mse", metrics=[Directed(name="auc")])
    saver = het_tf.callbacks.Checkpoint(tmp_path, monitor="val_auc", save_best_only=True)
    train(model, 5, callbacks=[Say("val_auc", [0.6, np.nan, 0.9, 0.7, 0.95]), saver])
    assert steps(tmp_path) == [4, 12, 20]


UNKNOWN = r"monitor is 'val_uplift', and whether.*mode='max' or mode='min'"
KINDS = {
    "best": lambda place, **options: het_tf.callbacks.RestoreBest(**options),
    "checkpoint": lambda place, **options: het_tf.callbacks.Checkpoint(place, save_best_only=True, **options),
}


UNDECIDED = [
    ("val_uplift", UNKNOWN),
    ("val_loss", r"monitor is 'val_loss', which no epoch had.*validation_data"),
    ("los", "monitor is 'los'; give one of loss"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("monitor", "message"), UNDECIDED)
def test_a_metric_that_cannot_decide_is_refused(kind, monitor, message, tmp_path):
    model, said = make_model(), [Say(monitor, [1.0, 2.0])] if monitor == "val_uplift" else []
    with pytest.raises(ValueError, match=message):
        train(model, 2, callbacks=[*said, KINDS[kind](tmp_path, monitor=monitor)])
    assert not list(tmp_path.iterdir())
    if said:
        train(model, 2, callbacks=[*said, KINDS[kind](tmp_path, monitor=monitor, mode="max")])


def data():
    rng = np.random.default_rng(0)
    return [rng.integers(0, 50, (32, 2)), rng.random((32, 3), np.float32)], rng.random((32, 1), np.float32)


def steps(place):
    return [manifest.read_manifest(path).step for path in het_tf.checkpoint.checkpoints(place)]


def test_checkpoint_of_each_epoch_is_consistent(tmp_path):
    made = checkpoint_lib.model()
    x, y = data()
    seen = {}

    def look(epoch, logs):
        seen[int(made.optimizer.iterations)] = checkpoint_lib.tables(), checkpoint_lib.weights(made)

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=look)]
    callbacks.append(het_tf.callbacks.Checkpoint(str(tmp_path / "c"), keep=3))
    made.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=callbacks)
    assert steps(tmp_path / "c") == [12, 16, 20]
    for path in het_tf.checkpoint.checkpoints(tmp_path / "c"):
        found = het_tf.checkpoint.restore(path, made)
        table, dense = seen[found.step]
        checkpoint_lib.same(checkpoint_lib.tables(), table)
        np.testing.assert_equal(checkpoint_lib.weights(made), dense)


def test_every_few_steps_by_increments(tmp_path):
    made = checkpoint_lib.model()
    x, y = data()
    saver = het_tf.callbacks.Checkpoint(tmp_path, save_freq=3, full_every=3)
    made.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[saver])
    assert steps(tmp_path) == [3, 6, 9, 12, 15]
    full = [manifest.read_manifest(path).base is None for path in het_tf.checkpoint.checkpoints(tmp_path)]
    assert full == [True, False, False, True, False]
    assert het_tf.checkpoint.verify(tmp_path).step == 15


def test_a_directory_of_later_steps_is_refused_before_training(tmp_path):
    x, y = data()
    made = checkpoint_lib.model()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file"):  # ends the fit
        made.fit(x, y, verbose=0, callbacks=[het_tf.callbacks.Checkpoint(tmp_path / "file")])
    (tmp_path / "file").unlink()
    het_tf.reset()
    made = checkpoint_lib.model()
    made.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[het_tf.callbacks.Checkpoint(tmp_path)])
    het_tf.reset()
    made = checkpoint_lib.model()
    before = checkpoint_lib.tables()
    saver = het_tf.callbacks.Checkpoint(tmp_path)
    with pytest.raises(ValueError, match="ckpt-00000008 exists, but the optimizer has made 0 steps"):
        made.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[saver])
    checkpoint_lib.same(checkpoint_lib.tables(), before)
    het_tf.checkpoint.restore(tmp_path, made)
    made.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[saver])
    assert steps(tmp_path) == [4, 8, 12]
