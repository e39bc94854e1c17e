"""het_tf.convert and het_tf.checkpoint.load_rows where tables are at a parameter server, behind caches."""

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]


def two_tables():
    ids = keras.Input((), dtype="int64")
    rows = [keras.layers.Embedding(9, 2, name=name)(ids) for name in ("a", "b")]
    return keras.Model(ids, keras.layers.Dot(1)(rows))


@pytest.mark.filterwarnings("ignore::het_tf.ConversionWarning")
def test_next_job_does_not_overwrite_server_rows(server):
    old = two_tables()
    ids = np.arange(9)
    expected = np.asarray(old(ids))
    het_tf.init(ps=server.address)
    new = het_tf.convert(old, cache=het_tf.Cache(rows=4, staleness=0), verbose=False)
    np.testing.assert_array_equal(new(ids, training=False), expected)
    new.compile("sgd", "mse")
    new.fit(ids, np.ones(9), verbose=0)
    trained = het_tf.Table("a").to_numpy()[1]
    het_tf.reset()  # the process forgets; the server does not
    with pytest.raises(ValueError, match="table 'a' exists already, with 9 rows"):
        het_tf.convert(old)
    het_tf.keras.Embedding(2, name="a", optimizer="row_wise_adagrad")
    np.testing.assert_array_equal(het_tf.Table("a").to_numpy()[1], trained)


def test_a_file_goes_to_the_server(server, tmp_path):
    het_tf.init(ps=server.address)
    layer = het_tf.keras.Embedding(2, name="a", cache=het_tf.Cache(rows=3, staleness=5))
    np.savez(tmp_path / "x.npz", ids=np.arange(5), values=np.arange(10.0).reshape(5, 2))
    layer(tf.constant([1, 2], tf.int64), training=False)  # in the cache, as they were
    assert het_tf.checkpoint.load_rows("a", tmp_path / "x.npz") == 5
    read = layer(tf.constant([4, 1], tf.int64), training=False)
    np.testing.assert_array_equal(read, [[8, 9], [2, 3]])


def test_an_error_of_another_rank_leaves_nothing(played):
    played.others = lambda value: [value]
    het_tf.convert(two_tables(), {"a": "c", "b": "d"}, verbose=False)
    assert het_tf.Table("c").size == 9
    played.others = lambda value: ["the disk is full"]
    with pytest.raises(RuntimeError, match="rank 1 could not convert the model: the disk is full"):
        het_tf.convert(two_tables(), verbose=False)
    assert het_tf.tables() == ["c", "d"]
