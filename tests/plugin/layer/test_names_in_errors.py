"""Errors name the feature or the table; long names lack their middle."""

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")

LONG = "user_" + "x" * 290 + "_last"
SHORT = r"'user_x{25}'\.\.\.'x{10}_last' \(300 characters\)"


def collection(name="user"):
    table = het_tf.TableConfig("t", 4)
    return het_tf.keras.EmbeddingCollection(
        {name: het_tf.FeatureConfig(table), "item": het_tf.FeatureConfig(table)}
    )


BAD = {
    "float32": (np.ones(2, "float32"), "ids are float32; they must be integers or strings"),
    "float16": (np.ones(2, "float16"), "ids are float16; they must be"),
    "bool": (np.ones(2, bool), "ids are bool; they must be"),
    "complex64": (np.ones(2, "complex64"), "ids are complex64; they must be"),
}


@pytest.mark.parametrize("ids", BAD)
def test_ids_of_an_unsupported_type_name_their_feature(ids):
    """Defect: TensorFlow's own message, which says neither which feature it was nor what to give."""
    values, message = BAD[ids]
    with pytest.raises((ValueError, TypeError), match=f"feature 'user': {message}"):
        collection()({"user": values, "item": np.ones(2, np.int64)})
    assert het_tf.Table("t").size == 0


@pytest.mark.parametrize("method", ["lookup", "assign"])
def test_a_table_says_which_one_it_is(method):
    collection()
    more = (np.zeros((2, 4)),) if method == "assign" else ()
    with pytest.raises(ValueError, match=r"table 't': ids hold 1\.5, a float; they must be integers"):
        getattr(het_tf.Table("t"), method)([1.5, 2.5], *more)


def test_uint64_ids_wrap_and_none_share_a_row():
    """Ids above 2**63 are negative ones, as docs/protocol.md says."""
    layer = het_tf.keras.Embedding(4, name="t")
    big = np.array([2**63 + 1, 2**64 - 1, 2**63 - 1], np.uint64)
    wrapped = np.array([-(2**63) + 1, -1, 2**63 - 1], np.int64)
    np.testing.assert_array_equal(layer(tf.constant(big)), layer(tf.constant(wrapped)))
    np.testing.assert_array_equal(het_tf.Table("t").lookup(big), het_tf.Table("t").lookup(wrapped))
    assert len(np.unique(np.asarray(layer(tf.constant(big))), axis=0)) == 3


def test_long_names_are_short_in_messages():
    """Defect: 300 characters of a name, once in Python's part of a message and once in the core's."""
    with pytest.raises(ValueError, match=f"feature {SHORT}: ids are float32"):
        collection(LONG).call({LONG: np.ones(2, "float32"), "item": np.ones(2, np.int64)})
    layer = het_tf.keras.Embedding(4, table=LONG)
    with pytest.raises(ValueError, match=f"table {SHORT} exists with another spec") as raised:
        het_tf.keras.Embedding(8, table=LONG)
    assert LONG not in str(raised.value)
    assert layer.tables[0].name == LONG


def search(**named):
    """Trials of a search, as tuners make them: the model of the one before has gone, or nearly."""
    for dim in (4, 8, 4):
        ids = keras.Input((), dtype="int64")
        model = keras.Model(ids, keras.layers.Dense(1)(het_tf.keras.Embedding(dim, **named)(ids)))
        model.compile("sgd", "mse")
        model.fit(np.arange(4), np.ones((4, 1)), verbose=0)


def test_a_search_over_dims_leaves_the_name_out():
    """Defect: the message of the second trial says nothing that helps a search."""
    search()
    with pytest.raises(
        ValueError, match=r"'user' exists with another spec: dim.*leave the name out if a search"
    ):
        search(name="user")
    het_tf.reset()  # what the message offers, too
    search(name=None)
