"""RecallAtK, NDCG and MRR: over all orders of equal scores, with padding, and what they refuse."""

from __future__ import annotations

import keras
import metrics_lib
import numpy as np
import pytest
from backends_lib import invalid, on_tensorflow

import het_tf

RecallAtK, NDCG = het_tf.metrics.RecallAtK, het_tf.metrics.NDCG
MeanReciprocalRank = het_tf.metrics.MeanReciprocalRank
K = 3


def lists(rows=25, items=5, seed=0):
    """Scores with many ties, infinite ones among them, graded relevance; some lists have no relevant item."""
    rng = np.random.default_rng(seed)
    scores = rng.choice([-np.inf, -1.0, 0.0, 0.5, np.inf], (rows, items)).astype("float32")
    relevance = rng.choice([0, 0, 0, 1, 2, 3], (rows, items))
    relevance[:2] = 0
    return scores, relevance


METRICS = [
    (RecallAtK(K, dtype="float64"), lambda r: metrics_lib.recall(r, K)),
    (NDCG(K, dtype="float64"), lambda r: metrics_lib.ndcg(r, K, lambda x: 2.0**x - 1)),
    (NDCG(K, gain="linear", dtype="float64"), lambda r: metrics_lib.ndcg(r, K, float)),
    (MeanReciprocalRank(dtype="float64"), lambda r: metrics_lib.reciprocal_rank(r, 99)),
    (MeanReciprocalRank(K, dtype="float64"), lambda r: metrics_lib.reciprocal_rank(r, K)),
]
IDS = ["recall", "ndcg", "ndcg-linear", "mrr", "mrr-at-k"]


@pytest.fixture(scope="module")
def expected():
    """Returns for each metric and list the mean over all orders; NaN without a relevant item."""
    scores, relevance = lists()
    return [
        np.array([
            metrics_lib.mean_over_orders(s, value(r)) if any(r) else np.nan
            for s, r in zip(scores, relevance, strict=True)
        ])
        for _, value in METRICS
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(METRICS)), ids=IDS)
def test_ties_count_mean_over_their_orders(number, expected):
    scores, relevance = lists()
    metric, _ = METRICS[number]
    for wanted, s, r in zip(expected[number], scores, relevance, strict=True):
        metric.reset_state()
        metric.update_state(r[None], s[None])
        np.testing.assert_allclose(float(metric.result()), wanted, atol=1e-12)
    weights = np.random.default_rng(1).random(len(scores))
    there = ~np.isnan(expected[number])
    for weight in (None, weights):
        metric.reset_state()
        for part in (slice(0, 4), slice(4, None)):
            metric.update_state(relevance[part], scores[part], None if weight is None else weight[part, None])
        mean = np.average(expected[number][there], weights=None if weight is None else weight[there])
        assert float(metric.result()) == pytest.approx(mean, abs=1e-7 if weight is None else 1e-6)
        assert metric.left_out == np.count_nonzero(~there) >= 2


@pytest.mark.parametrize("number", range(len(METRICS)), ids=IDS)
@pytest.mark.parametrize("how", ["labels", "mask"])
def test_padding_is_no_item(number, how, expected):
    scores, relevance = lists()
    rng = np.random.default_rng(2)
    wide = np.full((len(scores), 10), np.inf, "float32")  # padding would come first
    labels = np.full(wide.shape, -1 if how == "labels" else 3)
    mask = np.zeros(wide.shape, bool)
    for row in range(len(scores)):
        places = np.sort(rng.choice(10, 5, replace=False))
        wide[row, places], labels[row, places], mask[row, places] = scores[row], relevance[row], True
    metric, _ = METRICS[number]
    metric.reset_state()
    metric.update_state(labels, wide, mask=mask if how == "mask" else None)
    assert float(metric.result()) == pytest.approx(np.nanmean(expected[number]), abs=1e-12)


def test_fewer_items_than_k_behind_a_mask():
    ndcg, recall = NDCG(4), RecallAtK(4)
    for metric in (ndcg, recall):
        metric.update_state([[0, 1, -1, -1, -1]], [[2.0, 1.0, 5.0, 5.0, 5.0]])
    assert float(recall.result()) == 1
    assert float(ndcg.result()) == pytest.approx(1 / np.log2(3))


def test_scores_of_64_bits_are_told_apart():
    """Lowest and padding, too, where a backend would round to 32 bits."""
    metric = MeanReciprocalRank(dtype="float64")
    metric.update_state(np.array([[0, 1, 0, -1]]), np.array([[0.5, 0.5 + 1e-12, -np.inf, np.inf]]))
    metric.update_state(np.array([[0, 0, 1, -1]]), np.array([[0.5, -1e300, -np.inf, np.inf]]))
    assert float(metric.result()) == pytest.approx((1 + 1 / 3) / 2, abs=1e-15)


