"""het_tf.convert: layers and models that cannot become tables are named, with what to do; nothing is left."""

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]


def around(layer, shape=(3,)):
    ids = keras.Input(shape, dtype="int64", name="ids")
    return keras.Model(ids, keras.layers.Dense(1)(layer(ids)), name="m")


def embedding(**more):
    return around(keras.layers.Embedding(9, 2, name="e", **more))


class Scaled(keras.layers.Embedding):
    def call(self, inputs):
        return 2 * super().call(inputs)


class Holds(keras.layers.Layer):
    def __init__(self, **more):
        super().__init__(**more)
        self.inner = keras.layers.Embedding(9, 2, name="inner")

    def call(self, inputs):
        return self.inner(inputs)


class Tied(keras.layers.Layer):
    def __init__(self, embedding):
        super().__init__(name="tied")
        self.embedding = embedding

    def call(self, inputs):
        return tf.matmul(inputs, tf.convert_to_tensor(self.embedding.embeddings), transpose_b=True)


class Unknown(keras.layers.Layer):
    def __init__(self, number):
        super().__init__(name="unknown")
        self.number = number

    def call(self, inputs):
        return inputs * self.number

    def get_config(self):
        return {"name": self.name}


def tied(how):
    ids = keras.Input((3,), dtype="int64")
    layer = keras.layers.Embedding(9, 2, name="e")
    rows = layer(ids)
    if how == "layer":
        return keras.Model(ids, Tied(layer)(rows))
    by = keras.layers.Lambda(lambda x: tf.matmul(x, layer.embeddings, transpose_b=True), name="by")
    return keras.Model(ids, by(rows))


def of_floats():
    x = keras.Input((3,), name="x")
    return keras.Model(
        x, keras.layers.Embedding(9, 2, name="e")(keras.layers.Rescaling(2.0, name="twice")(x))
    )


def of_ids_and_numbers():
    x = keras.Input((3,), name="x")
    rows = keras.layers.Flatten()(keras.layers.Embedding(9, 2, name="e")(x))
    return keras.Model(x, keras.layers.Concatenate()([rows, x]))


def not_copied():
    ids = keras.Input((3,), dtype="int64")
    return keras.Model(ids, Unknown(3.0)(keras.layers.Embedding(9, 2, name="e")(ids)))


def not_finite():
    model = embedding()
    model.get_layer("e").set_weights([np.full((9, 2), np.nan, np.float32)])
    return model


def subclassed():
    class Mine(keras.Model):
        def __init__(self):
            super().__init__(name="mine")
            self.rows = keras.layers.Embedding(9, 2)

        def call(self, inputs):
            return self.rows(inputs)

    return Mine()


