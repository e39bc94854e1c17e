"""Inputs that TensorFlow alone has, ragged and sparse, against plain numpy; and what graphs and Keras make.

Dense inputs, on each backend: tests/plugin/backends/test_dense_inputs.py; ids: test_ids.py there.
"""

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import assert_close
from rules_lib import keras, learn

import het_tf

pytestmark = [pytest.mark.usefixtures("fresh")]

DIM = 3
COMBINERS = ["sum", "mean", "sqrtn"]
SAMPLES = [[1, 2, 2], [], [-5], [2**40, 7, 1, 3]]
WEIGHTS = [[0.5, 2.0, 1.0], [], [3.0], [1.0, 0.25, 2.0, 1.5]]


def embedding(combiner=None, **more):
    return het_tf.keras.Embedding(DIM, combiner, name="t", optimizer=het_tf.optimizers.SGD(1.0), **more)


def row(key):
    return het_tf.Table("t").lookup([key])[0]


def seen():
    return het_tf.Table("t").to_numpy()[0].tolist()


def factors(combiner, weights):
    """What each row of a sample counts for, by the definition."""
    weights = np.asarray(weights, np.float64)
    divisor = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return weights / (divisor or 1.0)


def combine(combiner, ids, weights=None):
    """One sample's output."""
    of_ids = factors(combiner, np.ones(len(ids)) if weights is None else weights)
    return sum((one * row(key) for key, one in zip(ids, of_ids, strict=True)), np.zeros(DIM))


def given(kind, samples=SAMPLES, dtype=tf.int64):
    if kind == "dense":
        return tf.constant(samples, dtype)
    made = tf.ragged.constant(samples, dtype=dtype, ragged_rank=1)
    return made.to_sparse() if kind == "sparse" else made


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_combiners_against_the_definition(kind, combiner, weighted, graph):
    """SGD(1) moves each row by minus its gradient; ids that are not there are not touched."""
    weights = given(kind, WEIGHTS, tf.float32) if weighted else None
    layer = embedding(combiner)
    before = het_tf.Table("t").lookup(sorted({key for sample in SAMPLES for key in sample}))
    want = [combine(combiner, ids, WEIGHTS[i] if weighted else None) for i, ids in enumerate(SAMPLES)]
    # The loss is linear in the rows, so its gradient is what the rows count for.
    direction = np.arange(1, 5, dtype=np.float32)[:, None] * np.ones(DIM, np.float32)
    call = tf.function(layer) if graph else layer
    got = learn(layer, lambda: call(given(kind), weights=weights) * direction) / direction
    assert_close(got, want)
    np.testing.assert_array_equal(got[1], np.zeros(DIM))  # the empty sample
    moved: dict[int, float] = {}
    for i, sample in enumerate(SAMPLES):
        of_sample = factors(combiner, WEIGHTS[i] if weighted else np.ones(len(sample)))
        for key, one in zip(sample, of_sample, strict=True):
            moved[key] = moved.get(key, 0) - (i + 1) * one
    keys, rows = het_tf.Table("t").to_numpy()
    assert keys.tolist() == sorted(moved)
    assert_close(rows - before, np.repeat([[moved[key]] for key in keys], DIM, 1), 64)


def test_ragged_without_a_combiner_stays_ragged():
    ids = given("ragged")
    rows = embedding()(ids)
    assert isinstance(rows, tf.RaggedTensor)
    assert rows.row_lengths().numpy().tolist() == [3, 0, 1, 4]
    np.testing.assert_allclose(rows[3][1], row(7))
    weighted = embedding()(ids, weights=ids.with_values(tf.range(8, dtype=tf.float32)))
    np.testing.assert_allclose(weighted[3][1], 5 * row(7), rtol=1e-6)


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
@pytest.mark.parametrize("length", [2, 4, 6])
def test_max_sequence_length(kind, length):
    samples = [[1, 2, 3, 4], [5], []]
    layer = embedding(max_sequence_length=length)
    want = [
        [row(sample[j]) if j < len(sample) else np.zeros(DIM) for j in range(length)] for sample in samples
    ]
    np.testing.assert_allclose(learn(layer, lambda: layer(given(kind, samples))), want)
    # Nothing beyond the length was touched.
    assert seen() == sorted({key for sample in samples for key in sample[:length]})


