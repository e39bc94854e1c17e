"""Shared by the tests of saving: a model with repeatable training, and ways to save and restore it."""

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras

MARKS = [
    pytest.mark.slow,
    pytest.mark.usefixtures("fresh", "eagerly"),
    pytest.mark.filterwarnings("error::het_tf.python.table.notes.TablesNotSavedWarning"),
]

RULES = {
    "sgd": (lambda: keras.optimizers.SGD(0.1), lambda: het_tf.optimizers.SGD(0.1)),
    "adam": (lambda: keras.optimizers.Adam(0.01), lambda: het_tf.optimizers.Adam(0.01)),
}


def data(n=64, seed=1):
    """Ids whose rows move, and labels."""
    ids = np.random.default_rng(seed).integers(-20, 20, (n, 3))
    return ids, (ids.sum(1, keepdims=True) / 30).astype(np.float32)


def make_model(rule="adam", name="t", layer="embed", table_rule=None, **more):
    """A compiled model of one Embedding and two Dense layers; layers draw the same weights each time."""
    keras.utils.set_random_seed(7)
    dense, table = RULES[rule][0], RULES[table_rule or rule][1]
    ids = keras.Input((3,), dtype="int64")
    rows = het_tf.keras.Embedding(4, table=name, name=layer, optimizer=table(), **more)(ids)
    hidden = keras.layers.Dense(8, activation="tanh")(keras.layers.Flatten()(rows))
    model = keras.Model(ids, keras.layers.Dense(1)(hidden))
    model.compile(dense(), "mse")
    return model


def train(model, epochs=1, **more):
    """Trains by `fit` where arguments of it are given, else on the same batches without what `fit` costs."""
    ids, labels = data()
    if more:
        model.fit(ids, labels, batch_size=16, epochs=epochs, verbose=0, shuffle=False, **more)
        return
    for begin in [*range(0, len(ids), 16)] * epochs:
        model.train_on_batch(ids[begin : begin + 16], labels[begin : begin + 16])


def predictions(model):
    return model(data()[0], training=False).numpy()


def everything(name="t", namespace=None):
    """Rows with slots, clocks, counts, and the step of schedules."""
    table = het_tf.Table(name, namespace)
    return {**table.scan(), "applies": table.updates}


def trained(*rule, **options):
    model = make_model(*rule, **options)
    train(model)
    return model


def build(shape="shared"):
    """Two layers: of one table ("shared", "frozen": the first does not train), of two ("apart"), whose names
    paths do not like, or of two namespaces ("namespaces").
    """
    keras.utils.set_random_seed(7)
    ids = keras.Input((3,), dtype="int64")
    table = het_tf.TableConfig("a/b c", 4, het_tf.optimizers.Adam(0.01))
    other = het_tf.TableConfig("..", 4, het_tf.optimizers.SGD(0.1)) if shape == "apart" else table
    features = [{"x": het_tf.FeatureConfig(one, combiner="sum")} for one in (table, other)]
    first = het_tf.keras.EmbeddingCollection(features[0], name="first")
    with het_tf.namespace("n" if shape == "namespaces" else ""):
        second = het_tf.keras.EmbeddingCollection(features[1], name="second")
    first.trainable = shape != "frozen"
    x = keras.layers.Concatenate()([first({"x": ids})["x"], second({"x": ids})["x"]])
    model = keras.Model(ids, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    return model


class Checkpoint:
    """tf.train.Checkpoint."""

    def save(self, model, directory):
        self.path = tf.train.Checkpoint(model=model).save(str(directory / "check" / "point"))

    def restore(self, model):
        tf.train.Checkpoint(model=model).restore(self.path).assert_consumed()


class WeightsH5:
    """model.save_weights("x.weights.h5")."""

    def save(self, model, directory):
        self.path = str(directory / "x.weights.h5")
        model.save_weights(self.path)

    def restore(self, model):
        model.load_weights(self.path)


class SeveralFiles(WeightsH5):
    """model.save_weights("x.weights.json"), whose rows are in several files."""

    def save(self, model, directory):
        self.path = str(directory / "x.weights.json")
        model.save_weights(self.path, max_shard_size=4e-6)  # GB
        assert len(list(directory.glob("*.h5"))) > 2


WAYS = [Checkpoint, WeightsH5]
