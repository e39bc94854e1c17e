"""The layers in models of every kind, custom loops, configurations, callbacks."""

import json
import math
import os

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import assert_close
from rules_lib import keras, learn

import het_tf
from het_tf.python.session import settings

pytestmark = pytest.mark.usefixtures("fresh")

SGD = het_tf.optimizers.SGD


def collection(**more):
    """Three features, two tables, two dims."""
    item = het_tf.TableConfig("item", 4, optimizer=SGD(0.1))
    user = het_tf.TableConfig("user", 3, optimizer="adagrad", initializer="zeros")
    history = het_tf.FeatureConfig(item, combiner="mean", padding_id=-1)
    features = {"item": het_tf.FeatureConfig(item), "history": history, "user": het_tf.FeatureConfig(user)}
    return het_tf.keras.EmbeddingCollection(features, **more)


def batch(n=32, seed=0):
    rng = np.random.default_rng(seed)
    ids = {
        "item": rng.integers(0, 20, n),
        "history": rng.integers(-1, 20, (n, 5)),
        "user": rng.integers(0, 9, (n, 2)),
    }
    return ids, (ids["item"] % 2).astype(np.float32)[:, None]


def inputs():
    shapes = {"item": (), "history": (5,), "user": (2,)}
    return {name: keras.Input(shape, dtype="int64", name=name) for name, shape in shapes.items()}


def functional():
    features = inputs()
    rows = collection()(features)
    x = [rows["item"], rows["history"], keras.layers.Flatten()(rows["user"])]
    return keras.Model(features, keras.layers.Dense(1)(keras.layers.Concatenate()(x)))


def test_one_op_serves_all_features():
    layer = collection()
    shapes = {"item": [None], "history": [None, 5], "user": [None, 2]}
    function = tf.function(lambda ids: layer(ids, training=False)).get_concrete_function(
        {name: tf.TensorSpec(shape, tf.int64) for name, shape in shapes.items()}
    )
    assert [op.type for op in function.graph.get_operations()].count("HetLookup") == 1
    rows = {name: rows.shape.as_list() for name, rows in function.structured_outputs.items()}
    assert rows == {"item": [None, 4], "history": [None, 4], "user": [None, 2, 3]}


def test_structures_and_extra_keys():
    feature = het_tf.FeatureConfig(het_tf.TableConfig("t", 2))
    ids = tf.constant([1, 2])
    single = het_tf.keras.EmbeddingCollection(feature)(ids)
    listed = het_tf.keras.EmbeddingCollection([feature, feature])([ids, ids])
    named = het_tf.keras.EmbeddingCollection({"a": feature})({"a": ids, "other": tf.constant([1.5])})
    assert isinstance(listed, list) and list(named) == ["a"]
    for rows in (*listed, named["a"]):
        np.testing.assert_array_equal(rows, single)

    with pytest.raises(ValueError, match=r"inputs lacks \['history', 'user'\]"):
        collection()({"item": [1]})
    with pytest.raises(ValueError, match="the features are a dict"):
        collection()([[1], [1], [1]])


def test_output_dtype_follows_the_policy_and_tables_are_float32():
    layer = het_tf.keras.Embedding(4, name="t", dtype="mixed_bfloat16", combiner="sum")
    assert layer(tf.constant([[1]])).dtype == tf.bfloat16
    assert layer.trainable_variables[0].dtype in (tf.float32, "float32")
    assert het_tf.Table("t").lookup([1]).dtype == np.float32


@pytest.mark.parametrize("shape, combiner, length, want", [
    ((None,), None, None, (None, 4)),
    ((None, 3), None, None, (None, 3, 4)),
    ((None, 3, 2), None, None, (None, 3, 2, 4)),
    ((None,), "sum", None, (None, 4)),
    ((None, 3), "mean", None, (None, 4)),
    ((8, 3, 2), "sqrtn", None, (8, 3, 4)),
    ((None, 2, 3, 5), "sum", None, (None, 2, 3, 4)),
    ((None, None), None, 7, (None, 7, 4)),
    ((None, 3), None, 7, (None, 7, 4)),
    ((None, 9), None, 7, (None, 7, 4)),
])  # fmt: skip
def test_output_shapes_are_the_same_by_every_way(shape, combiner, length, want):
    layer = het_tf.keras.Embedding(4, name="t", combiner=combiner, max_sequence_length=length)
    assert tuple(layer.compute_output_shape(shape)) == want
    assert tuple(layer(keras.Input(shape[1:], batch_size=shape[0], dtype="int64")).shape) == want
    result = layer(tf.zeros([6 if extent is None else extent for extent in shape], tf.int64))
    assert all(b is None or a == b for a, b in zip(result.shape, want, strict=True))
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec(shape, tf.int64))
    assert tuple(graph.structured_outputs.shape) == want


def test_no_mask_without_padding_or_with_a_combiner():
    for name, more in (("a", {}), ("b", {"padding_id": 0, "combiner": "sum"})):
        assert het_tf.keras.Embedding(4, name=name, **more).compute_mask(tf.constant([[1]])) is None


def roundtrip(layer):
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.get_config() == layer.get_config() and copy.name == layer.name
    return copy


def test_config_of_a_collection():
    cache = het_tf.Cache(staleness=het_tf.Bounds(3, math.inf), rows=100, policy="lru")
    layer = collection(cache=cache, name="c")
    copy, (ids, _) = roundtrip(layer), batch()
    for name, rows in layer(ids).items():
        np.testing.assert_array_equal(copy(ids)[name], rows)


