"""Inputs of every kind against a plain numpy reference: dense, masked, ragged, sparse, weighted, hashed."""

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import assert_close
from rules_lib import learn

import het_tf

keras = tf.keras
pytestmark = [pytest.mark.usefixtures("fresh")]

DIM = 3
COMBINERS = ["sum", "mean", "sqrtn"]


def embedding(combiner=None, padding_id=None, **more):
    return het_tf.keras.Embedding(
        DIM, combiner, padding_id, name=more.pop("name", "t"), optimizer=het_tf.optimizers.SGD(1.0), **more
    )


def row(key):
    return het_tf.Table("t").lookup([key])[0]


def combine(combiner, ids, weights=None):
    """One sample's output, by the definition."""
    if len(ids) == 0:
        return np.zeros(DIM, np.float32)
    weights = np.ones(len(ids)) if weights is None else np.asarray(weights, np.float64)
    total = sum(weight * row(key) for key, weight in zip(ids, weights, strict=True))
    divisor = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return total / divisor if divisor != 0 else np.zeros(DIM)


SAMPLES = [[1, 2, 2], [], [-5], [2**40, 7, 1, 3]]
WEIGHTS = [[0.5, 2.0, 1.0], [], [3.0], [1.0, 0.25, 2.0, 1.5]]


def ragged(samples, dtype=tf.int64):
    return tf.ragged.constant(samples, dtype=dtype, ragged_rank=1)


def padded(samples, value, dtype=np.int64):
    out = np.full((len(samples), 4), value, dtype)
    for i, sample in enumerate(samples):
        out[i, : len(sample)] = sample
    return out


def as_input(kind, samples=SAMPLES, weights=None):
    """The samples as an input of a kind, with weights and mask, and the layer's padding_id."""
    ids = ragged(samples)
    of_weights = None if weights is None else ragged(weights, tf.float32)
    if kind == "ragged":
        return ids, of_weights, None, None
    if kind == "sparse":
        return ids.to_sparse(), None if weights is None else of_weights.to_sparse(), None, None
    dense = padded(samples, -1)
    of_weights = None if weights is None else padded(weights, 9.0, np.float32)
    if kind == "padded":
        return dense, of_weights, None, -1
    mask = padded([[True] * len(sample) for sample in samples], False, bool)
    return padded(samples, 1), of_weights, mask, None


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", ["padded", "masked", "ragged", "sparse"])
def test_combiners_against_the_definition(kind, combiner, weighted, graph):
    ids, weights, mask, padding = as_input(kind, weights=WEIGHTS if weighted else None)
    layer = embedding(combiner, padding)
    run = tf.function(layer) if graph else layer
    arguments = {} if mask is None else {"mask": tf.constant(mask)}
    if weights is not None:
        arguments["weights"] = tf.constant(weights) if isinstance(weights, np.ndarray) else weights
    got = run(tf.constant(ids) if isinstance(ids, np.ndarray) else ids, **arguments)
    want = [combine(combiner, sample, WEIGHTS[i] if weighted else None) for i, sample in enumerate(SAMPLES)]
    assert_close(got, want)
    np.testing.assert_array_equal(got[1], np.zeros(DIM))  # the empty sample


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", ["padded", "masked", "ragged", "sparse"])
def test_gradients_against_finite_differences_of_the_definition(kind, combiner, weighted):
    """SGD(1) moves each row by minus its gradient; ids that are not there are not touched."""
    ids, weights, mask, padding = as_input(kind, weights=WEIGHTS if weighted else None)
    layer = embedding(combiner, padding, initializer="zeros")
    # The loss is linear in the rows, so its gradient is what the rows count for.
    direction = np.arange(1, 5, dtype=np.float32)[:, None] * np.ones(DIM, np.float32)
    learn(layer, lambda: tf.reduce_sum(layer(ids, weights=weights, mask=mask) * direction))
    want: dict[int, float] = {}
    for i, sample in enumerate(SAMPLES):
        w = np.asarray(WEIGHTS[i] if weighted else np.ones(len(sample)))
        divisor = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w**2).sum())}[combiner]
        for key, weight in zip(sample, w, strict=True):
            want[key] = want.get(key, 0) - (i + 1) * weight / divisor
    keys, rows = het_tf.Table("t").to_numpy()
    assert keys.tolist() == sorted(want)
    assert_close(rows[:, 0], [want[key] for key in keys])


def test_a_mask_without_a_combiner():
    ids, mask = np.array([[1, 2], [3, 4]]), np.array([[True, False], [False, True]])
    layer = embedding()
    want = [[row(1), np.zeros(DIM)], [np.zeros(DIM), row(4)]]
    np.testing.assert_allclose(learn(layer, lambda: layer(ids, mask=mask)), want)
    assert het_tf.Table("t").to_numpy()[0].tolist() == [1, 4]


