"""het_tf.export: what is asked of a SavedModel, and what it answers."""

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


@pytest.mark.slow
@pytest.mark.parametrize("format", ["portable", "native"])
@pytest.mark.parametrize("name", ["direct", "cached"])
def test_predictions_are_those_of_the_training_model(name, format, exported):
    one = exported[name]
    serve = lib.serve(one.paths[format])
    inputs = serve.function.structured_input_signature[1]
    assert set(inputs) == set(one.batches[0]) and inputs["s"].shape.as_list() == [None, None]
    assert list(tf.saved_model.load(str(one.paths[format])).signatures) == ["serving_default"]
    for batch, wanted in zip(one.batches, one.answers, strict=True):
        lib.assert_predicts(serve(**batch)["output_0"], wanted)
    ops = lib.ops_of(one.paths[format])
    own = {op for op in ops if op.startswith("Het")}
    assert own == (set() if format == "portable" else {"HetServe"})
    assert not {op for op in ops if "PyFunc" in op}, "servers have no Python"
    assert format == "native" or "ResourceGather" in ops


@pytest.mark.slow
def test_slots_and_optimizers_stay(rng, tmp_path):
    model = lib.trained(rng, optimizer=het_tf.optimizers.Adam(0.01))
    het_tf.export(model, tmp_path / "1", verbose=False)
    stored = tf.train.load_checkpoint(str(tmp_path / "1" / "variables" / "variables"))
    shapes = stored.get_variable_to_shape_map()
    wide = {shape[1] for shape in shapes.values() if len(shape) == 2}
    assert wide == {4, 1, 8, 3}  # rows of 4 and 1, kernels, numbers of the index; no row with slots (12)
    assert not [name for name in shapes if "anchor" in name or "optimizer" in name]


FORMATS = {"portable": het_tf.serving.Portable(), "native": het_tf.serving.Native()}
LOWEST = 1 - 2**63  # -2**63 is refused
RAGGED = ("ragged", "sequence")
CONSTANT = het_tf.initializers.Constant(2.0)


@pytest.mark.parametrize("format", FORMATS)
def test_inputs_of_every_kind(format, rng, tmp_path):
    normal = het_tf.initializers.RandomNormal(0.0, 1.0)
    item = het_tf.TableConfig("item", 3, initializer=normal, stored="bfloat16")
    word = het_tf.TableConfig("word", 2, stored="int8")
    features = {
        "one": het_tf.FeatureConfig(item),
        **{f"padded_{how}": het_tf.FeatureConfig(item, how, padding_id=-1)
           for how in ("sum", "mean", "sqrtn", None)},
        "apart": het_tf.FeatureConfig(item, padding_id=LOWEST),
        "ragged": het_tf.FeatureConfig(word, combiner="sqrtn"),
        "sequence": het_tf.FeatureConfig(word, max_sequence_length=2),
        "text": het_tf.FeatureConfig(word),
    }  # fmt: skip
    inputs = {name: keras.Input((3,), dtype="int64", name=name) for name in features}
    inputs |= {
        "one": keras.Input((), dtype="int64", name="one"),
        "apart": keras.Input((2, 2), dtype="int64", name="apart"),
        "text": keras.Input((), dtype="string", name="text"),
        **{name: keras.Input((None,), dtype="int64", ragged=True, name=name) for name in RAGGED},
    }
    model = lib.embedding_model(features, inputs)
    lib.fill("item", [-1, 0, 1, 2, 3, LOWEST, 2**63 - 1], rng)  # -1 has a row, which padding does not read
    hashed = tf.strings.to_hash_bucket_strong(["cat", "näme"], 2**63 - 1, [0x6865745F7466, 0x656D626564])
    lib.fill("word", [1, 2, 3, *hashed.numpy()], rng)
    padded = tf.constant([[0, 1, -1], [-1, -1, -1], [2, 77, 2], [1, 1, 1]], tf.int64)
    ragged = tf.ragged.constant([[1, 2, 3], [], [3], [77, 3, 1]], dtype=tf.int64)
    batch = {
        "one": tf.constant([1, LOWEST, 2**63 - 1, 77], tf.int64),
        "apart": tf.constant([[[1, 2], [3, LOWEST]]] * 4, tf.int64),
        "text": tf.constant(["cat", "dog", "", "näme"]),
        **dict.fromkeys(RAGGED, ragged),
        **{name: padded for name in features if name.startswith("padded")},
    }
    wanted = model(batch, training=False)
    assert np.abs(wanted["text"]).max() > 0.1  # rows that were assigned, not only initial ones
    assert (wanted["padded_mean"][1] == 0).numpy().all()
    given = {"serving_default": batch} if format == "native" else None
    het_tf.export(model, tmp_path / "1", FORMATS[format], signatures=given, verbose=False)
    got = lib.serve(tmp_path / "1")(**signatures.feed(list(batch), list(batch.values())))
    for name, rows in wanted.items():
        np.testing.assert_array_equal(got[name], rows.numpy(), err_msg=name)


