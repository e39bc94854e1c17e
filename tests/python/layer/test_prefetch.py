"""`het_tf.prefetch`: what it takes and refuses, and that training with it is training without it."""

from __future__ import annotations

import numpy as np
import pytest
import redis_lib
import tensorflow as tf

import het_tf

pytestmark = pytest.mark.usefixtures("fresh")

at_a_server = [
    pytest.mark.slow,
    redis_lib.SERVER,
]


def batches(*columns, size=4):
    return tf.data.Dataset.from_tensor_slices(columns if len(columns) > 1 else columns[0]).batch(size)


def ids(count=12, width=None, high=50, seed=0):
    shape = (count,) if width is None else (count, width)
    return np.random.default_rng(seed).integers(0, high, shape)


# --- what it takes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "element",
    [
        lambda x: x,
        lambda x: (x,),
        lambda x: (x, tf.cast(x, tf.float32)),
        lambda x: (x, tf.cast(x, tf.float32), tf.ones_like(x)),
    ],
)
def test_elements_come_as_they_are(element):
    dataset = batches(ids()).map(element)
    ahead = het_tf.prefetch(dataset, het_tf.keras.Embedding(2, name="t"), depth=2)
    assert ahead.element_spec == dataset.element_spec
    assert int(ahead.cardinality()) == 3
    for one, other in zip(dataset, ahead, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def test_inputs_of_every_kind_are_accepted():
    item, user = het_tf.TableConfig("item", dim=2), het_tf.TableConfig("user", dim=2)
    layer = het_tf.keras.EmbeddingCollection({
        "user": het_tf.FeatureConfig(user),
        "words": het_tf.FeatureConfig(item, combiner="mean"),
        "past": het_tf.FeatureConfig(item, combiner="sum", padding_id=-1),
        "tags": het_tf.FeatureConfig(item, combiner="sum"),
    })  # fmt: skip
    x = {
        "user": tf.constant(["a", "b", "c"]),
        "words": tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int32),
        "past": tf.constant([[1, -1], [2, 3], [-1, -1]]),
        "tags": tf.sparse.from_dense([[1, 0], [2, 3], [0, 0]]),
        "not_an_id": tf.constant([0.5, 1.5, 2.5]),
    }
    dataset = tf.data.Dataset.from_tensor_slices((x, [0, 1, 2])).batch(2)
    assert len(list(het_tf.prefetch(dataset, layer))) == 2
    single = het_tf.keras.Embedding(2, name="user_too")
    # A layer of one feature finds its input by name, several layers each their own.
    renamed = dataset.map(lambda x, y: ({**x, "user_too": x["user"]}, y))
    assert len(list(het_tf.prefetch(renamed, [layer, single]))) == 2
    assert len(list(het_tf.prefetch(dataset, {"user": single}))) == 2
    elsewhere = het_tf.prefetch(dataset, single, inputs=lambda x, y: y)
    assert len(list(elsewhere)) == 2


