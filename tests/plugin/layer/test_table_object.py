"""A table as an object: looking, assigning, removing, taking out; namespaces and reset."""

import time

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL, assert_close
from rules_lib import learn

import het_tf
from het_tf.python.session import native

pytestmark = [pytest.mark.usefixtures("fresh")]

MODES = [{}, {"cache": het_tf.Cache(rows=4, staleness=3)}]


def embedding(dim=4, name="t", optimizer=None, **more):
    return het_tf.keras.Embedding(dim, name=name, optimizer=optimizer or het_tf.optimizers.SGD(1.0), **more)


def train(layer, ids):
    learn(layer, lambda: layer(tf.constant(ids, tf.int64)))


@pytest.fixture(params=MODES)
def layer(request, fresh):
    """A layer of table "t", directly and with a cache."""
    return embedding(**request.param)


def test_size_counts_rows_that_were_written(layer):
    table = het_tf.Table("t")
    layer(tf.constant([1, 2, 3]), training=False)
    table.lookup([4, 5])
    assert table.size == len(table) == 0
    train(layer, [1, 2, 2])
    assert table.size == 2
    assert table.bytes > 0 and table.updates == 1
    assert table.dim == table.row_floats == 4


def test_lookup_sees_what_was_trained(layer):
    table = het_tf.Table("t")
    ids = np.array([[7, 8], [9, 7]])
    before = table.lookup(ids)
    assert before.shape == (2, 2, 4) and before.dtype == np.float32
    np.testing.assert_array_equal(before, layer(ids, training=False))
    train(layer, [7, 7])
    np.testing.assert_allclose(table.lookup([7, 8]), [before[0, 0] - 2, before[0, 1]])
    assert table.lookup([]).shape == (0, 4)
    np.testing.assert_array_equal(table.lookup(7), table.lookup([7])[0])
    np.testing.assert_array_equal(table.lookup(np.int64(8), stored=True), before[0, 1])


def test_assign_sets_rows_and_training_goes_on(layer):
    table = het_tf.Table("t")
    train(layer, [1])
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    table.assign([1, -2, 3], values)
    np.testing.assert_array_equal(table.lookup([1, -2, 3]), values)
    np.testing.assert_array_equal(layer(tf.constant([3, 1]), training=False), values[[2, 0]])
    train(layer, [1, 3])
    np.testing.assert_array_equal(table.lookup([1, -2, 3]), values - [[1], [0], [1]])
    table.assign([5, 5], values[:2])  # of equal ids the last counts
    np.testing.assert_array_equal(table.lookup([5])[0], values[1])


def test_remove_and_clear_bring_initial_rows_back(layer):
    table = het_tf.Table("t")
    initial = table.lookup([1, 2, 3])
    train(layer, [1, 2, 3])
    assert table.remove([1, 99, 1]) == 1
    np.testing.assert_allclose(table.lookup([1, 2]), [initial[0], initial[1] - 1])
    assert table.size == 2
    table.clear()
    assert table.size == 0
    np.testing.assert_array_equal(layer(tf.constant([1, 2, 3]), training=False), initial)
    train(layer, [2])
    np.testing.assert_allclose(table.lookup([2])[0], initial[1] - 1)


@pytest.mark.parametrize("mode", MODES)
def test_to_numpy_and_back(mode):
    layer = embedding(optimizer=het_tf.optimizers.Adam(0.1), **mode)
    table = het_tf.Table("t")
    rng = np.random.default_rng(0)
    for _ in range(5):
        train(layer, rng.integers(-50, 50, 20))
    ids, rows = table.to_numpy()
    assert ids.dtype == np.int64 and rows.dtype == np.float32
    assert (np.diff(ids) > 0).all() and rows.shape == (table.size, 4)
    # A cached copy that its worker went on training was rounded in another order than the store's row.
    assert_close(table.lookup(ids), rows, MODEL)

    with_slots = table.scan()["rows"]
    assert with_slots.shape[1] == table.row_floats == 3 * 4 + 1
    copy = embedding(name="copy", optimizer=het_tf.optimizers.Adam(0.1))
    het_tf.Table("copy").assign(ids, with_slots, with_slots=True)
    for each in (layer, copy):
        train(each, ids[:3])
    np.testing.assert_allclose(het_tf.Table("copy").lookup(ids), table.lookup(ids), rtol=1e-5, atol=1e-6)


def test_scan_tells_clocks_and_use():
    begin = int(time.time())
    layer = embedding()
    for ids in ([1], [1, 2], [1, 1]):
        train(layer, ids)
    rows = het_tf.Table("t").scan()
    assert rows["ids"].tolist() == [1, 2]
    assert rows["clocks"].tolist() == [3, 1]
    assert ((begin <= rows["last_used"]) & (rows["last_used"] <= time.time())).all()
    assert rows["counts"].tolist() == [3, 1]


def test_stats():
    train(embedding(cache=het_tf.Cache(rows=10)), [1, 2])
    het_tf.flush()
    stats = het_tf.Table("t").stats()
    assert stats["mode"] == "cached" and stats["updates"] == 1 and stats["dim"] == 4
    assert stats["cache"]["ticks"] == 2
    embedding(name="direct")
    assert het_tf.Table("direct").stats()["mode"] == "direct"


