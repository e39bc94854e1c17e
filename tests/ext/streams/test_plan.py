"""`het_tf.lookahead` of tf.data: its arguments. Rows by a plan: backends/test_lookahead.py, plan_test.cc."""

import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf.ext.streams.python import pipeline
from het_tf.python.session import native

pytestmark = pytest.mark.usefixtures("fresh")


IDS = np.random.default_rng(0).integers(0, 50, 12)


def batches(ids=IDS):
    return tf.data.Dataset.from_tensor_slices(ids).batch(4)


ELEMENTS = [
    lambda x: x,
    lambda x: (x,),
    lambda x: (x, tf.cast(x, tf.float32)),
    lambda x: (x, tf.cast(x, tf.float32), tf.ones_like(x)),
]


@pytest.mark.parametrize("element", ELEMENTS)
def test_elements_come_as_they_are(element):
    dataset = batches().map(element)
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


def test_a_saved_iterator_goes_on_where_it_was(tmp_path):
    dataset = het_tf.lookahead(batches(np.arange(40)), het_tf.keras.Embedding(2, name="t"), window=3)
    iterator = iter(dataset)
    for _ in range(4):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "at"))
    restored = iter(dataset)
    tf.train.Checkpoint(iterator=restored).restore(path)
    np.testing.assert_array_equal(next(restored), [16, 17, 18, 19])
    assert len(list(restored)) == 5


def ahead(layer, dataset=None):
    return het_tf.lookahead(dataset or batches(), layer)


def of_u():
    return tf.data.Dataset.from_tensors({"u": IDS})


REFUSED = [
    (lambda one: ahead([]), "layer is empty"),
    (lambda one: ahead(one, tf.data.Dataset.range(3)), r"ids are a scalar; give them a batch axis"),
    (lambda one: ahead(one, batches(IDS.astype(np.float32))), "ids are float32"),
    (lambda one: ahead(one, of_u()), r"reads one feature, 't', .* \['u'\]; give inputs="),
    (lambda one: ahead({"t": one}, of_u()), r"a dict with the keys \['t'\], .* \['u'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_does_not_fit_is_refused_at_once(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(het_tf.keras.Embedding(2, name="t"))


def test_a_cache_on_a_gpu_is_refused(monkeypatch):
    layer = het_tf.keras.Embedding(2, name="t")
    monkeypatch.setattr(layer._het_state.cache, "place", "gpu")
    with pytest.raises(ValueError, match=r"has its cache on a GPU .* Leave het_tf.lookahead out"):
        het_tf.lookahead(batches(), layer)


def test_tables_that_are_gone_are_the_lookups_to_tell():
    layer = het_tf.keras.Embedding(2, name="t")
    dataset = het_tf.lookahead(batches(), layer)
    het_tf.reset()
    for x in dataset:
        with pytest.raises(tf.errors.FailedPreconditionError, match="no table 't'"):
            layer(x)


def told_of(layer, monkeypatch, elements, workers, batch):
    """Ids of each worker in the core: a list of workers, of features, of sets of ids."""
    seen, plan_op = [], native.ops.het_plan
    monkeypatch.setattr(native.ops, "het_plan", lambda **given: seen.append(given) or plan_op(**given))
    everyone = next(iter(elements.batch(workers * batch)))
    mine = next(iter(elements.skip(batch).batch(batch)))  # of worker 1
    of = pipeline.Everyone((everyone,), tf.constant(1, tf.int64), 1, workers, False)
    pipeline.start_on_demand(layer, None, (mine,), 8, of)
    (given,) = seen
    found = [[] for _ in range(workers)]
    for ids_of_all, ends in zip(given["all"], given["ends"], strict=True):
        parts = np.split(np.ravel(ids_of_all), np.ravel(ends)[:-1])
        for of_worker, part in zip(found, parts, strict=True):
            of_worker.append(set(part.tolist()))
    assert [set(np.ravel(one).tolist()) for one in given["ids"]] == found[1], "its own ids are worker 1's"
    return found


VALUES = np.arange(60)


def of_collection():
    """A layer, and samples of one or several ids each, some of them empty."""
    kinds = (("one", None), ("some", "sum"), ("ragged", "sum"))
    features = {name: het_tf.FeatureConfig(het_tf.TableConfig(name, 2), how) for name, how in kinds}
    layer = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(rows=10, staleness=0))
    rows = [VALUES[i : i + i % 3].tolist() for i in range(12)]
    samples = {"one": VALUES[:12], "some": VALUES[:24].reshape(12, 2)}
    of_feature = [[[one] for one in samples["one"]], samples["some"].tolist(), rows]
    return layer, {**samples, "ragged": tf.ragged.constant(rows, tf.int64)}, of_feature


def of_graph():
    """A model that looks the hops up one beside the other, as one feature."""
    inputs = {f"hop_{hop}": tf.keras.Input((width,), dtype="int64") for hop, width in enumerate((1, 2, 6))}
    embed = het_tf.keras.Embedding(4, cache=het_tf.Cache(rows=10, staleness=0))
    rows = tf.keras.Model(inputs, embed(tf.keras.ops.concatenate(list(inputs.values()), axis=1)))
    hops = [100 * hop + np.arange(12 * width).reshape(12, width) for hop, width in enumerate((1, 2, 6))]
    return rows, dict(zip(inputs, hops, strict=True)), [np.concatenate(hops, axis=1).tolist()]


@pytest.mark.parametrize("make", [of_collection, of_graph])
def test_ids_of_all_workers_are_taken_apart_by_worker(monkeypatch, make):
    """Would catch: ids of one worker that are counted as another's; hops that stand one behind the other, so
    that a worker's ids are no part of the whole.
    """
    layer, samples, of_feature = make()
    found = told_of(layer, monkeypatch, tf.data.Dataset.from_tensor_slices(samples), workers=3, batch=4)
    for worker, of_worker in enumerate(found):
        mine = slice(4 * worker, 4 * worker + 4)
        assert of_worker == [{one for row in rows[mine] for one in row} for rows in of_feature]
