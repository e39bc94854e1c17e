"""`het_tf.lookahead`: its arguments, and equality of training with and without it."""

from __future__ import annotations

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from rules_lib import learn

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


def trainer(layer):
    @tf.function
    def step(x):
        learn(layer, lambda: tf.reduce_sum(layer(x, training=True)))

    return step


def planned():
    return het_tf.Table("t").stats()["planned"]


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
    ahead = het_tf.lookahead(dataset, het_tf.keras.Embedding(2, name="t"), window=2)
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
    assert len(list(het_tf.lookahead(dataset, layer))) == 2
    single = het_tf.keras.Embedding(2, name="user_too")
    # A layer of one feature finds its input by name, several layers each their own.
    renamed = dataset.map(lambda x, y: ({**x, "user_too": x["user"]}, y))
    assert len(list(het_tf.lookahead(renamed, [layer, single]))) == 2
    assert len(list(het_tf.lookahead(dataset, {"user": single}))) == 2
    elsewhere = het_tf.lookahead(dataset, single, inputs=lambda x, y: y)
    assert len(list(elsewhere)) == 2


def test_a_saved_iterator_goes_on_where_it_was(tmp_path):
    layer = het_tf.keras.Embedding(2, name="t")
    dataset = het_tf.lookahead(batches(np.arange(40)), layer, window=3)
    iterator = iter(dataset)
    for _ in range(4):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "at"))
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).restore(path)
    np.testing.assert_array_equal(next(restored), [16, 17, 18, 19])
    assert len(list(restored)) == 5


def test_abandoned_loop_and_evaluation_keep_plan():
    layer = het_tf.keras.Embedding(2, name="t")
    train = trainer(layer)
    dataset = het_tf.lookahead(batches(np.arange(80)), layer, window=4)
    for x in dataset.take(2):
        train(x)
    assert planned() == 2
    for x in dataset:
        layer(x + 1000)  # another input, without training
        train(x)
    assert planned() == 22


# --- what it refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, -1, 1.5, True, None])
def test_a_window_is_a_number_of_batches(window):
    with pytest.raises(ValueError, match=r"window is .*; give the batches to plan ahead"):
        het_tf.lookahead(batches(ids()), het_tf.keras.Embedding(2, name="t"), window=window)


def test_what_is_no_dataset_or_no_layer_is_refused():
    layer = het_tf.keras.Embedding(2, name="t")
    with pytest.raises(TypeError, match=r"dataset is a list; give a tf\.data\.Dataset"):
        het_tf.lookahead([1, 2], layer)
    with pytest.raises(ValueError, match="without lookups of het_tf"):
        het_tf.lookahead(batches(ids()), tf.keras.layers.Dense(1))
    with pytest.raises(ValueError, match="layer is empty"):
        het_tf.lookahead(batches(ids()), [])


def test_inputs_that_do_not_fit_are_refused_at_once():
    layer = het_tf.keras.Embedding(2, name="t")
    with pytest.raises(ValueError, match=r"ids are a scalar; give them a batch axis"):
        het_tf.lookahead(tf.data.Dataset.range(3), layer)
    with pytest.raises(ValueError, match="ids are float32"):
        het_tf.lookahead(batches(ids().astype(np.float32)), layer)
    with pytest.raises(ValueError, match=r"reads one feature, 't', .* \['u'\]; give inputs="):
        het_tf.lookahead(tf.data.Dataset.from_tensors({"u": ids()}), layer)
    with pytest.raises(ValueError, match=r"a dict with the keys \['t'\], .* \['u'\]"):
        het_tf.lookahead(tf.data.Dataset.from_tensors({"u": ids()}), {"t": layer})


def test_a_cache_on_a_gpu_is_refused(monkeypatch):
    layer = het_tf.keras.Embedding(2, name="t")
    monkeypatch.setattr(layer._het_state.cache, "place", "gpu")
    with pytest.raises(ValueError, match=r"has its cache on a GPU .* Leave het_tf.lookahead out"):
        het_tf.lookahead(batches(ids()), layer)


def test_tables_that_are_gone_are_the_lookups_to_tell():
    layer = het_tf.keras.Embedding(2, name="t")
    dataset = het_tf.lookahead(batches(ids()), layer)
    het_tf.reset()
    for x in dataset:
        with pytest.raises(tf.errors.FailedPreconditionError, match="no table 't'"):
            layer(x)


# --- at a server --------------------------------------------------------------------------------