BAD_CALLS = [
    (lambda table: table.assign([1], np.zeros((1, 3))), r"must be \[N\] and \[N, 4\]"),
    (lambda table: table.assign([1, 2], np.zeros((1, 4))), r"must be \[N\] and \[N, 4\]"),
    (lambda table: table.assign([[1]], np.zeros((1, 4))), r"must be \[N\] and \[N, 4\]"),
    (lambda table: table.assign(1, [0] * 4), r"must be \[N\] and \[N, 4\]"),
    (lambda table: table.assign([1], [[0, 0, np.nan, 0]]), "NaN or Inf"),
    (lambda table: table.lookup(tf.ragged.constant([["a"]])), "ids are a RaggedTensor; give a list"),
    (lambda table: table.remove(tf.sparse.from_dense([1])), "ids are a SparseTensor; give a list"),
]


@pytest.mark.parametrize(("call", "words"), BAD_CALLS)
def test_bad_arguments_change_nothing(call, words):
    train(embedding(), [1])
    before = het_tf.Table("t").to_numpy()
    with pytest.raises(ValueError, match=words):
        call(het_tf.Table("t"))
    np.testing.assert_equal(het_tf.Table("t").to_numpy(), before)


def test_unknown_table_error_lists_known_tables():
    embedding(name="known")
    with pytest.raises(LookupError, match=r"no table 'unknown'.*declared 'known'"):
        het_tf.Table("unknown")
    table = het_tf.Table("known")
    table.drop()
    with pytest.raises(LookupError, match=r"declared none\. .*open a table that a parameter server has"):
        _ = table.size


def test_namespaces():
    outer = embedding(name="t")
    with het_tf.namespace("inner"):
        inner = embedding(name="t")
        assert inner.namespace == "inner"
        train(inner, [1])
        assert het_tf.Table("t").size == 1
        with het_tf.namespace(""):
            assert het_tf.Table("t").size == 0
    assert het_tf.Table("t").size == 0
    assert het_tf.Table("t", namespace="inner").size == 1
    assert "namespace='inner'" in repr(het_tf.Table("t", namespace="inner"))
    initial = [layer(tf.constant([5]), training=False) for layer in (outer, inner)]
    np.testing.assert_array_equal(*initial)  # they depend only on seed, name and id
    het_tf.reset("inner")
    with pytest.raises(LookupError):
        het_tf.Table("t", namespace="inner")
    assert het_tf.tables() == ["t"]


def test_after_reset_layers_say_what_to_do():
    layer = embedding()
    train(layer, [1])
    het_tf.reset()
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"no table 't'.*Build the layer"):
        layer(tf.constant([1]))
    assert embedding()(tf.constant([1])).shape == (1, 4)
    assert het_tf.Table("t").size == 0


def near(x, mean, deviation, off=0.1):
    return abs(x.mean() - mean) < off and abs(x.std() - deviation) < off


INITIALIZERS = [
    ("zeros", lambda x: (x == 0).all()),
    (het_tf.initializers.Constant(3.0), lambda x: (x == 3).all()),
    (het_tf.initializers.RandomUniform(1, 2), lambda x: x.min() >= 1 and x.max() < 2 and near(x, 1.5, 0.29)),
    (het_tf.initializers.RandomNormal(1, 2), lambda x: near(x, 1, 2)),
]


@pytest.mark.parametrize(("initializer", "check"), INITIALIZERS)
def test_initializers(initializer, check):
    embedding(dim=16, initializer=initializer)
    assert check(het_tf.Table("t").lookup(np.arange(1000)))


def test_l2_and_max_norm():
    layer = embedding(l2=0.5, initializer=het_tf.initializers.Constant(2.0))
    train(layer, [1])  # gradient 1 + 2 * 0.5 * 2
    np.testing.assert_allclose(het_tf.Table("t").lookup([1]), [[-1] * 4])
    layer = embedding(name="u", max_norm=1.0, initializer="zeros")
    train(layer, [1])
    np.testing.assert_allclose(het_tf.Table("u").lookup([1]), [[-0.5] * 4])


def test_strings_of_tensors_are_ids_as_in_a_layer():
    """Would catch: a hash of another encoding, or of another length. Other strings: backends/test_ids.py."""
    names = ["u-17", "", "ü", "x" * 300, "abcdefgh", "a\0"]
    layer, table, given = embedding(), het_tf.Table("t"), tf.constant(names)
    expected = het_tf.Table.hash_ids(names)
    assert expected.dtype == np.int64 and len(set(expected.tolist())) == len(names)
    rows = np.arange(4.0 * len(names), dtype=np.float32).reshape(-1, 4)
    table.assign(given, rows)
    np.testing.assert_array_equal(table.to_numpy()[0], np.sort(expected))
    for found in (layer(given, training=False), table.lookup(given), table.lookup(names, stored=True)):
        np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(table.lookup("u-17"), rows[0])
    assert table.remove(given) == len(names) and table.size == 0
    in_graph = tf.data.Dataset.from_tensors(given).map(het_tf.Table.hash_ids)
    np.testing.assert_array_equal(next(iter(in_graph)), expected)


def test_the_c_api_has_the_same_hash():
    """Would catch: lengths modulo 8 that the two compute in other ways."""
    names = [("é" * n)[: n // 2] + "x" * (n % 5) for n in range(70)]
    encoded = [name.encode() for name in names]
    ends = np.cumsum([len(one) for one in encoded]).astype(np.uint64)
    ids = np.empty(len(names), np.int64)
    native.call("HetHashIds", b"".join(encoded), ends, len(names), ids)
    np.testing.assert_array_equal(ids, het_tf.Table.hash_ids(names))
