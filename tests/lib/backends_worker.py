"""A program on the backend that KERAS_BACKEND names: trains a model, or opens what another backend has saved.

train FOLDER SERVER      models whose rows' gradients are equal on all backends, and Wide & Deep
open FOLDER FROM SERVER  reads what the backend FROM has left in FOLDER and at the server
export FOLDER SERVER     TensorFlow exports a model for each other backend, to be followed
publish FOLDER SERVER    trains that model, and publishes its versions
serve FOLDER             TensorFlow answers by the followed models
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np

import het_tf

BACKEND = keras.backend.backend()
STEPS, BATCH, IDS = 100, 32, 200


def data(features, width):
    rng = np.random.default_rng(7)
    ids = {
        name: rng.integers(-1 if "history" in name else 0, IDS, (STEPS * BATCH, *shape)).astype("int32")
        for name, shape in features.items()
    }
    return ids, rng.normal(size=(STEPS * BATCH, width)).astype("float32")


def inputs_of(features):
    return {name: keras.Input(shape, dtype="int32", name=name) for name, shape in features.items()}


def halved_squares(y, predicted):
    """Its gradient by a row is one subtraction, times powers of two: no backend rounds it otherwise."""
    return 0.5 * keras.ops.sum(keras.ops.square(y - predicted), -1)


def exact_model(**cache):
    item = het_tf.TableConfig("item", 8, optimizer="adam", l2=1e-3, max_norm=2.0)
    wide = het_tf.TableConfig("wide", 1, optimizer="ftrl", l2=1e-4)
    features = {"item": (), "history": (2,), "user": (3,)}
    embed = het_tf.keras.EmbeddingCollection(
        {
            "item": het_tf.FeatureConfig(item),
            "history": het_tf.FeatureConfig(item, combiner="mean", padding_id=-1),
            "user": het_tf.FeatureConfig(wide),
        },
        cache=het_tf.Cache(**{"staleness": 0, **cache}),
        name="embed",
        reuse=True,
    )
    inputs = inputs_of(features)
    rows = embed(inputs)
    out = keras.layers.Concatenate()([rows["item"], rows["history"], keras.layers.Flatten()(rows["user"])])
    model = keras.Model(inputs, out)
    model.compile("sgd", halved_squares)
    return model, *data(features, 19)


def wide_deep():
    features = {"item": (), "history": (4,)}
    table = het_tf.TableConfig("deep", 8)
    embed = het_tf.keras.EmbeddingCollection(
        {
            "item": het_tf.FeatureConfig(table),
            "history": het_tf.FeatureConfig(table, combiner="mean", padding_id=-1),
        }
    )
    wide = het_tf.keras.Embedding(1, name="linear", optimizer="ftrl")
    inputs = inputs_of(features)
    rows = embed(inputs)
    hidden = keras.layers.Concatenate()([rows["item"], rows["history"]])
    for width in (16, 1):
        hidden = keras.layers.Dense(width, "relu" if width > 1 else None)(hidden)
    out = keras.layers.Add()([hidden, wide(inputs["item"])])
    model = keras.Model(inputs, keras.layers.Activation("sigmoid")(out))
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            layer.set_weights([rng.normal(0, 0.3, one.shape) for one in layer.get_weights()])
    model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy")
    ids, labels = data(features, 1)
    return model, ids, (labels > 0).astype("float32")


def tables(names, namespace=None):
    """Ids, rows with slots, and clocks of tables, by the order of ids."""
    found = {}
    for name in names:
        scan = het_tf.Table(name, namespace).scan()
        order = np.argsort(scan["ids"])
        found |= {f"{name}/{part}": scan[part][order] for part in ("ids", "rows", "clocks")}
    return found


def train(folder: Path, server: str) -> None:
    model, ids, labels = wide_deep()
    model.fit(ids, labels, batch_size=BATCH, shuffle=False, verbose=0)
    np.savez(folder / f"{BACKEND}-rounded.npz", **tables(["deep", "linear"]))
    het_tf.reset()
    model, ids, labels = exact_model()
    model.fit(ids, labels, batch_size=BATCH, shuffle=False, verbose=0)
    np.savez(folder / f"{BACKEND}-exact.npz", **tables(["item", "wide"]))
    model.save_weights(folder / f"{BACKEND}.weights.h5")
    model.save(folder / f"{BACKEND}.keras")
    het_tf.checkpoint.save(folder / f"{BACKEND}-checkpoints", model, step=1)
    het_tf.reset()
    if server:
        het_tf.init(ps=server, namespace=BACKEND)
        model, ids, labels = exact_model()
        model.fit(ids, labels, batch_size=BATCH, shuffle=False, verbose=0)
        stats = het_tf.Table("item").stats()["cache"]
        assert stats["reads"] > 0 and stats["ticks"] > 0
        het_tf.flush()
        np.savez(folder / f"{BACKEND}-server.npz", **tables(["item", "wide"]))
        if BACKEND != "tensorflow":  # tests/ext/streams has it
            train_ahead(folder, server)


def train_ahead(folder: Path, server: str) -> None:
    """Trains with planned lookups, which begin before the update of the step before them."""
    het_tf.reset()
    het_tf.init(ps=server, namespace=f"{BACKEND}-ahead")
    model, ids, labels = exact_model(staleness=het_tf.Bounds(5, 0), rows=150, wire="float32")
    batches = (
        ({name: one[at : at + BATCH] for name, one in ids.items()}, labels[at : at + BATCH])
        for at in range(0, len(labels), BATCH)
    )
    model.fit(het_tf.lookahead(batches, model, window=8), verbose=0)
    assert het_tf.Table("item").stats()["planned"] == STEPS
    het_tf.flush()
    np.savez(folder / f"{BACKEND}-ahead.npz", **tables(["item", "wide"]))


def open_it(folder: Path, other: str, server: str) -> None:
    found = {}

    def keep(what, namespace=None):
        found.update({f"{what}/{key}": one for key, one in tables(["item", "wide"], namespace).items()})

    model, *_ = exact_model()
    model.load_weights(folder / f"{other}.weights.h5")
    keep("weights")
    het_tf.Table("item").clear()
    het_tf.checkpoint.restore(folder / f"{other}-checkpoints", model)
    keep("checkpoint")
    with het_tf.namespace("copy"):
        # A file of PyTorch names Keras' optimizer for PyTorch.
        keras.models.load_model(folder / f"{other}.keras", compile=False)
        keep("keras", "copy")
    for namespace in ("", "copy"):
        het_tf.reset(namespace)
    if server:
        het_tf.init(ps=server, namespace=other)
        exact_model()
        keep("server")
    np.savez(folder / f"{BACKEND}-opens-{other}.npz", **found)


def served_model():
    """A model with a dense part and dropout, whose rows and weights begin otherwise in every process."""
    inputs = {"item": keras.Input((2,), dtype="int64" if BACKEND != "jax" else "int32", name="item")}
    rows = het_tf.keras.Embedding(4, "sum", name="rows", optimizer=het_tf.optimizers.SGD(0.5))(inputs["item"])
    hidden = keras.layers.Dropout(0.5, name="drop")(keras.layers.Dense(3, "tanh", name="hidden")(rows))
    return keras.Model(inputs, keras.layers.Dense(1, name="top")(hidden))


def export(folder: Path, server: str) -> None:
    for other in ("torch", "jax"):
        het_tf.init(ps=server, namespace=f"served-{other}")
        model = served_model()
        how = het_tf.serving.Native(follow=het_tf.serving.Follow(server))
        het_tf.export(model, folder / f"served-{other}", how, verbose=False)
        het_tf.reset()


def publish(folder: Path, server: str) -> None:
    het_tf.init(ps=server, namespace=f"served-{BACKEND}")
    model = served_model()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    ids, labels = data({"item": (2,)}, 1)
    model.fit(ids, labels, epochs=1, verbose=0, callbacks=[het_tf.callbacks.Publish(every=1e-3)])
    model.fit(ids, labels, epochs=1, verbose=0)
    version = het_tf.publish(model, trained_through="the second epoch")
    assert version.number > 2 and version.trained_through == "the second epoch"
    some = {"item": ids["item"][:50]}
    np.savez(folder / f"served-{BACKEND}.npz", **some, answers=model.predict(some, verbose=0))


def serve(folder: Path) -> None:
    import tensorflow as tf

    assert het_tf.serving  # which registers the ops

    for other in ("torch", "jax"):
        found = np.load(folder / f"served-{other}.npz")
        served = tf.saved_model.load(str(folder / f"served-{other}")).signatures["serving_default"]
        (answers,) = served(item=tf.constant(found["item"], tf.int64)).values()
        np.savez(folder / f"answers-{other}.npz", answers=answers.numpy())


if __name__ == "__main__":
    action, place, *rest = sys.argv[1:]
    actions = {"train": train, "open": open_it, "export": export, "publish": publish, "serve": serve}
    actions[action](Path(place), *rest)