def test_two_ragged_axes_combine_over_the_inner_one():
    rows = embedding("sum")(tf.ragged.constant([[[1, 2], [3]], [[]], []], dtype=tf.int64))
    assert rows.row_lengths().numpy().tolist() == [2, 1, 0]
    np.testing.assert_allclose(rows.values, [row(1) + row(2), row(3), np.zeros(DIM)], rtol=1e-6)


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("combiner", [None, "mean"])
def test_ids_of_any_rank_are_looked_up_and_trained(rank, combiner):
    """Would catch: axes that are lost in the rows, in the gradient, or in the shape for Keras."""
    shape = (2, 3, 2, 3, 2)[:rank]
    ids = np.arange(np.prod(shape)).reshape(shape) % 7
    layer, table = embedding(combiner), het_tf.Table("t")
    first, before = table.lookup(np.arange(7)), table.lookup(ids)
    inputs = keras.Input(shape[1:], dtype="int64")
    model = keras.Model(inputs, layer(inputs))
    expected = before if combiner is None else before.mean(-2)
    np.testing.assert_allclose(model(ids), expected, rtol=1e-5)
    assert model.output_shape == (None, *expected.shape[1:])
    learn(model, lambda: model(ids, training=True))
    share = 1 if combiner is None else 1 / shape[-1]
    moved = share * np.bincount(ids.ravel(), minlength=7)[:, None]
    np.testing.assert_allclose(table.lookup(np.arange(7)), first - moved, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("combiner", [None, *COMBINERS])
def test_one_id_a_sample(combiner):
    np.testing.assert_allclose(embedding(combiner)(tf.constant([3, 4])), [row(3), row(4)], rtol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_empty_batches(kind, combiner):
    ids = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0])
    ids = {"dense": np.zeros((0, 4), np.int64), "ragged": ids, "sparse": ids.to_sparse()}[kind]
    layer = embedding(combiner)
    assert learn(layer, lambda: layer(ids)).shape == (0, DIM)
    assert het_tf.Table("t").size == 0


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_strings_are_hashed_to_64_bits(kind):
    ids = tf.constant([["red", "green"], ["red", "äöü"]])
    ids = {"ragged": tf.RaggedTensor.from_tensor, "sparse": tf.sparse.from_dense}.get(kind, tf.identity)(ids)
    layer = embedding("sum")
    learn(layer, lambda: layer(ids))
    # Fixed for ever: tf.strings.to_hash_bucket_strong with het_tf's key.
    assert seen() == [1798467943909468361, 3478622896123345282, 8178091458643279843]


def test_features_of_a_collection_may_be_of_different_kinds():
    table = het_tf.TableConfig("t", DIM)
    combiners = {"dense": None, "ragged": "mean", "sparse": "sum"}
    features = {name: het_tf.FeatureConfig(table, combiner) for name, combiner in combiners.items()}
    ids = {"dense": tf.constant([1, 2, 3, 4]), "ragged": given("ragged"), "sparse": given("sparse")}
    weights = {"sparse": given("sparse", WEIGHTS, tf.float32)}
    rows = het_tf.keras.EmbeddingCollection(features)(ids, weights=weights)
    assert_close(rows["ragged"][3], combine("mean", SAMPLES[3]))
    assert_close(rows["sparse"][3], combine("sum", SAMPLES[3], WEIGHTS[3]))


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_models_with_weights(kind):
    shape, more = ((2,), {}) if kind == "dense" else ((None,), {kind: True})
    ids, weights = (keras.Input(shape, dtype=dtype, **more) for dtype in ("int64", "float32"))
    model = keras.Model([ids, weights], embedding("sum")(ids, weights=weights))
    samples = [[1, 2], [3, 3]], [[0.5, 1.0], [2.0, 0.0]]
    got = model([given(kind, samples[0]), given(kind, samples[1], tf.float32)])
    assert_close(got, [combine("sum", ids, w) for ids, w in zip(*samples, strict=True)])


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_models_train_on_ragged_and_sparse_batches(kind):
    ids = keras.Input((None,), dtype="int64", **{kind: True})
    model = keras.Model(ids, keras.layers.Dense(1)(embedding("mean")(ids)))
    model.compile("sgd", "mse")
    x = given(kind, [[1, 2], [], [3]] * 4)
    model.fit(tf.data.Dataset.from_tensor_slices((x, tf.ones([12, 1]))).batch(4), verbose=0)
    assert seen() == [1, 2, 3]