def test_training_in_this_process_is_the_same():
    found = []
    for prefetched in (False, True):
        het_tf.reset()
        tf.keras.utils.set_random_seed(3)
        layer = het_tf.keras.Embedding(3, name="t", combiner="mean")
        model = tf.keras.Sequential([tf.keras.Input((2,), dtype="int64"), layer, tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        dataset = batches(ids(40, 2), np.ones((40, 1), np.float32))
        model.fit(het_tf.prefetch(dataset, layer) if prefetched else dataset, epochs=2, verbose=0)
        found.append(redis_lib.rows_of("t"))
    np.testing.assert_array_equal(found[0]["rows"], found[1]["rows"])


# --- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, None])
def test_depth_is_a_number_of_batches(depth):
    with pytest.raises(ValueError, match=r"depth is .*; give how many batches ahead"):
        het_tf.prefetch(batches(ids()), het_tf.keras.Embedding(2, name="t"), depth=depth)


@pytest.mark.parametrize("check_ahead", [1, "told", None])
def test_check_ahead_is_a_bool(check_ahead):
    with pytest.raises(TypeError, match=r"check_ahead is .*; give True or False"):
        het_tf.prefetch(batches(ids()), het_tf.keras.Embedding(2, name="t"), check_ahead=check_ahead)


def test_what_is_no_dataset_or_no_layer_is_refused():
    layer = het_tf.keras.Embedding(2, name="t")
    with pytest.raises(TypeError, match=r"dataset is a list; give a tf\.data\.Dataset"):
        het_tf.prefetch([1, 2], layer)
    with pytest.raises(ValueError, match="looks no rows of het_tf up"):
        het_tf.prefetch(batches(ids()), tf.keras.layers.Dense(1))
    with pytest.raises(ValueError, match="layer is empty"):
        het_tf.prefetch(batches(ids()), [])


def test_inputs_that_do_not_fit_are_refused_at_once():
    layer = het_tf.keras.Embedding(2, name="t")
    with pytest.raises(ValueError, match=r"ids are a scalar; give them a batch axis"):
        het_tf.prefetch(tf.data.Dataset.range(3), layer)
    with pytest.raises(ValueError, match="ids are float32"):
        het_tf.prefetch(batches(ids().astype(np.float32)), layer)
    with pytest.raises(ValueError, match=r"reads one feature, 't', .* \['u'\]; give inputs="):
        het_tf.prefetch(tf.data.Dataset.from_tensors({"u": ids()}), layer)
    with pytest.raises(ValueError, match=r"a dict with the keys \['t'\], .* \['u'\]"):
        het_tf.prefetch(tf.data.Dataset.from_tensors({"u": ids()}), {"t": layer})


def test_a_cache_on_a_gpu_is_refused(monkeypatch):
    layer = het_tf.keras.Embedding(2, name="t")
    monkeypatch.setattr(layer._het_state.cache, "place", "gpu")
    with pytest.raises(ValueError, match=r"has its cache on a GPU .* Leave het_tf.prefetch out"):
        het_tf.prefetch(batches(ids()), layer)


def test_tables_that_are_gone_are_the_lookups_to_tell():
    layer = het_tf.keras.Embedding(2, name="t")
    dataset = het_tf.prefetch(batches(ids()), layer)
    het_tf.reset()
    for x in dataset:
        with pytest.raises(tf.errors.FailedPreconditionError, match="no table 't'"):
            layer(x)


# --- at a server --------------------------------------------------------------------------------


def stats(name="t"):
    return het_tf.table(name).stats()["cache"]


def model_of(layer, width):
    inputs = tf.keras.Input((width,), dtype="int64")
    rows = tf.keras.layers.Flatten()(layer(inputs))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    return model


class TestAtAServer:
    pytestmark = at_a_server

    @pytest.mark.parametrize(("cache_rows", "depth"), [(7, 3), (150, 1)])
    def test_one_worker_learns_the_same_to_the_last_bit(self, server, cache_rows, depth):
        found = []
        for prefetched in (False, True):
            assert server.command("FLUSHALL").startswith(b"+OK")
            het_tf.reset()
            het_tf.init(ps=server.address)
            tf.keras.utils.set_random_seed(3)
            layer = het_tf.keras.Embedding(4, name="t", cache=het_tf.Cache(staleness=0, rows=cache_rows))
            model = model_of(layer, 3)
            y = np.random.default_rng(1).normal(size=(600, 1)).astype(np.float32)
            dataset = batches(ids(600, 3, high=400), y, size=20)
            model.fit(het_tf.prefetch(dataset, layer, depth) if prefetched else dataset, epochs=2, verbose=0)
            found.append(redis_lib.rows_of("t"))
            assert (stats()["prefetched"] > 0) == prefetched
        for what in ("ids", "clocks", "rows"):
            np.testing.assert_array_equal(found[0][what], found[1][what])
