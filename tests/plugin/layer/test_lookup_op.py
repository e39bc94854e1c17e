"""The raw ops: shapes, values, tokens, order, and what they refuse."""

import json

import numpy as np
import pytest
import tensorflow as tf

from het_tf.python.session import native

pytestmark = pytest.mark.usefixtures("fresh")


def table_spec(name="t", dim=4, **more):
    return {"name": name, "dim": dim, "optimizer": {"name": "sgd"}, "initializer": {"name": "zeros"}, **more}


class Features:
    """Calls the raw ops for features of one namespace."""

    def __init__(self, *features, namespace=""):
        """features: (table spec, padding_id) each."""
        self.specs = list({spec["name"]: spec for spec, _ in features}.values())
        names = [spec["name"] for spec in self.specs]
        self.names = [spec["name"] for spec, _ in features]
        self.dims = [spec["dim"] for spec, _ in features]
        self.json = {
            "namespace": namespace,
            "tables": self.specs,
            "features": [
                {"table": names.index(spec["name"]), "padding_id": padding} for spec, padding in features
            ],
        }
        self.namespace = namespace

    def create(self):
        for spec in self.specs:
            native.call("HetCreateTable", self.namespace, json.dumps(spec), "{}")
        return self

    @property
    def attrs(self):
        return {"tables": self.names, "specs": json.dumps(self.json)}

    def lookup(self, *ids, training=False, hints=None):
        return native.ops.het_lookup(
            ids=[tf.constant(x, tf.int64) if not tf.is_tensor(x) else x for x in ids],
            anchor=0.0,
            hints=hints or [tf.zeros([0, dim]) for dim in self.dims],
            training=training,
            **self.attrs,
        )

    def apply(self, token, ids, grads, rates=None, scale=1.0):
        tickets = native.ops.het_keep_grad(
            ids=[tf.constant(x, tf.int64) if not tf.is_tensor(x) else x for x in ids],
            grads=[tf.constant(x, tf.float32) if not tf.is_tensor(x) else x for x in grads],
            token=token,
            norm=0.0,
            **self.attrs,
        )
        return native.ops.het_apply_grad(
            tickets=tickets,
            learning_rates=rates if rates is not None else [1.0] * len(self.specs),
            scale=scale,
            **self.attrs,
        )


def one(padding=None, **more):
    return Features((table_spec(**more), padding)).create()


def test_static_shape_in_graphs():
    features = Features((table_spec("a", 4), None), (table_spec("b", 7), None)).create()

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
    out = features.lookup([1], training=True)
    features.apply(out.token, [[1]], [np.ones((1, 4))])
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
        Features((table_spec(dim=5), None)).lookup([1])


def test_gradients_of_a_wrong_shape_are_refused():
    features = one()
    for shape in [(2, 3), (1, 4), (2, 4, 1), (8,)]:
        out = features.lookup([1, 2], training=True)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be \[2, 4\]"):
            features.apply(out.token, [[1, 2]], [np.ones(shape)])


def test_hints_of_a_wrong_dim_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be \[0, 4\]"):
        one().lookup([1], hints=[tf.zeros([0, 5])])


def test_learning_rates_are_checked():
    features = one()
    for rates, message in [([1.0, 1.0], "2 learning rates for 1 tables"), ([np.nan], "not finite")]:
        out = features.lookup([1], training=True)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            features.apply(out.token, [[1]], [np.ones((1, 4))], rates=rates)


@pytest.mark.parametrize(
    "specs, message",
    [
        ("{", "not the JSON"),
        ("{}", "not the JSON"),
        ('{"tables": [], "features": [{"table": 0}]}', "names table 0 of 0"),
        ('{"tables": [{"name": "t", "dim": 0}], "features": [{"table": 0}]}', "dim is 0"),
        ('{"tables": [{"name": "t", "dim": 4}], "features": []}', "1 tables, one a feature, but specs has 0"),
        ('{"tables": [{"name": "u", "dim": 4}], "features": [{"table": 0}]}', "says 't' for feature 0"),
    ],
)
def test_broken_specs_are_refused(specs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        native.ops.het_lookup(
            ids=[tf.constant([1], tf.int64)],
            anchor=0.0,
            hints=[tf.zeros([0, 4])],
            tables=["t"],
            specs=specs,
            training=False,
        )


def test_build_info():
    info = native.build_info()
    assert set(info) == {"version", "compiler", "march", "tf_headers", "build_type"}