def test_weights_that_are_learned_get_gradients():
    layer = embedding("sum")
    weights = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[1, 2]]), weights=weights))
    assert_close(tape.gradient(loss, weights), [[row(1).sum(), row(2).sum()]], magnitude=1)


WRONG_WEIGHTS = {
    "shape": (tf.constant([[1, 2]]), tf.constant([[1.0]])),
    "rank": (tf.constant([[1, 2]]), tf.constant([1.0, 2.0])),
    "ragged of dense": (tf.constant([[1, 2]]), tf.ragged.constant([[1.0, 2.0]])),
    "dense of ragged": (tf.ragged.constant([[1, 2]]), tf.constant([[1.0, 2.0]])),
    "dense of sparse": (tf.sparse.from_dense([[1, 2]]), tf.constant([[1.0, 2.0]])),
    "row lengths": (tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[1.0], [2.0, 3.0]])),
    "indices": (tf.sparse.from_dense([[1, 2, 0]]), tf.sparse.from_dense([[1.0, 0.0, 2.0]])),
}


@pytest.mark.parametrize("kind", WRONG_WEIGHTS)
def test_weights_of_another_shape_are_refused(kind):
    ids, weights = WRONG_WEIGHTS[kind]
    with pytest.raises(ValueError, match="weight"):
        embedding("sum")(ids, weights=weights)


def test_weights_of_another_shape_are_refused_in_graphs_too():
    layer = embedding("sum")

    def call(ids, weights):
        return layer(ids, weights=weights)

    signature = [tf.TensorSpec([None, None], dtype) for dtype in (tf.int64, tf.float32)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape of the ids"):
        tf.function(call, input_signature=signature)(tf.constant([[1, 2]], tf.int64), tf.constant([[1.0]]))
    for kind in ("row lengths", "indices"):
        ids, weights = WRONG_WEIGHTS[kind]
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"other {kind} than ids; give one weight"):
            tf.function(call)(ids, weights)
        right = ids.with_values(tf.ones_like(ids.values, tf.float32))
        if kind == "indices":
            right = tf.SparseTensor(tf.identity(ids.indices), right.values, ids.dense_shape)
        tf.function(call)(ids, right)
    with pytest.raises(ValueError, match="one weight for each id"):
        call(keras.Input((2,), dtype="int64"), keras.Input((3,)))


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_what_nan_becomes_is_no_id(mode):
    """Ids with a hole were floats, NaN became -2^63, and that row was trained. As padding it is legal."""
    table = het_tf.TableConfig("t", DIM)
    user = het_tf.FeatureConfig(table, combiner="sum", padding_id=-(2**63))
    layer = het_tf.keras.EmbeddingCollection({"item": het_tf.FeatureConfig(table), "user": user})
    call = tf.function(layer) if mode == "graph" else layer
    holes = tf.cast(np.array([1, np.nan, 2, np.nan]), tf.int64)
    rows = call({"item": tf.constant([1, 2, 3, 4], tf.int64), "user": holes[:, None]})
    assert not rows["user"][1].numpy().any()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'item': 2 of 4 ids are -2\^63.*NaN"):
        call({"item": holes, "user": holes[:, None]})


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("kind", ["functional", "sequential", "subclassed"])
def test_large_ids_stay_apart(kind, policy):
    keras.mixed_precision.set_global_policy(policy)
    layer, inputs = embedding("sum"), keras.Input((2,), dtype="int64")

    class Subclassed(keras.Model):
        def call(self, ids):
            return layer(ids)

    model = {
        "functional": lambda: keras.Model(inputs, layer(inputs)),
        "sequential": lambda: keras.Sequential([inputs, layer]),
        "subclassed": Subclassed,
    }[kind]()
    ids = np.array([[2**53, 2**53 + 1], [2**24, 2**24 + 1], [2**31 - 1, 1 - 2**63]])
    tf.function(lambda ids: learn(layer, lambda: tf.cast(model(ids), tf.float32)))(tf.constant(ids))
    assert seen() == sorted(ids.ravel())


def test_output_spec_is_equal_for_all_inputs():
    layer = embedding("mean")
    kinds = ({}, {"ragged": True}, {"sparse": True})
    specs = [layer(keras.Input((5,), dtype="int64", **more)) for more in kinds]
    assert {(spec.shape, spec.dtype) for spec in specs} == {((None, DIM), "float32")}
