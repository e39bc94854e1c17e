"""How large the caches of a layer are: bytes of all its tables, and rows of each by its name."""

import json

import numpy as np
import pytest
import tensorflow as tf
from rules_lib import learn

import het_tf

pytestmark = [pytest.mark.usefixtures("fresh")]

LINE = 4 * (4 + 1) + 58  # bytes of a row of dim 4 with RowWiseAdagrad


def collection(cache, tables=("item", "user"), dim=4):
    features = {name: het_tf.FeatureConfig(het_tf.TableConfig(name, dim)) for name in tables}
    return het_tf.keras.EmbeddingCollection(features, cache=cache)


def train(layer, **ids):
    inputs = {name: tf.constant(of, tf.int64) for name, of in ids.items()}
    learn(layer, lambda: layer(inputs, training=True))


def cached(name):
    return het_tf.Table(name).stats()["cache"]


def test_bytes_are_shared_by_tables_of_layer():
    """Would find bytes that are each table's, and an equal division: one table holds all that fits."""
    layer = collection(het_tf.Cache(bytes=60 * LINE))
    assert cached("item")["capacity"] == cached("user")["capacity"] == 60
    train(layer, item=np.arange(50), user=[1])
    assert (cached("item")["rows"], cached("item")["capacity"], cached("user")["capacity"]) == (50, 59, 10)
    for step in range(30):  # items are used again and again, users once
        train(layer, item=np.arange(50), user=100 * step + np.arange(20))
    assert cached("item")["rows"] == 50 and cached("user")["rows"] == 10
    assert cached("item")["hits"] == 30 * 50


def test_layers_have_own_budgets_and_tables_keep_first():
    """Would find layers that share by accident, and a table that is refused since its layers differ."""
    collection(het_tf.Cache(bytes=60 * LINE))
    collection(het_tf.Cache(bytes=60 * LINE), ("user", "shop", "day"))
    assert cached("item")["capacity"] == cached("shop")["capacity"] == 60
    train(collection(het_tf.Cache(bytes=60 * LINE), ("shop",)), shop=np.arange(10))
    assert cached("day")["capacity"] == cached("user")["capacity"] - 10 == 50
    with pytest.raises(ValueError, match=r"exists with another spec: .*bytes"):
        collection(het_tf.Cache(bytes=61 * LINE))


def test_rows_by_table():
    """Would find rows that are given to all tables, and a copy whose own table is not known by its name."""
    cache = het_tf.Cache(rows={"item": np.int64(30), "user": 2}, policy="lru")
    layer = collection(cache)
    assert het_tf.Table("item").options["cache"]["rows"] == 30
    assert het_tf.Table("user").options["cache"]["rows"] == 2
    train(layer, item=np.arange(40), user=np.arange(40))
    assert (cached("item")["rows"], cached("user")["rows"]) == (30, 2)
    config = json.loads(json.dumps(layer.get_config()))
    copy = type(layer).from_config({**config, "name": "copy"})
    assert copy.get_config()["cache"] == config["cache"] == cache.get_config()
    capacities = {one.name: cached(one.name)["capacity"] for one in copy.tables}
    assert capacities == {"item@2": 30, "user@2": 2}
    assert len({cache, het_tf.Cache.from_config(config["cache"])}) == 1


def test_rows_that_lack_a_table():
    with pytest.raises(ValueError, match=r"cache.rows has no table 'user', but 'item'; give its rows"):
        collection(het_tf.Cache(rows={"item": 5}))
    assert het_tf.tables() == []
