"""Conditions, metrics and samples of het-publish guard."""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from het_tf.python.releasing import condition, sample
from het_tf.python.releasing.condition import Condition


@pytest.mark.parametrize("digits", [1, 6])
def test_metrics_are_those_of_sklearn(digits):
    """Would catch ties that count for one side: with one digit most predictions have equals."""
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed here")
    random = np.random.default_rng(1)
    predictions = np.round(random.random(1000), digits)
    labels = (random.random(1000) < predictions).astype(float)
    assert condition.auc(labels, predictions) == pytest.approx(metrics.roc_auc_score(labels, predictions))
    clipped = np.clip(predictions, 1e-7, 1 - 1e-7)
    assert condition.logloss(labels, predictions) == pytest.approx(metrics.log_loss(labels, clipped))
    assert condition.mse(labels, predictions) == pytest.approx(
        metrics.mean_squared_error(labels, predictions)
    )


def test_conditions():
    one = Condition.parse(" auc<0.79 ")
    assert one == Condition("auc", "<", 0.79) and str(one) == "auc < 0.79"
    assert one.holds(0.78) and not one.holds(0.79)
    assert Condition.parse("auc <= 0.79").holds(0.79)
    assert Condition.parse("logloss >= 1e-1").holds(0.1) and not Condition.parse("logloss > 0.1").holds(0.1)
    assert one.holds(float("nan")), "a candidate whose predictions are not finite is held"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("auc", "'auc' is no condition; give METRIC OP NUMBER"),
        ("auc = 0.79", "is no condition"),
        ("auc < 0.7 9", "is no condition"),
        ("f1 < 0.79", "has the metric 'f1'; give one of auc, logloss, mse"),
        ("auc < high", "ends with 'high', which is no finite number"),
        ("auc < nan", "which is no finite number"),
    ],
)
def test_bad_conditions(text, why):
    with pytest.raises(ValueError, match=why):
        Condition.parse(text)


def test_samples(tmp_path):
    ids, labels = np.arange(6), np.array([0, 1, 0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", id=ids, label=labels)
    table = pyarrow.table({"id": ids, "label": labels, "pair": [[1, 2]] * 6, "ragged": [[1], [1, 2]] * 3})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    for name in ("a.npz", "a.parquet"):
        found = sample.read(tmp_path / name, "label", ["auc"])
        np.testing.assert_array_equal(found.labels, labels)
        np.testing.assert_array_equal(found.columns["id"], ids)
    assert found.columns["pair"].shape == (6, 2) and "ragged" not in found.columns


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"id": [1]}, "has no labels 'label', only id; name them by --label"),
        ({"id": [1, 2], "label": [0, 2]}, "are not 0 and 1, which auc and logloss need"),
        ({"id": [1, 2], "label": [1, 1]}, "are 1; auc needs both"),
        ({"id": [1, 2], "label": [0, np.nan]}, "a label that is not finite"),
        ({"id": [], "label": []}, "has no examples"),
        ({"id": [1, 2, 3], "label": [0, 1]}, "'id' of .* does not have 2 entries"),
        ({"id": [1, 2], "label": [[0, 1], [0, 1]]}, "not one number for each example"),
    ],
)
def test_samples_that_do_not_suit(tmp_path, arrays, why):
    np.savez(tmp_path / "a.npz", **{name: np.array(array) for name, array in arrays.items()})
    with pytest.raises(ValueError, match=why):
        sample.read(tmp_path / "a.npz", "label", ["auc"])


def test_files_that_are_no_samples(tmp_path):
    for name, why in (
        ("a.csv", "give a .npz or .parquet"),
        ("a.npz", "no .npz file"),
        ("a.parquet", "no Parq"),
    ):
        (tmp_path / name).write_text("id,label")
        with pytest.raises(ValueError, match=why):
            sample.read(tmp_path / name, "label", [])