def test_ragged_without_a_combiner_stays_ragged():
    ids = ragged(SAMPLES)
    rows = embedding()(ids)
    assert isinstance(rows, tf.RaggedTensor)
    assert rows.row_lengths().numpy().tolist() == [3, 0, 1, 4]
    np.testing.assert_allclose(rows[3][1], row(7))
    weighted = embedding()(ids, weights=ids.with_values(tf.range(8, dtype=tf.float32)))
    np.testing.assert_allclose(weighted[3][1], 5 * row(7), rtol=1e-6)


@pytest.mark.parametrize("kind", ["ragged", "sparse", "dense"])
@pytest.mark.parametrize("length", [2, 4, 6])
def test_max_sequence_length(kind, length):
    samples = [[1, 2, 3, 4], [5], []] if kind != "dense" else [[1, 2, 3], [4, 5, 6]]
    ids = ragged(samples) if kind != "dense" else tf.constant(samples, tf.int64)
    layer = embedding(max_sequence_length=length)
    want = [
        [row(sample[j]) if j < len(sample) else np.zeros(DIM) for j in range(length)] for sample in samples
    ]
    rows = learn(layer, lambda: layer(ids.to_sparse() if kind == "sparse" else ids))
    np.testing.assert_allclose(rows, want)
    seen = sorted({key for sample in samples for key in sample[:length]})
    assert het_tf.Table("t").to_numpy()[0].tolist() == seen  # nothing beyond the length was touched


def test_two_ragged_axes_combine_over_the_inner_one():
    ids = tf.ragged.constant([[[1, 2], [3]], [[]], []], dtype=tf.int64)
    rows = embedding("sum")(ids)
    assert rows.row_lengths().numpy().tolist() == [2, 1, 0]
    np.testing.assert_allclose(rows.values, [row(1) + row(2), row(3), np.zeros(DIM)], rtol=1e-6)


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("combiner", [None, "mean"])
def test_ids_of_any_rank_are_looked_up_and_trained(rank, combiner):
    """Would catch: axes that are lost in the rows, in the gradient, or in the shape for Keras."""
    shape = (2, 3, 2, 3, 2)[:rank]
    ids = np.arange(np.prod(shape)).reshape(shape) % 7
    layer = het_tf.keras.Embedding(2, combiner, name="t", optimizer=het_tf.optimizers.SGD(1.0))
    table = het_tf.Table("t")
    before = table.lookup(ids)
    inputs = keras.Input(shape[1:], dtype="int64")
    model = keras.Model(inputs, layer(inputs))
    expected = before if combiner is None else before.mean(-2)
    np.testing.assert_allclose(model(ids), expected, rtol=1e-5)
    assert model.output_shape == (None, *expected.shape[1:])
    learn(model, lambda: model(ids, training=True))
    share = 1 if combiner is None else 1 / shape[-1]
    moved = share * np.bincount(ids.ravel(), minlength=7)[:, None]
    np.testing.assert_allclose(table.lookup(np.arange(7)), _first(ids, before) - moved, rtol=1e-4, atol=1e-5)


def _first(ids, rows):
    """Rows of 0, 1, ... from a lookup of them in any shape."""
    places = np.unique(ids, return_index=True)[1]
    return rows.reshape(-1, rows.shape[-1])[places]


@pytest.mark.parametrize("combiner", [None, *COMBINERS])
def test_one_id_a_sample(combiner):
    np.testing.assert_allclose(embedding(combiner)(tf.constant([3, 4])), [row(3), row(4)], rtol=1e-6)


@pytest.mark.parametrize("kind", ["padded", "ragged", "sparse"])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_empty_batches(kind, combiner):
    if kind == "padded":
        ids = np.zeros((0, 4), np.int64)
    else:
        ids = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0])
        ids = ids.to_sparse() if kind == "sparse" else ids
    layer = embedding(combiner)
    assert learn(layer, lambda: layer(ids)).shape == (0, DIM)
    assert het_tf.Table("t").size == 0


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_every_width(dtype):
    np.testing.assert_array_equal(embedding()(tf.constant([1, 100], dtype)), [row(1), row(100)])


@pytest.mark.parametrize("ids", [[2**40, 1], [[1, 2], [3, 4]], np.array([5], np.int32), range(3)])
def test_lists_and_arrays(ids):
    rows = embedding()(ids if not isinstance(ids, range) else list(ids))
    np.testing.assert_array_equal(
        rows, het_tf.Table("t").lookup(list(ids) if isinstance(ids, range) else ids)
    )


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_strings_are_hashed_to_64_bits(kind):
    words = [["red", "green"], ["red", "äöü"]]
    ids = tf.constant(words)
    ids = {"dense": ids, "ragged": tf.RaggedTensor.from_tensor(ids), "sparse": tf.sparse.from_dense(ids)}[
        kind
    ]
    layer = embedding("sum")
    learn(layer, lambda: layer(ids))
    keys = het_tf.Table("t").to_numpy()[0]
    # Fixed for ever: tables that were trained with strings depend on it.
    assert keys.tolist() == sorted(GOLDEN.values())


