"""Metrics beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

import het_tf


@pytest.fixture(scope="module")
def sklearn_metrics():
    import sklearn.metrics  # not where these tests do not run

    return sklearn.metrics


def test_gauc_matches_weighted_roc_auc(fresh, sklearn_metrics):
    rows = 2000
    label, score, weight = fresh.integers(0, 2, rows), fresh.integers(0, 50, rows) / 50, fresh.random(rows)
    weight = weight.astype("float32")
    for groups in (1, 60):
        group = fresh.integers(0, groups, rows)
        gauc = het_tf.metrics.GAUC(dtype="float64")
        gauc.update_state(label, score, weight, groups=group)
        of_groups, weights = [], []
        for one in range(groups):
            mine = group == one
            of_groups.append(
                sklearn_metrics.roc_auc_score(label[mine], score[mine], sample_weight=weight[mine])
            )
            weights.append(weight[mine].sum(dtype=np.float64))
        assert float(gauc.result()) == pytest.approx(np.average(of_groups, weights=weights), abs=1e-12)


def test_normalized_entropy_is_a_ratio_of_log_losses(fresh, sklearn_metrics):
    p, weight = fresh.uniform(0.01, 0.99, 500), fresh.random(500)
    label = fresh.random(500) < p
    base = np.full(500, np.average(label, weights=weight))
    metric = het_tf.metrics.NormalizedEntropy(dtype="float64")
    metric.update_state(label, p, weight)
    losses = [sklearn_metrics.log_loss(label, one, sample_weight=weight) for one in (p, base)]
    assert float(metric.result()) == pytest.approx(losses[0] / losses[1], abs=1e-12)


@pytest.mark.parametrize("k", [1, 5, 39])
def test_ndcg_and_recall_with_ties(k, fresh, sklearn_metrics):
    relevance = fresh.integers(0, 4, (100, 40))
    scores = fresh.integers(0, 9, (100, 40)) / 9
    linear = het_tf.metrics.NDCG(k, gain="linear", dtype="float64")
    exponential = het_tf.metrics.NDCG(k, dtype="float64")
    for metric, gains in ((linear, relevance), (exponential, 2**relevance - 1)):
        metric.update_state(relevance, scores)
        assert float(metric.result()) == pytest.approx(
            sklearn_metrics.ndcg_score(gains, scores, k=k), abs=1e-12
        )
    # scikit-learn breaks ties of top_k_accuracy_score by the order of items: no ties here.
    scores, number = fresh.random((100, 40)), fresh.integers(0, 40, 100)
    recall, mrr = (
        het_tf.metrics.RecallAtK(k, sparse=True),
        het_tf.metrics.MeanReciprocalRank(sparse=True, dtype="float64"),
    )
    for metric in (recall, mrr):
        metric.update_state(number, scores)
    expected = sklearn_metrics.top_k_accuracy_score(number, scores, k=k, labels=range(40))
    assert float(recall.result()) == pytest.approx(expected, abs=1e-6)
    precision = sklearn_metrics.label_ranking_average_precision_score(np.eye(40)[number], scores)
    assert float(mrr.result()) == pytest.approx(precision, abs=1e-12), "the same where one item is relevant"