CASES = {
    "regularizer": (lambda: embedding(embeddings_regularizer="l2"), r"e: embeddings_regularizer is L2.*l2="),
    "constraint": (
        lambda: embedding(embeddings_constraint=keras.constraints.MaxNorm(2)),
        r"e: embeddings_constraint is MaxNorm.*max_norm=",
    ),
    "activity": (
        lambda: embedding(activity_regularizer="l2"),
        "e: activity_regularizer is L2.*ActivityRegularization",
    ),
    "subclass": (lambda: around(Scaled(9, 2, name="s")), "s: it is a Scaled, a subclass of"),
    "inside": (lambda: around(Holds(name="h")), "h: it is a Holds that holds the Embedding 'inner'"),
    "wrapped": (
        lambda: around(
            keras.layers.TimeDistributed(keras.layers.Embedding(9, 2, name="e"), name="t"), (3, 4)
        ),
        "t: it is a TimeDistributed that holds the Embedding 'e'",
    ),
    "tied layer": (lambda: tied("layer"), "e: 'tied' reads its rows, too .tied weights."),
    "tied function": (lambda: tied("function"), "e: 'by' reads its rows, too .tied weights."),
    "float64": (lambda: embedding(dtype="float64"), "e: its rows are float64"),
    "floats": (of_floats, "e: its ids come from 'twice' as float32.*cast them"),
    "ids and numbers": (of_ids_and_numbers, "input 'x' has floats that are read as ids and as numbers"),
    "not copied": (not_copied, r"layer 'unknown' \(Unknown\) cannot be copied.*get_config"),
    "not finite": (not_finite, "e: its rows hold NaN or Inf"),
    "none": (lambda: around(keras.layers.Dense(1)), "model 'm' has no layer keras.layers.Embedding"),
    "subclassed": (subclassed, r"model 'mine' is a subclass of keras.Model \(Mine\).*het_tf.keras.Embedding"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_with_a_remedy(case):
    make, words = CASES[case]
    model = make()
    with pytest.raises(ValueError, match=f"(?s){words}"):
        het_tf.convert(model)
    assert het_tf.tables() == []


def test_given_table_replaces_keras_settings(fresh):
    old = embedding(embeddings_regularizer="l2")
    table = het_tf.TableConfig("e", 2, l2=0.01)
    new = het_tf.convert(old, {"e": table}, verbose=False)
    ids = fresh.integers(0, 9, (4, 3))
    np.testing.assert_array_equal(old.predict(ids, verbose=0), new.predict(ids, verbose=0))


def test_all_faults_are_named_and_others_can_be_left():
    ids = keras.Input((3,), dtype="int64")
    rows = [
        keras.layers.Embedding(9, 2, name=name, **more)(ids)
        for name, more in {"a": {"embeddings_regularizer": "l2"}, "b": {}, "c": {"dtype": "float64"}}.items()
    ]
    rows[2] = keras.layers.Lambda(lambda x: tf.cast(x, tf.float32), output_shape=(3, 2))(rows[2])
    model = keras.Model(ids, keras.layers.Concatenate()(rows))
    with pytest.raises(ValueError, match="a: embeddings_regularizer") as refused:
        het_tf.convert(model)
    assert "c: its rows are float64" in str(refused.value) and "b:" not in str(refused.value)
    het_tf.convert(model, layers=["b"], verbose=False)
    assert het_tf.tables() == ["b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tables": {"x": "y"}}, "tables names 'x'; the layers keras.layers.Embedding of model 'm' are 'e'"),
        ({"layers": ["x"]}, "layers names 'x'"),
        ({"tables": ["e"]}, "give a dict from names of layers"),
        ({"tables": {"e": 3}}, r"tables\['e'\] is 3; give a het_tf.TableConfig"),
        ({"tables": {"e": het_tf.TableConfig("e", 5)}}, "has dim 5, but the rows of the layer have 2 floats"),
        ({"optimizer": "nadam"}, "nadam"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        het_tf.convert(embedding(), **arguments)
    assert het_tf.tables() == []


def test_no_model_at_all():
    with pytest.raises(TypeError, match="model is int; give a Keras model"):
        het_tf.convert(3)


def test_a_model_that_has_no_weights_yet():
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="has no weights yet; call it"):
        het_tf.convert(model)


def test_rows_of_others_are_not_overwritten():
    layer = het_tf.keras.Embedding(2, name="e")
    het_tf.Table("e").assign([1], np.ones((1, 2)))
    with pytest.raises(ValueError, match="table 'e' exists already, with 1 rows"):
        het_tf.convert(embedding())
    np.testing.assert_array_equal(het_tf.Table("e").to_numpy()[1], np.ones((1, 2)))
    het_tf.convert(embedding(), {"e": "other"}, verbose=False)
    assert layer.tables[0].name == "e"


def test_two_layers_do_not_become_one_table():
    ids = keras.Input((), dtype="int64")
    rows = [keras.layers.Embedding(9, 2, name=name)(ids) for name in "ab"]
    model = keras.Model(ids, keras.layers.Dot(1)(rows))
    with pytest.raises(ValueError, match="'a' and 'b' both become the table 't'"):
        het_tf.convert(model, {"a": "t", "b": "t"})


def lookup_model(**more):
    options = {"vocabulary": ["a", "b"], "name": "lookup", **more.pop("lookup", {})}
    lookup = keras.layers.StringLookup(**options)
    token = keras.Input((3,), dtype="string")
    numbers = lookup(token)
    rows = keras.layers.Embedding(4, 2, name="e", mask_zero=more.pop("mask_zero", False))(numbers)
    if more.pop("twice", False):
        count = keras.layers.CategoryEncoding(4, "count", name="bag")(numbers)
        rows = keras.layers.Concatenate()([keras.layers.Flatten()(rows), count])
    return keras.Model(token, rows)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: lookup_model(mask_zero=True), "mask_zero is True, but 'lookup' has no mask_token"),
        (lambda: lookup_model(twice=True), "'bag' reads the output of 'lookup', too"),
    ],
)
def test_lookups_that_cannot_go(model, words):
    with pytest.raises(ValueError, match=f"(?s){words}.*open_vocabulary=False"):
        het_tf.convert(model(), open_vocabulary=True)
    het_tf.convert(model(), verbose=False)
