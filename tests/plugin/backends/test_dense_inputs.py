"""Dense inputs give the rows of their definition on each backend: combiners, weights, masks, padding."""

import keras
import numpy as np
import pytest
from backends_lib import DIM, apply, array, gradients, rows

import het_tf

IDS = np.array([[3, 5, -1, 7], [-1, -1, -1, -1], [1, 1, 2, 0]], "int32")
WEIGHTS = np.array([[0.5, 2, 9, 1], [1, 1, 1, 1], [0, -1, 0.25, 3]], "float32")
MASK = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]], bool)


def expected(table, combiner, weights, mask, length):
    """The same by numpy, in float64; also what each id's gradient is for outputs that are summed."""
    ids = IDS[:, :length]
    present = (ids != -1).astype(float) * (1 if mask is None else mask[:, :length])
    counts = present * (1 if weights is None else weights[:, :length])
    sums = counts.sum(1, keepdims=True), np.sqrt((counts**2).sum(1, keepdims=True))
    divisor = dict(zip(("mean", "sqrtn"), sums, strict=True)).get(combiner, np.ones((len(ids), 1)))
    factors = np.divide(counts, divisor, out=np.zeros_like(counts), where=divisor != 0)
    each = factors[..., None] * np.where(ids[..., None] == -1, 0, table[ids])
    if combiner is None and length == 6:
        each = np.pad(each, [[0, 0], [0, 2], [0, 0]])
    return (each if combiner is None else each.sum(1)), factors


OUTPUTS = [(None, None), (None, 2), (None, 6), ("sum", None), ("mean", None), ("sqrtn", None)]


@pytest.mark.parametrize(("combiner", "length"), OUTPUTS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_rows_and_gradients(combiner, weighted, masked, length):
    more = {"optimizer": het_tf.optimizers.SGD(1.0), "max_sequence_length": length}
    layer = het_tf.keras.Embedding(DIM, combiner, padding_id=-1, name="t", **more)
    table = rows().astype(np.float64)
    weights, mask = (WEIGHTS if weighted else None), (MASK if masked else None)
    output, factors = expected(table, combiner, weights, mask, length)

    given = [None if x is None else keras.ops.convert_to_tensor(x) for x in (IDS, weights, mask)]
    found = layer(given[0], weights=given[1], mask=given[2])
    np.testing.assert_allclose(array(found), output, atol=1e-6)

    def loss():
        return keras.ops.sum(layer(given[0], weights=given[1], mask=given[2], training=True))

    _, of_anchor = gradients(loss, layer.trainable_variables)
    apply(keras.optimizers.SGD(1.0), of_anchor, layer.trainable_variables)
    moved = np.zeros_like(table)
    flat = IDS[:, : factors.shape[1]]
    np.add.at(moved, flat[flat != -1], factors[flat != -1][:, None])
    np.testing.assert_allclose(rows(), table - moved, atol=1e-5)
    touched = (mask[:, : factors.shape[1]] if masked else True) & (flat != -1)
    assert set(het_tf.Table("t").to_numpy()[0]) <= set(flat[touched])


def test_a_collection_of_dicts_with_a_shared_table():
    table = het_tf.TableConfig("item", DIM, optimizer="sgd")
    features = {
        "item": het_tf.FeatureConfig(table),
        "history": het_tf.FeatureConfig(table, combiner="mean", padding_id=-1),
        "user": het_tf.FeatureConfig(het_tf.TableConfig("user", 2)),
    }
    embed = het_tf.keras.EmbeddingCollection(features)
    item, user = np.array([1, 2], "int32"), np.array([[4], [5]], "int32")
    out = embed({"item": item, "history": IDS[:2], "user": user})
    shapes = {name: tuple(one.shape) for name, one in out.items()}
    assert shapes == {"item": (2, DIM), "history": (2, DIM), "user": (2, 1, 2)}
    np.testing.assert_array_equal(array(out["item"]), rows("item")[1:3])
    assert len(embed.trainable_variables) == 1  # one variable for the tables that it has made


def test_a_functional_model_passes_masks_on():
    inputs = keras.Input((4,), dtype="int32")
    hidden = het_tf.keras.Embedding(DIM, padding_id=-1, name="t")(inputs)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(hidden))
    expect = np.stack([rows()[[3, 5, 7]].mean(0), rows()[[1, 1, 2, 0]].mean(0)])
    np.testing.assert_allclose(model.predict(IDS[[0, 2]], verbose=0), expect, atol=1e-6)


def test_hashes_of_strings_are_for_ever():
    """Other strings and integers, at each door: test_ids.py."""
    ids = het_tf.Table.hash_ids(np.array(["a", "bc", ""]))
    assert ids.dtype == np.int64
    np.testing.assert_array_equal(ids, [4790833026637755186, 7030156971192574935, 1595790814156411439])