# tf.strings.to_hash_bucket_strong with het_tf's key.
GOLDEN = {"red": 3478622896123345282, "green": 8178091458643279843, "äöü": 1798467943909468361}


def test_features_of_a_collection_may_be_of_different_kinds():
    table = het_tf.TableConfig("t", DIM)
    layer = het_tf.keras.EmbeddingCollection({
        "dense": het_tf.FeatureConfig(table),
        "ragged": het_tf.FeatureConfig(table, "mean"),
        "sparse": het_tf.FeatureConfig(table, "sum"),
    })  # fmt: skip
    ids = {
        "dense": tf.constant([1, 2, 3, 4]),
        "ragged": ragged(SAMPLES),
        "sparse": ragged(SAMPLES).to_sparse(),
    }
    rows = layer(ids, weights={"sparse": ragged(WEIGHTS, tf.float32).to_sparse()})
    assert_close(rows["ragged"][3], combine("mean", SAMPLES[3]))
    assert_close(rows["sparse"][3], combine("sum", SAMPLES[3], WEIGHTS[3]))


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_models_with_weights(kind):
    shape = (None,) if kind != "dense" else (2,)
    more = {} if kind == "dense" else {kind: True}
    ids = keras.Input(shape, dtype="int64", **more)
    weights = keras.Input(shape, dtype="float32", **more)
    model = keras.Model([ids, weights], embedding("sum")(ids, weights=weights))
    samples = ([[1, 2], [3, 3]], [[0.5, 1.0], [2.0, 0.0]])
    if kind == "dense":
        x = [np.array(samples[0]), np.array(samples[1], np.float32)]
    else:
        x = [ragged(samples[0]), ragged(samples[1], tf.float32)]
        x = [value.to_sparse() for value in x] if kind == "sparse" else x
    got = model(x)
    want = [combine("sum", ids, w) for ids, w in zip(*samples, strict=True)]
    assert_close(got, want)


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_models_train_on_ragged_and_sparse_batches(kind):
    ids = keras.Input((None,), dtype="int64", **{kind: True})
    layer = embedding("mean")
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    model.compile("sgd", "mse")
    x = ragged([[1, 2], [], [3]] * 4)
    x = x.to_sparse() if kind == "sparse" else x
    data = tf.data.Dataset.from_tensor_slices((x, tf.ones([12, 1]))).batch(4)
    model.fit(data, verbose=0)
    assert het_tf.Table("t").to_numpy()[0].tolist() == [1, 2, 3]


def test_weights_that_are_learned_get_gradients():
    layer = embedding("sum")
    weights = tf.Variable([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[1, 2]]), weights=weights))
        want = [[row(1).sum(), row(2).sum()]]
    assert_close(tape.gradient(loss, weights), want, magnitude=1)


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
    run = tf.function(
        lambda ids, weights: layer(ids, weights=weights),
        input_signature=[tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None, None], tf.float32)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape of the ids"):
        run(tf.constant([[1, 2]], tf.int64), tf.constant([[1.0]]))
    for kind in ("row lengths", "indices"):
        ids, weights = WRONG_WEIGHTS[kind]
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"other {kind} than ids; give one weight"):
            tf.function(lambda ids, weights: layer(ids, weights=weights))(ids, weights)
        places = ids.indices if kind == "indices" else None
        ones = tf.ones_like(ids.values, tf.float32)
        right = (
            ids.with_values(ones)
            if places is None
            else tf.SparseTensor(tf.identity(places), ones, ids.dense_shape)
        )
        tf.function(lambda ids, weights: layer(ids, weights=weights))(ids, right)
    with pytest.raises(ValueError, match="one weight for each id"):
        layer(keras.Input((2,), dtype="int64"), weights=keras.Input((3,)))


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_what_nan_becomes_is_no_id(mode):
    """Ids with a hole were floats, NaN became -2^63, and that row was trained. As padding it is legal."""
    table = het_tf.TableConfig("t", DIM)
    layer = het_tf.keras.EmbeddingCollection(
        {
            "item": het_tf.FeatureConfig(table),
            "user": het_tf.FeatureConfig(table, combiner="sum", padding_id=-(2**63)),
        }
    )
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

    @tf.function
    def train(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(model(ids), tf.float32))
        het_tf.apply([(tape.gradient(loss, layer.anchor), layer.anchor)])

    train(tf.constant(ids))
    np.testing.assert_array_equal(het_tf.Table("t").to_numpy()[0], np.sort(ids.ravel()))


def test_output_spec_is_equal_for_all_inputs():
    layer = embedding("mean")
    specs = [
        layer(keras.Input((5,), dtype="int64", **more)) for more in ({}, {"ragged": True}, {"sparse": True})
    ]
    assert {(spec.shape, spec.dtype) for spec in specs} == {((None, DIM), "float32")}
