"""A model on one backend, and what another opens or serves of it: test_together.py runs these functions."""

from __future__ import annotations

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


def train(folder: str, server: str) -> dict:
    """Models whose rows' gradients are equal on all backends, and Wide & Deep; returns their tables."""

    def fit(model, ids, labels):
        model.fit(ids, labels, batch_size=BATCH, shuffle=False, verbose=0)
        return model

    fit(*wide_deep())
    found = {"rounded": tables(["deep", "linear"])}
    het_tf.reset()
    model = fit(*exact_model())
    found["exact"] = tables(["item", "wide"])
    model.save_weights(f"{folder}/{BACKEND}.weights.h5")
    model.save(f"{folder}/{BACKEND}.keras")
    het_tf.checkpoint.save(f"{folder}/{BACKEND}-checkpoints", model, step=1)
    het_tf.reset()
    if server:
        het_tf.init(ps=server, namespace=BACKEND)
        fit(*exact_model())
        stats = het_tf.Table("item").stats()["cache"]
        assert stats["reads"] > 0 and stats["ticks"] > 0
        het_tf.flush()
        found["server"] = tables(["item", "wide"])
        if BACKEND != "tensorflow":  # tests/ext/streams has it
            found["ahead"] = train_ahead(server)
    return found


def train_ahead(server: str) -> dict:
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
    return tables(["item", "wide"])


def open_it(folder: str, other: str, server: str) -> dict:
    """The tables that another backend has left in a folder and at the server, by each way to open them."""
    names = ["item", "wide"]
    model, *_ = exact_model()
    model.load_weights(f"{folder}/{other}.weights.h5")
    found = {"weights": tables(names)}
    het_tf.Table("item").clear()
    het_tf.checkpoint.restore(f"{folder}/{other}-checkpoints", model)
    found["checkpoint"] = tables(names)
    with het_tf.namespace("copy"):
        # A file of PyTorch names Keras' optimizer for PyTorch.
        keras.models.load_model(f"{folder}/{other}.keras", compile=False)
        found["keras"] = tables(names, "copy")
    for namespace in ("", "copy"):
        het_tf.reset(namespace)
    if server:
        het_tf.init(ps=server, namespace=other)
        exact_model()
        found["server"] = tables(names)
    return found


def served_model():
    """A model with a dense part and dropout, whose rows and weights begin otherwise in every process."""
    inputs = {"item": keras.Input((2,), dtype="int64" if BACKEND != "jax" else "int32", name="item")}
    rows = het_tf.keras.Embedding(4, "sum", name="rows", optimizer=het_tf.optimizers.SGD(0.5))(inputs["item"])
    hidden = keras.layers.Dropout(0.5, name="drop")(keras.layers.Dense(3, "tanh", name="hidden")(rows))
    return keras.Model(inputs, keras.layers.Dense(1, name="top")(hidden))


def export(folder: str, server: str) -> None:
    """TensorFlow exports a model for each other backend, to be followed."""
    for other in ("torch", "jax"):
        het_tf.init(ps=server, namespace=f"served-{other}")
        how = het_tf.serving.Native(follow=het_tf.serving.Follow(server))
        het_tf.export(served_model(), f"{folder}/served-{other}", how, verbose=False)
        het_tf.reset()


def publish(server: str) -> list:
    """Trains that model, and publishes its versions; returns ids, and answers for them."""
    het_tf.init(ps=server, namespace=f"served-{BACKEND}")
    model = served_model()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    ids, labels = data({"item": (2,)}, 1)
    model.fit(ids, labels, epochs=1, verbose=0, callbacks=[het_tf.callbacks.Publish(every=1e-3)])
    model.fit(ids, labels, epochs=1, verbose=0)
    version = het_tf.publish(model, trained_through="the second epoch")
    assert version.number > 2 and version.trained_through == "the second epoch"
    some = ids["item"][:50]
    return [some.tolist(), model.predict({"item": some}, verbose=0)]


def serve(folder: str, ids: dict) -> dict:
    """TensorFlow answers by the followed models, each for its ids."""
    import tensorflow as tf

    assert het_tf.serving  # which registers the ops
    found = {}
    for other, asked in ids.items():
        served = tf.saved_model.load(f"{folder}/served-{other}").signatures["serving_default"]
        (answers,) = served(item=tf.constant(asked, tf.int64)).values()
        found[other] = answers.numpy()
    return found