@pytest.mark.parametrize("optimizer", [
    SGD(0.1), SGD(0.1, 0.8, nesterov=True), SGD(keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)),
    het_tf.optimizers.RMSprop(0.1), het_tf.optimizers.Adam("model"), het_tf.optimizers.Adagrad(0.1, 0.2),
    het_tf.optimizers.RowWiseAdagrad(0.1), het_tf.optimizers.Ftrl(0.1, l1=0.01),
])  # fmt: skip
def test_config_of_an_embedding(optimizer):
    normal = het_tf.initializers.RandomNormal(0.1, 0.2)
    more = {"seed": 2**64 - 1, "l2": 0.5, "name": "e"}
    layer = het_tf.keras.Embedding(4, "mean", 7, "table", optimizer, normal, **more)
    copy = roundtrip(layer)
    assert type(copy.tables[0].optimizer) is type(optimizer)
    assert copy.tables[0].get_config() == layer.tables[0].get_config()


@pytest.mark.filterwarnings("ignore::het_tf.python.table.notes.TablesNotSavedWarning")
def test_an_exported_graph_reads_the_tables_of_the_process(tmp_path):
    model = functional()
    ids, _ = batch(4)
    ids = {name: tf.constant(value) for name, value in ids.items()}
    want = model(ids, training=False)

    module = tf.Module()
    module.serve = tf.function(lambda x: model(x, training=False)).get_concrete_function(
        {name: tf.TensorSpec([None, *value.shape[1:]], tf.int64, name=name) for name, value in ids.items()}
    )
    module.model = model
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    served = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert_close(next(iter(served(**ids).values())), want)
    het_tf.reset()
    with pytest.raises(tf.errors.FailedPreconditionError, match="no table"):
        served(**ids)


def test_cache_options_reach_the_core():
    cache = het_tf.Cache(rows=7, staleness=het_tf.Bounds(5, math.inf), policy="lru", checks="asked")
    het_tf.keras.Embedding(4, name="t", cache=cache)
    options = het_tf.Table("t").options["cache"]
    assert options.pop("write_back_rows") > 0
    assert options == {
        "rows": 7, "policy": "lru", "pull_bound": 5, "push_bound": None,
        "wire": "float32", "checks": "asked", "device": "cpu", "push_max_age": None,
    }  # fmt: skip
    het_tf.keras.Embedding(4, name="default", cache=het_tf.Cache(rows=7, staleness=5))
    options = het_tf.Table("default").options["cache"]
    assert (options["checks"], options["staleness"], options["workers"]) == ("notified", 5, 1)
    assert "pull_bound" not in options, "both bounds follow staleness"
    het_tf.keras.Embedding(4, name="direct", cache=het_tf.Cache(staleness=5))
    assert het_tf.Table("direct").options == {}


def test_the_summary_says_how_many_rows_and_bytes(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # of the terminal: lines are cut there
    model = functional()
    model.compile("sgd", "mse")
    model.fit(*batch(), verbose=0)
    item, user = het_tf.Table("item"), het_tf.Table("user")
    lines = []
    model.summary(line_length=300, print_fn=lambda text, **more: lines.append(text))
    assert item.size > 9 and user.size == 9
    floats, rows = 4 * item.size + 3 * user.size, item.size + user.size
    assert f"{floats} in {rows} rows, " in "".join(lines)
    layer = next(each for each in model.layers if isinstance(each, het_tf.keras.EmbeddingCollection))
    assert layer.count_params() == floats


def test_threads_follow_tensorflow():
    wanted = tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))
    het_tf.keras.Embedding(4, name="t")
    assert settings.current.threads_set == wanted
    het_tf.init(threads=3)
    assert settings.current.threads_set == 3


def test_the_example_of_the_package_runs():
    ids, labels = batch()
    x = {"item": ids["item"], "history": np.tile(ids["history"], [1, 4])}
    names = {"dataset": tf.data.Dataset.from_tensor_slices((x, labels)).batch(8)}
    exec("\n".join(line[4:] for line in het_tf.__doc__.splitlines() if line.startswith("    ")), names)
    assert het_tf.Table("item").size == 20


def small_model(eager):
    ids = keras.Input((2,), dtype="int64")
    rows = het_tf.keras.Embedding(3, name="t", combiner="sum")(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse", run_eagerly=eager)
    return model


@pytest.mark.parametrize("eager", [False, True])
def test_batches_without_samples_and_models_of_float64(eager):
    model = small_model(eager)
    assert model.train_on_batch(np.zeros((0, 2), np.int64), np.zeros((0, 1), np.float32)) == 0
    assert het_tf.Table("t").size == 0
    model.train_on_batch(np.array([[1, 2]]), np.ones((1, 1), np.float32))
    assert het_tf.Table("t").size == 2
    het_tf.reset()
    keras.mixed_precision.set_global_policy("float64")
    model = small_model(eager)
    ids = np.array([[1, 2], [2, 3]])
    model.train_on_batch(ids, np.ones((2, 1)))
    assert learn(model, lambda: model(ids, training=True)).dtype == tf.float64
    assert het_tf.Table("t").updates == 2


def test_keras_does_not_compile_a_model_with_tables():
    from keras.src.trainers.trainer import model_supports_jit

    model = keras.Sequential([keras.Input((), dtype="int64"), het_tf.keras.Embedding(2)])
    model.compile("sgd", "mse", jit_compile="auto")
    assert not model_supports_jit(model) and not model.jit_compile
    model.fit(np.arange(8), np.ones((8, 2)), verbose=0)
