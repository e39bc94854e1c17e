"""The raw ops: shapes, values, tokens, order, and what they refuse."""

import json

import numpy as np
import pytest
import tensorflow as tf

from het_tf.python.session import native

pytestmark = pytest.mark.usefixtures("fresh")


def table_spec(name="t", dim=4, **more):
    return {"name": name, "dim": dim, "optimizer": {"name": "sgd"}, "initializer": {"name": "zeros"}, **more}


def whole(values, dtype):
    return [x if tf.is_tensor(x) else tf.constant(x, dtype) for x in values]


class Features:
    """Calls the raw ops for features, each of a table's spec."""

    def __init__(self, *features):
        self.features = features
        names = [spec["name"] for spec in features]
        of_tables = [{"table": names.index(name), "padding_id": None} for name in names]
        specs = json.dumps({"namespace": "", "tables": features, "features": of_tables})
        self.attrs = {"tables": names, "specs": specs}

    def create(self):
        for spec in self.features:
            native.call("HetCreateTable", "", json.dumps(spec), "{}")
        return self

    def lookup(self, *ids, training=False, hints=None):
        hints = hints or [tf.zeros([0, spec["dim"]]) for spec in self.features]
        ids = whole(ids, tf.int64)
        return native.ops.het_lookup(ids=ids, anchor=0.0, hints=hints, training=training, **self.attrs)

    def apply(self, token, ids, grads, rates=(1.0,)):
        ids, grads = whole(ids, tf.int64), whole(grads, tf.float32)
        kept = native.ops.het_keep_grad(ids=ids, grads=grads, token=token, norm=0.0, **self.attrs)
        return native.ops.het_apply_grad(tickets=kept, learning_rates=rates, scale=1.0, **self.attrs)


def one(**more):
    return Features(table_spec(**more)).create()


def test_static_shape_in_graphs():
    features = Features(table_spec("a", 4), table_spec("b", 7)).create()

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64), tf.TensorSpec(None, tf.int64)])
    def read(a, b):
        out = features.lookup(a, b)
        assert out.rows[0].shape.as_list() == [None, 3, 4]
        assert out.rows[1].shape.rank is None
        assert out.token.shape == ()
        return out.rows

    a, b = read(tf.zeros([2, 3], tf.int64), tf.zeros([5], tf.int64))
    assert a.shape == (2, 3, 4) and b.shape == (5, 7)


def test_a_lookup_without_training_remembers_nothing():
    features = one()
    out = features.lookup([1, 2])
    assert out.token.numpy() == 0
    with pytest.raises(tf.errors.FailedPreconditionError, match="not a training lookup"):
        features.apply(out.token, [[1, 2]], [np.ones((2, 4))])
    assert native.call_int("HetSize", "", "t") == 0


def test_a_table_that_was_made_anew_is_found_again():
    features = one()
    features.apply(features.lookup([1], training=True).token, [[1]], [np.ones((1, 4))])
    np.testing.assert_array_equal(features.lookup([1]).rows[0], [[-1] * 4])  # the kernel remembers the table
    native.call("HetReset", "")
    with pytest.raises(tf.errors.FailedPreconditionError, match="no table 't'"):
        features.lookup([1])
    features.create()
    np.testing.assert_array_equal(features.lookup([1]).rows[0], [[0] * 4])
    native.call("HetDropTable", "", "t")
    with pytest.raises(tf.errors.FailedPreconditionError, match="no table 't'"):
        features.lookup([1])


def test_a_graph_made_for_another_spec_is_refused():
    one(dim=4)
    with pytest.raises(tf.errors.FailedPreconditionError, match="not the one this graph was made for"):
        Features(table_spec(dim=5)).lookup([1])


BAD_UPDATES = [
    *(({"grads": [np.ones(shape)]}, r"must be \[1, 4\]") for shape in ((1, 3), (2, 4), (1, 4, 1), (4,))),
    ({"rates": [1.0, 1.0]}, "2 learning rates for 1 tables"),
    ({"rates": [np.nan]}, "not finite"),
]


@pytest.mark.parametrize(("more", "words"), BAD_UPDATES)
def test_gradients_and_rates_that_do_not_fit(more, words):
    features = one()
    out = features.lookup([1], training=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        features.apply(out.token, [[1]], **{"grads": [np.ones((1, 4))], **more})


def test_hints_of_a_wrong_dim_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be \[0, 4\]"):
        one().lookup([1], hints=[tf.zeros([0, 5])])


BAD_SPECS = [
    ("{", "not the JSON"),
    ("{}", "not the JSON"),
    ('{"tables": [], "features": [{"table": 0}]}', "names table 0 of 0"),
    ('{"tables": [{"name": "t", "dim": 0}], "features": [{"table": 0}]}', "dim is 0"),
    ('{"tables": [{"name": "t", "dim": 4}], "features": []}', "1 tables, one a feature, but specs has 0"),
    ('{"tables": [{"name": "u", "dim": 4}], "features": [{"table": 0}]}', "says 't' for feature 0"),
]


@pytest.mark.parametrize("specs, message", BAD_SPECS)
def test_broken_specs_are_refused(specs, message):
    ids, hints = [tf.constant([1], tf.int64)], [tf.zeros([0, 4])]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        native.ops.het_lookup(ids=ids, anchor=0.0, hints=hints, tables=["t"], specs=specs, training=False)


def test_build_info():
    assert set(native.build_info()) == {"version", "compiler", "march", "tf_headers", "build_type"}