@pytest.mark.parametrize("unknown", ["initial", "zeros"])
@pytest.mark.parametrize("format", [het_tf.serving.Portable, het_tf.serving.Native])
def test_ids_without_a_row(format, unknown, rng, tmp_path):
    """Of a table with rows, and of an empty one; and no ids at all."""
    tables = [het_tf.TableConfig("u", 3), het_tf.TableConfig("c", 3, initializer=CONSTANT),
              het_tf.TableConfig("none", 3)]  # fmt: skip
    inputs = {table.name: keras.Input((), dtype="int64", name=table.name) for table in tables}
    model = lib.embedding_model({t.name: het_tf.FeatureConfig(t) for t in tables}, inputs)
    rows = {name: lib.fill(name, [5, -5], rng) for name in "uc"}
    before = [het_tf.Table(name).scan() for name in inputs]
    het_tf.export(model, tmp_path / "1", format(unknown=unknown), verbose=False)
    for name, columns in zip(inputs, before, strict=True):
        np.testing.assert_equal(het_tf.Table(name).scan(), columns)  # an export changes nothing
    serve, ids = lib.serve(tmp_path / "1"), np.array([5, 6, LOWEST, -5], np.int64)
    got = serve(**dict.fromkeys(inputs, ids))
    for name in inputs:
        want = het_tf.Table(name).lookup(ids) if unknown == "initial" else np.zeros((4, 3), np.float32)
        if name in rows:
            want[[0, 3]] = rows[name]
        np.testing.assert_array_equal(got[name], want, err_msg=name)
    assert serve(**dict.fromkeys(inputs, ids[:0]))["u"].shape == (0, 3)
    assert unknown == "initial" or "If" not in lib.ops_of(tmp_path / "1")


def test_sparse_ids_with_weights(rng, tmp_path):
    feature = het_tf.FeatureConfig(het_tf.TableConfig("item", 3), "sum", padding_id=-1)
    layer = het_tf.keras.EmbeddingCollection({"x": feature})
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


def test_lists_sequentials_and_output_names(rng, tmp_path):
    table = het_tf.TableConfig("item", 2)
    a, b = (keras.Input((), dtype="int64", name=name) for name in "ab")
    layer = het_tf.keras.EmbeddingCollection([het_tf.FeatureConfig(table), het_tf.FeatureConfig(table)])
    rows = layer([b, a])
    model = keras.Model([b, a], keras.layers.Dense(1, name="click")(rows[0]))
    het_tf.export(model, tmp_path / "list", verbose=False)
    ids = [tf.constant([1, 2], tf.int64), tf.constant([3, 4], tf.int64)]
    got = lib.serve(tmp_path / "list")(b=ids[0], a=ids[1])
    assert set(got) == {"click"}
    lib.assert_predicts(got["click"], model(ids, training=False))

    inputs = keras.Input((), dtype="int64", name="id")
    sequential = keras.Sequential([inputs, het_tf.keras.Embedding(3, name="of")])
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
    given = {
        "text": from_text,
        "specs": {"ids": tf.TensorSpec([None], tf.int64)},
        "batch": {"ids": np.array([1, 2, 3])},
    }
    het_tf.export(model, tmp_path / "1", signatures=given, verbose=False)
    ids = np.array([1, 7])
    np.testing.assert_array_equal(lib.serve(tmp_path / "1", "text")(text=["1", "7"])["rows"], wanted)
    for name in ("specs", "batch"):
        np.testing.assert_array_equal(lib.serve(tmp_path / "1", name)(ids=ids)["ids"], wanted)
    assert not [op for op in lib.ops_of(tmp_path / "1") if op.startswith("Het")]


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
