"""het_tf.export: what is asked of a SavedModel, and what it answers."""

from __future__ import annotations

import export_lib as lib
import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf.ext.serving.python.export import signatures

pytestmark = [
    pytest.mark.usefixtures("fresh", "eagerly"),
    pytest.mark.filterwarnings("error::het_tf.python.table.notes.TablesNotSavedWarning"),
]

keras = tf.keras


# --- the same numbers ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("format", ["portable", "native"])
@pytest.mark.parametrize("name", ["direct", "cached"])
def test_predictions_are_those_of_the_training_model(name, format, exported):
    one = exported[name]
    serve = lib.serve(one.paths[format])
    for batch, wanted in zip(one.batches, one.answers, strict=True):
        lib.assert_predicts(serve(**batch)["output_0"], wanted)
    ops = lib.ops_of(one.paths[format])
    own = {op for op in ops if op.startswith("Het")}
    assert own == (set() if format == "portable" else {"HetServe"})
    assert format == "native" or "ResourceGather" in ops


def test_the_export_is_a_moment(rng, tmp_path):
    model = lib.one_table()
    lib.fill("item", [1, 2, 3], rng)
    before = model({"ids": tf.constant([1, 2, 9])})["ids"].numpy()
    het_tf.export(model, tmp_path / "1", verbose=False)
    lib.fill("item", [1, 2, 9], rng)
    assert not np.array_equal(model({"ids": tf.constant([1, 2, 9])})["ids"].numpy(), before)
    np.testing.assert_array_equal(lib.serve(tmp_path / "1")(ids=np.array([1, 2, 9]))["ids"], before)


@pytest.mark.slow
def test_export_changes_nothing(rng, tmp_path):
    model = lib.trained(rng)
    before = {name: het_tf.Table(name).scan() for name in het_tf.tables()}
    het_tf.export(model, tmp_path / "1", verbose=False)
    for name, columns in before.items():
        after = het_tf.Table(name).scan()
        for column, values in columns.items():
            np.testing.assert_array_equal(after[column], values)
    lib.train(model, rng)
    changed = het_tf.Table("toy/deep").scan()["rows"]
    assert not np.array_equal(changed, before["toy/deep"]["rows"])


@pytest.mark.slow
def test_slots_and_optimizers_stay(rng, tmp_path):
    model = lib.trained(rng, optimizer=het_tf.optimizers.Adam(0.01))
    het_tf.export(model, tmp_path / "1", verbose=False)
    stored = tf.train.load_checkpoint(str(tmp_path / "1" / "variables" / "variables"))
    shapes = stored.get_variable_to_shape_map()
    wide = {shape[1] for shape in shapes.values() if len(shape) == 2}
    assert wide == {4, 1, 8, 3}  # rows of 4 and 1, kernels, numbers of the index; no row with slots (12)
    assert not [name for name in shapes if "anchor" in name or "optimizer" in name]


# --- inputs of every kind -----------------------------------------------------------------------------------


def features(combiner):
    table = het_tf.TableConfig("item", 3, initializer=het_tf.initializers.RandomNormal(0.0, 1.0))
    return {"x": het_tf.FeatureConfig(table, combiner, padding_id=-1)}


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", None])
def test_padded_ids(combiner, rng, tmp_path):
    x = keras.Input((3,), dtype="int64", name="x")
    model = lib.embedding_model(features(combiner), {"x": x})
    lib.fill("item", [-1, 0, 1, 2], rng)  # -1 has a row, which padding does not read
    het_tf.export(model, tmp_path / "1", verbose=False)
    ids = np.array([[0, 1, -1], [-1, -1, -1], [2, 77, 2]])
    wanted = model({"x": tf.constant(ids)})["x"].numpy()
    np.testing.assert_array_equal(lib.serve(tmp_path / "1")(x=ids)["x"], wanted)
    assert (wanted[1] == 0).all() and wanted[0].any()


@pytest.mark.parametrize("combiner", ["mean", None])
def test_ragged_ids(combiner, rng, tmp_path):
    sequence = None if combiner else 4
    table = het_tf.TableConfig("item", 3)
    feature = het_tf.FeatureConfig(table, combiner, max_sequence_length=sequence)
    layer = het_tf.keras.EmbeddingCollection({"x": feature})
    ids = tf.ragged.constant([[1, 2, 3], [], [9]], dtype=tf.int64)

    class Model(keras.Model):
        def call(self, inputs, training=None):
            return layer(inputs)

        def input_specs(self):
            return {"x": tf.RaggedTensorSpec([None, None], tf.int64, row_splits_dtype=tf.int64)}

    model = Model()
    model.tables_layer = layer
    wanted = model({"x": ids})["x"].numpy()
    lib.fill("item", [1, 2], rng)
    wanted = model({"x": ids})["x"].numpy()
    het_tf.export(model, tmp_path / "1", verbose=False)
    got = lib.serve(tmp_path / "1")(x_values=ids.flat_values, x_row_splits=ids.row_splits)["x"]
    np.testing.assert_array_equal(got, wanted)


def test_sparse_ids_with_weights(rng, tmp_path):
    layer = het_tf.keras.EmbeddingCollection(features("sum"))
    ids = tf.SparseTensor([[0, 0], [0, 2], [2, 1]], tf.constant([5, 6, 5], tf.int64), [3, 3])
    weights = ids.with_values(tf.constant([0.5, 2.0, -1.0]))

    class Model(keras.Model):
        def call(self, inputs, training=None):
            ids, weights = inputs
            return layer({"x": ids}, weights={"x": weights})["x"]

    model = Model()
    model.tables_layer = layer
    lib.fill("item", [5], rng)
    wanted = model((ids, weights)).numpy()
    het_tf.export(model, tmp_path / "1", signatures={"serving_default": (ids, weights)}, verbose=False)
    feed = signatures.feed(["inputs_0", "inputs_1"], [ids, weights])
    assert set(feed) == {f"inputs_{n}_{part}" for n in (0, 1) for part in ("indices", "values", "shape")}
    np.testing.assert_array_equal(lib.serve(tmp_path / "1")(**feed)["output_0"], wanted)