def test_the_number_of_the_relevant_item_is_enough():
    scores, _ = lists()
    numbers = np.random.default_rng(3).integers(-1, 5, len(scores))
    relevance = np.eye(5)[numbers] * (numbers >= 0)[:, None]
    for kind in (RecallAtK, NDCG, MeanReciprocalRank):
        one, other = kind(K, sparse=True), kind(K)
        one.update_state(numbers[:, None], scores)
        other.update_state(relevance, scores)
        assert float(one.result()) == float(other.result()) and one.left_out == other.left_out > 0


def test_compile_with_half_precision_and_keras_mask():
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    fresh = np.random.default_rng(0)
    scores = fresh.integers(0, 9, (20, 5)).astype("float32")
    y = fresh.integers(0, 2, (20, 5)).astype("float32")
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Activation("linear")(inputs))
    metrics = [RecallAtK(2), NDCG(2), MeanReciprocalRank()]
    model.compile("sgd", "mse", metrics=metrics, jit_compile=False)
    logs = model.evaluate(scores, y, batch_size=8, verbose=0, return_dict=True)
    for metric in metrics:
        alone = type(metric).from_config(metric.get_config())
        alone.update_state(y, scores)
        assert logs[metric.name] == pytest.approx(float(alone.result()), abs=1e-6)
    assert {metric.name for metric in metrics} == {"recall_at_2", "ndcg_at_2", "mrr"}

    masked = keras.ops.convert_to_tensor(scores)
    masked._keras_mask = keras.ops.convert_to_tensor(y > 0)
    recall = RecallAtK(5)
    recall.update_state(np.ones_like(y), masked)
    assert recall.left_out == np.count_nonzero(~y.any(1))


def test_a_batch_without_lists_adds_nothing():
    for metric in (RecallAtK(2), NDCG(2), MeanReciprocalRank(), RecallAtK(2, sparse=True)):
        good = dict(y_true=[2], y_pred=GOOD["y_pred"]) if metric.sparse else GOOD
        metric.update_state(**good)
        before = float(metric.result())
        metric.update_state(np.ones((0,) if metric.sparse else (0, 3), "int32"), np.ones((0, 3), "float32"))
        assert float(metric.result()) == before


def test_configurations_return():
    for metric in (RecallAtK(7, sparse=True), NDCG(7, gain="linear", name="mine"), MeanReciprocalRank(4)):
        again = type(metric).from_config(metric.get_config())
        assert again.get_config() == metric.get_config()
        assert type(keras.metrics.deserialize(keras.metrics.serialize(metric))) is type(metric)


GOOD = dict(y_true=[[1, 0, 0]], y_pred=[[0.1, 0.2, 0.3]])
INVALID = invalid()
BAD = [
    (dict(), dict(y_pred=[0.1, 0.2]), ValueError, r"y_pred has shape \(2,\); give scores \[batch, items\]"),
    (dict(), dict(y_true=[[1, 0]]), ValueError, r"y_true has shape \(1, 2\), but y_pred \(1, 3\)"),
    (dict(), dict(y_pred=[[np.nan, 0, 0]]), INVALID, "y_pred is NaN"),
    (dict(), dict(mask=[[True]]), ValueError, r"mask has shape \(1, 1\)"),
    (dict(), dict(sample_weight=[[1.0, 1.0, 1.0]]), ValueError, "give one weight a list"),
    (dict(), dict(sample_weight=[-1.0]), INVALID, "sample_weight has a negative value"),
    (dict(sparse=True), dict(y_true=[0.5]), ValueError, "y_true is float32; with sparse=True"),
    (dict(sparse=True), dict(y_true=[3]), INVALID, "y_true has"),
]


@pytest.mark.parametrize(("arguments", "change", "error", "message"), BAD)
def test_bad_input_is_refused(arguments, change, error, message):
    for kind in (RecallAtK, NDCG, MeanReciprocalRank):
        with pytest.raises(error, match=message):
            kind(2, **arguments).update_state(**{**GOOD, **change})


def test_k_is_refused_beyond_the_items():
    for kind in (RecallAtK, NDCG, MeanReciprocalRank):
        with pytest.raises(ValueError, match="k is 4, but the lists have 3 items; give a k of at most 3"):
            kind(4).update_state(**GOOD)
        for k in (0, 2.0, True):
            with pytest.raises(ValueError, match="give an integer of 1 or more"):
                kind(k)
    with pytest.raises(ValueError, match="gain is 'log'; give one of"):
        NDCG(2, gain="log")


@on_tensorflow
def test_k_is_refused_when_a_graph_runs():
    import tensorflow as tf

    metric = NDCG(4)

    @tf.function(input_signature=[tf.TensorSpec([None, None])] * 2)
    def update(y, scores):
        metric.update_state(y, scores)

    with pytest.raises(INVALID, match="k is 4, but the lists have") as error:
        update(*(tf.constant(one, tf.float32) for one in GOOD.values()))
    assert "[3]" in str(error.value)
