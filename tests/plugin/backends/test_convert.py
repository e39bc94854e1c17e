"""het_tf.keras.convert: a copy predicts the same, and trains its tables; what it refuses is named."""

import keras
import numpy as np
import pytest
from backends_lib import IDS, array

import het_tf

convert = het_tf.keras.convert


def clicks():
    """A model of ids, of a list of ids through a nested model that is called twice, and of numbers."""
    ids, seen = keras.Input((), dtype="int32", name="ids"), keras.Input((3,), dtype="int32", name="seen")
    numbers = keras.Input((2,), name="numbers")
    tower = keras.Sequential(
        [keras.Input((3,), dtype="int32"), keras.layers.Embedding(IDS, 2, name="e"), keras.layers.Flatten()],
        name="tower",
    )
    scaled = keras.layers.Normalization(mean=[1.0, 2.0], variance=[4.0, 9.0])(numbers)
    rows = keras.layers.Embedding(IDS, 4, name="item", trainable=False)(ids)
    parts = [rows, tower(seen), tower(keras.ops.flip(seen, 1)), keras.layers.BatchNormalization()(scaled)]
    x = keras.layers.Dense(5, activation="tanh")(keras.layers.Concatenate()(parts))
    return keras.Model({"ids": ids, "seen": seen, "numbers": numbers}, keras.layers.Dense(1)(x), name="m")


def batch():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, IDS, (8, 4)).astype("int32")
    return {"ids": ids[:, 0], "seen": ids[:, 1:], "numbers": rng.normal(size=(8, 2)).astype("float32")}


def equal(old, new, x):
    np.testing.assert_array_equal(array(old(x, training=False)), array(new(x, training=False)))


def test_a_copy_predicts_the_same_and_trains_by_itself():
    """Catches weights and rows that are not copied, or shared with the old model."""
    old, x = clicks(), batch()
    old.compile("sgd", "mse")
    old.fit(x, np.ones((8, 1)), verbose=0)
    before = array(old(x, training=False))
    new = convert(old, optimizer=het_tf.optimizers.SGD(0.5), cache=het_tf.Cache(rows=5))
    equal(old, new, x)
    assert new.compiled and sorted(het_tf.tables()) == ["e", "item"]
    for name, layer in (("item", old.get_layer("item")), ("e", old.get_layer("tower").get_layer("e"))):
        ids, rows = het_tf.Table(name).to_numpy()
        np.testing.assert_array_equal(ids, np.arange(IDS))
        np.testing.assert_array_equal(rows, layer.get_weights()[0])
    frozen = het_tf.Table("item").to_numpy()[1]
    new.fit(x, np.ones((8, 1)), verbose=0)
    np.testing.assert_array_equal(before, array(old(x, training=False)))
    np.testing.assert_array_equal(het_tf.Table("item").to_numpy()[1], frozen)
    seen = np.unique(x["seen"])
    changed = het_tf.Table("e").to_numpy()[1] != old.get_layer("tower").get_layer("e").get_weights()[0]
    np.testing.assert_array_equal(np.flatnonzero(changed.any(1)), seen)


def test_a_sequential_model_of_floats_and_masks():
    rest = [keras.layers.LSTM(2), keras.layers.Dense(1)]
    old = keras.Sequential([keras.layers.Embedding(9, 2, mask_zero=True, name="e"), *rest])
    ids = np.array([[3, 5, 0, 0], [1, 0, 2, 0], [8, 7, 6, 5]])
    old(ids)
    with pytest.raises(ValueError, match=r"e: mask_zero is True and row 0 is not zeros.*set the row to ze"):
        convert(old)
    rows = old.layers[0].get_weights()[0]
    old.layers[0].set_weights([np.where(np.arange(9)[:, None] == 0, 0, rows)])
    new = convert(old)
    assert keras.backend.is_int_dtype(new.inputs[0].dtype)
    equal(old, new, ids)


def test_ids_that_are_computed_as_floats():
    x = keras.Input((3,), name="x")
    old = keras.Model(x, keras.layers.Embedding(9, 2, name="e")(keras.layers.Rescaling(2.0)(x)))
    equal(old, convert(old), np.array([[0.0, 1.0, 4.0]], "float32"))


Scaled = type("Scaled", (keras.layers.Embedding,), {})
Subclass = type("Subclass", (keras.Model,), {})


class Tied(keras.layers.Layer):
    def __init__(self, embedding):
        super().__init__(name="tied")
        self.embedding = embedding

    def call(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(self.embedding.embeddings))


def around(layer, then=lambda x: x, shape=(3,)):
    ids = keras.Input(shape, dtype="int32")
    return keras.Model(ids, then(layer(ids)), name="m")


def embedding(**more):
    return keras.layers.Embedding(9, 2, name="e", **more)


def tied(make):
    layer = embedding()
    return around(layer, make(layer))


def not_finite():
    model = around(embedding())
    model.get_layer("e").set_weights([np.full((9, 2), np.nan)])
    return model


REFUSED = {
    "no model": (lambda: 3, "model is int; give a Keras model"),
    "subclass": (lambda: Subclass(name="s"), r"'s' is a subclass of keras.Model \(Subclass\).*write het_tf"),
    "not built": (lambda: keras.Sequential([embedding()]), "has no weights yet; call it"),
    "nothing": (lambda: around(keras.layers.Dense(1)), "'m' has no layer keras.layers.Embedding"),
    "kind": (lambda: around(Scaled(9, 2, name="e")), "e: it is a subclass of keras.layers.Embedding"),
    "regularizer": (lambda: around(embedding(embeddings_regularizer="l2")), "e: embeddings_regularizer"),
    "constraint": (lambda: around(embedding(embeddings_constraint="max_norm")), "e: embeddings_constraint"),
    "activity": (lambda: around(embedding(activity_regularizer="l2")), "e: activity_regularizer is set"),
    "not finite": (not_finite, "e: its rows hold NaN or Inf"),
    "inside": (lambda: around(keras.layers.TimeDistributed(embedding(), name="t"), shape=(3, 4)),
               "t: it holds an Embedding, which a copy cannot replace"),
    "tied layer": (lambda: tied(Tied), r"e: \['tied'\] read its rows, too"),
    "tied function": (lambda: tied(lambda e: keras.layers.Lambda(lambda x: x * e.embeddings[0], name="by")),
                      r"e: \['by'\] read its rows, too"),
    "one name": (lambda: keras.Model(x := keras.Input((3,), dtype="int32"),
                                     [embedding()(x), around(embedding())(x)]),
                 "e: another layer has its name"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_leaves_nothing(name):
    make, message = REFUSED[name]
    with pytest.raises(TypeError if name == "no model" else ValueError, match=message):
        convert(make())
    assert het_tf.tables() == []


def test_some_layers_and_names_that_exist():
    """The rest stays as it is; a table of others is not overwritten."""
    old = clicks()
    with pytest.raises(ValueError, match=r"layers names \['x'\]; the Embedding layers of 'm' are \["):
        convert(old, layers=["x"])
    equal(old, convert(old, layers=["item"]), batch())
    assert het_tf.tables() == ["item"]
    with pytest.raises(ValueError, match="item: table 'item' exists already; rename the layer, or"):
        convert(old)
    assert het_tf.tables() == ["item"]
