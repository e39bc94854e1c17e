"""NormalizedEntropy and Calibration, by their formulas."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from backends_lib import invalid, on_jax

import het_tf

NormalizedEntropy, Calibration = het_tf.metrics.NormalizedEntropy, het_tf.metrics.Calibration


def samples(rows=200):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, rows)
    return (rng.random(rows) < 0.3 + p / 2).astype(np.float64), p, rng.random(rows)


def entropy(y, p, w):
    def mean(x):
        return np.average(x, weights=w)

    base = mean(y)
    return -mean(y * np.log(p) + (1 - y) * np.log(1 - p)) / -(
        base * np.log(base) + (1 - base) * np.log(1 - base)
    )


@pytest.mark.parametrize("from_logits", [False, True])
def test_both_are_their_formulas_over_all_batches(from_logits):
    y, p, w = samples()
    given = np.log(p / (1 - p)) if from_logits else p
    cases = [
        (NormalizedEntropy, entropy(y, p, w), entropy(y, p, np.ones(200))),
        (Calibration, (w * p).sum() / (w * y).sum(), p.sum() / y.sum()),
    ]
    for kind, weighted, plain in cases:
        metric = kind(from_logits=from_logits, dtype="float64")
        for part in (slice(0, 7), slice(7, 120), slice(120, 200)):
            metric.update_state(y[part, None], given[part, None], w[part])
        assert float(metric.result()) == pytest.approx(weighted, abs=1e-12)
        metric.reset_state()
        assert np.isnan(float(metric.result()))
        metric.update_state(y.reshape(50, 4), given.reshape(50, 4))
        assert float(metric.result()) == pytest.approx(plain, abs=1e-12)
        again = kind.from_config(metric.get_config())
        assert again.from_logits == from_logits and again.name == metric.name


def test_entropy_of_base_rate_and_equal_labels():
    y, _, _ = samples()
    metric = NormalizedEntropy()
    metric.update_state(y, np.full(200, y.mean()))
    assert float(metric.result()) == pytest.approx(1, abs=1e-6)
    metric = NormalizedEntropy()
    metric.update_state(np.ones(5), np.full(5, 0.5))
    assert np.isnan(float(metric.result()))
    metric = NormalizedEntropy()  # certain and wrong: large, not infinite
    metric.update_state([1.0, 0.0], np.array([0.0, 1.0], "float16"))
    assert float(metric.result()) == pytest.approx(-np.log(1e-7) / np.log(2), rel=1e-6)


def test_sums_lose_nothing_where_float32_would():
    metric = Calibration()
    metric.update_state([2.0**25], [2.0**25])
    for _ in range(8):
        metric.update_state([0.0], [1.0])
    assert float(metric._predicted.numpy()) == 2**25 + 8


@on_jax
def test_a_jax_without_wide_numbers_is_refused(monkeypatch):
    import jax

    monkeypatch.delattr(jax, "enable_x64")
    with pytest.raises(
        ImportError, match=r"need JAX 0\.8, and this is .*; run: pip install -U 'jax>=0\.8', or"
    ):
        Calibration()


def test_in_compile_with_mixed_precision():
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    y, p, _ = samples()
    inputs = keras.Input((1,))
    outputs = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)(inputs)
    model = keras.Model(inputs, outputs)
    metrics = [NormalizedEntropy(from_logits=True), Calibration(from_logits=True)]
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=metrics, weighted_metrics=[], jit_compile=False)
    logits = np.log(p / (1 - p)).astype("float16").astype("float32")[:, None]
    logs = model.evaluate(logits, y[:, None], verbose=0, return_dict=True)
    seen = 1 / (1 + np.exp(-logits[:, 0].astype(np.float64)))
    assert logs["normalized_entropy"] == pytest.approx(entropy(y, seen, np.ones(200)), rel=1e-6)
    assert logs["calibration"] == pytest.approx(seen.sum() / y.sum(), rel=1e-6)
    assert keras.backend.standardize_dtype(metrics[0].result().dtype) == "float32"


def test_bad_input_is_refused():
    with pytest.raises(invalid(), match=r"y_true has a value outside of \[0, 1\]"):
        NormalizedEntropy().update_state([2.0], [0.5])
    for metric in (NormalizedEntropy(), Calibration()):
        with pytest.raises(ValueError, match="y_true has 2 values, but y_pred 3"):
            metric.update_state([0.0, 1.0], [0.5, 0.5, 0.5])
        with pytest.raises(invalid(), match="sample_weight has a negative value"):
            metric.update_state([0.0], [0.5], [-1.0])