def test_string_ids(rng, tmp_path):
    config = het_tf.TableConfig("word", 3)
    words = keras.Input((2,), dtype="string", name="words")
    model = lib.embedding_model({"words": het_tf.FeatureConfig(config)}, {"words": words})
    batch = tf.constant([["cat", "dog"], ["", "näme"]])
    het_tf.Table("word").assign(
        tf.strings.to_hash_bucket_strong(["cat", "näme"], 2**63 - 1, [0x6865745F7466, 0x656D626564]).numpy(),
        rng.normal(size=(2, 3)),
    )
    het_tf.export(model, tmp_path / "1", verbose=False)
    got = lib.serve(tmp_path / "1")(words=batch)["words"]
    np.testing.assert_array_equal(got, model({"words": batch})["words"].numpy())
    assert np.abs(got).max() > 0.05  # rows that were assigned, not only initial ones


# --- signatures ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_default_signature_has_the_names_of_the_inputs(exported):
    path = exported["cached"].paths["portable"]
    function = lib.serve(path).function
    assert set(function.structured_input_signature[1]) == {"a", "h", "a_x_h", "s", "numeric"}
    assert function.structured_input_signature[1]["s"].shape.as_list() == [None, None]
    assert list(tf.saved_model.load(str(path)).signatures) == ["serving_default"]


def test_lists_sequentials_and_output_names(rng, tmp_path):
    table = het_tf.TableConfig("item", 2)
    a, b = (keras.Input((), dtype="int64", name=name) for name in "ab")
    layer = het_tf.keras.EmbeddingCollection([het_tf.FeatureConfig(table), het_tf.FeatureConfig(table)])
    rows = layer([b, a])
    click = keras.layers.Dense(1, name="click")(rows[0])
    model = keras.Model([b, a], click)
    het_tf.export(model, tmp_path / "list", verbose=False)
    ids = [tf.constant([1, 2], tf.int64), tf.constant([3, 4], tf.int64)]
    got = lib.serve(tmp_path / "list")(b=ids[0], a=ids[1])
    assert set(got) == {"click"}
    lib.assert_predicts(got["click"], model(ids, training=False))

    sequential = keras.Sequential(
        [keras.Input((), dtype="int64", name="id"), het_tf.keras.Embedding(3, name="of")]
    )
    het_tf.export(sequential, tmp_path / "sequential", verbose=False)
    (got,) = lib.serve(tmp_path / "sequential")(id=np.array([4, 5])).values()
    np.testing.assert_array_equal(got, sequential(tf.constant([4, 5], tf.int64)).numpy())


def test_signatures_of_the_users(rng, tmp_path):
    model = lib.one_table()
    lib.fill("item", [1, 2], rng)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def from_text(text):
        ids = tf.strings.to_number(text, tf.int64)
        if tf.size(ids) > 100:  # autograph goes on working
            ids = ids[:100]
        return {"rows": model({"ids": ids}, training=False)["ids"]}

    wanted = from_text(tf.constant(["1", "7"]))["rows"].numpy()  # traced before, with the live table
    het_tf.export(
        model,
        tmp_path / "1",
        signatures={
            "text": from_text,
            "specs": {"ids": tf.TensorSpec([None], tf.int64)},
            "batch": {"ids": np.array([1, 2, 3])},
        },
        verbose=False,
    )
    ids = np.array([1, 7])
    np.testing.assert_array_equal(lib.serve(tmp_path / "1", "text")(text=["1", "7"])["rows"], wanted)
    for name in ("specs", "batch"):
        np.testing.assert_array_equal(lib.serve(tmp_path / "1", name)(ids=ids)["ids"], wanted)
    assert not [op for op in lib.ops_of(tmp_path / "1") if op.startswith("Het")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give a dict from names"),
        ([1], "give a dict from names"),
        ({"x": None}, "give the model's inputs"),
        ({"x": lambda ids: ids}, "give the model's inputs"),
        ({"": {"ids": np.array([1])}}, "non-empty strings"),
        ({"x": tf.function(lambda ids: ids)}, "without an input_signature"),
        ({"x": {"ids": 3}}, "batch dimension"),
        ({"x": {"ids": object()}}, "is not an input of a model"),
    ],
)
def test_bad_signatures(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        het_tf.export(lib.one_table(), tmp_path / "1", signatures=given)
    assert not list(tmp_path.iterdir())


def test_a_model_without_inputs_says_what_to_give(tmp_path):
    embedding = het_tf.keras.Embedding(3, name="e")

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = embedding

        def call(self, ids, training=None):
            return self.embedding(ids)

    model = Model()
    with pytest.raises(ValueError, match="call it on a batch"):
        het_tf.export(model, tmp_path / "1")
    ids = tf.constant([1, 2], tf.int64)
    wanted = model(ids).numpy()
    with pytest.raises(ValueError, match=r"no keras.Input.*input_specs"):
        het_tf.export(model, tmp_path / "1")
    het_tf.export(model, tmp_path / "1", signatures={"serving_default": ids}, verbose=False)
    np.testing.assert_array_equal(lib.serve(tmp_path / "1")(inputs=ids)["output_0"], wanted)