class TestAtAServer:
    pytestmark = at_a_server

    @pytest.mark.parametrize(("cache_rows", "staleness"), [(7, 0), (7, 5), (150, 5)])
    def test_one_worker_learns_the_same_to_the_last_bit(self, server, cache_rows, staleness):
        found = []
        for with_plan in (False, True):
            assert server.command("FLUSHALL").startswith(b"+OK")
            het_tf.reset()
            het_tf.init(ps=server.address)
            tf.keras.utils.set_random_seed(3)
            cache = het_tf.Cache(staleness=het_tf.Bounds(staleness, 0), rows=cache_rows, wire="float32")
            layer = het_tf.keras.Embedding(4, name="t", cache=cache)
            inputs = tf.keras.Input((3,), dtype="int64")
            out = tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(layer(inputs)))
            model = tf.keras.Model(inputs, out)
            model.compile("sgd", "mse")
            y = np.random.default_rng(1).normal(size=(600, 1)).astype(np.float32)
            dataset = batches(ids(600, 3, high=400), y, size=20)
            model.fit(het_tf.lookahead(dataset, layer, 3) if with_plan else dataset, epochs=2, verbose=0)
            found.append(redis_lib.rows_of("t"))
            assert planned() == (60 if with_plan else 0)
        for what in ("ids", "clocks", "rows"):
            np.testing.assert_array_equal(found[0][what], found[1][what])


# --- rows that travel on demand -----------------------------------------------------------------


def told_of(layer, monkeypatch, elements, workers, batch, inputs=None):
    """Ids of each worker in the core: a list of workers, of features, of sets of ids."""
    from het_tf.ext.streams.python import pipeline
    from het_tf.python.session import native

    seen = []
    plan_op = native.ops.het_plan
    monkeypatch.setattr(native.ops, "het_plan", lambda **given: seen.append(given) or plan_op(**given))
    everyone = next(iter(elements.batch(workers * batch)))
    mine = next(iter(elements.skip(batch).batch(batch)))  # of worker 1
    components = everyone if isinstance(everyone, tuple) else (everyone,)
    of = pipeline.Everyone(components, tf.constant(1, tf.int64), 1, workers, False)
    components = mine if isinstance(mine, tuple) else (mine,)
    pipeline.start_on_demand(layer, inputs, components, 8, of)
    (given,) = seen
    found = []
    for worker in range(workers):
        of_worker = []
        for ids_of_all, ends in zip(given["all"], given["ends"], strict=True):
            begin = 0 if worker == 0 else int(ends[worker - 1])
            of_worker.append(set(np.ravel(ids_of_all)[begin : int(ends[worker])].tolist()))
        found.append(of_worker)
    assert [set(np.ravel(one).tolist()) for one in given["ids"]] == found[1], (
        "its own ids are those of worker 1"
    )
    return found


def test_ids_of_all_workers_are_taken_apart_by_worker(monkeypatch):
    """Would catch: ids of one worker that are counted as another's, with one or several ids a sample."""
    features = {name: het_tf.FeatureConfig(het_tf.TableConfig(name, 2), combiner=how) for name, how in
                (("one", None), ("some", "sum"), ("ragged", "sum"))}  # fmt: skip
    layer = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(rows=10, staleness=0))
    values = np.arange(60)
    rows = [values[i : i + i % 3].tolist() for i in range(12)]  # some are empty
    samples = tf.data.Dataset.from_tensor_slices(
        {"one": values[:12], "some": values[:24].reshape(12, 2), "ragged": tf.ragged.constant(rows, tf.int64)}
    )
    found = told_of(layer, monkeypatch, samples, workers=3, batch=4)
    for worker, (one, some, ragged) in enumerate(found):
        mine = slice(4 * worker, 4 * worker + 4)
        assert one == set(values[:12][mine].tolist())
        assert some == set(values[:24].reshape(12, 2)[mine].ravel().tolist())
        assert ragged == {id for row in rows[mine] for id in row}


def test_ids_of_a_graph_are_taken_apart_by_worker(monkeypatch):
    """Would catch: hops that stand one behind the other, so that a worker's ids are no part of the whole."""
    inputs = {f"hop_{hop}": tf.keras.Input((width,), dtype="int64") for hop, width in enumerate((1, 2, 6))}
    embed = het_tf.keras.Embedding(4, cache=het_tf.Cache(rows=10, staleness=0))
    rows = tf.keras.Model(inputs, embed(tf.keras.ops.concatenate(list(inputs.values()), axis=1)))
    nodes = np.arange(8)
    samples = tf.data.Dataset.from_tensor_slices(
        {
            "hop_0": nodes[:, None],
            "hop_1": 100 + np.arange(16).reshape(8, 2),
            "hop_2": 200 + np.arange(48).reshape(8, 6),
        }
    )
    found = told_of(rows, monkeypatch, samples, workers=2, batch=4)
    for worker, (ids_of,) in enumerate(found):
        expected = set(nodes[4 * worker : 4 * worker + 4].tolist())
        expected |= set((100 + np.arange(8) + 8 * worker).tolist()) | set(
            (200 + np.arange(24) + 24 * worker).tolist()
        )
        assert ids_of == expected
