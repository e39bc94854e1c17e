"""Rows that travel in half or a quarter of their size (`wire=`): what is the same, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import het_tf

keras = tf.keras
pytestmark = [pytest.mark.usefixtures("fresh")]

WIRES = ("float32", "float16", "int8")


def train_clicks(wire: str) -> tuple[float, dict[str, Any]]:
    """AUC on fresh samples after 400 steps on clicks of six ids each, and the counters of the cache."""
    rng = np.random.default_rng(3)
    weights = rng.normal(0, 0.6, 3000)

    def batch(rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        ids = np.minimum(rng.zipf(1.3, (rows, 6)), 3000) - 1
        clicks = rng.random(rows) < 1 / (1 + np.exp(-weights[ids].sum(1)))
        return ids, clicks.astype(np.float32)

    with het_tf.namespace(wire):
        layer = het_tf.keras.Embedding(
            8,
            name="t",
            combiner="sum",
            optimizer="adagrad",
            cache=het_tf.Cache(staleness=3, rows=150, wire=wire),
        )

        def logits(ids: Any) -> Any:
            return tf.reduce_sum(layer(ids), axis=1)

        @tf.function
        def step(ids: Any, clicks: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(clicks, logits(ids)))
            het_tf.apply(
                zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True)
            )

        for _ in range(400):
            step(*batch(128))
        het_tf.flush()
        counters = het_tf.Table("t").stats()["cache"]
        ids, clicks = batch(20000)
        scores = logits(ids).numpy()
    rank = np.empty(len(scores))
    rank[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    positive = clicks.sum()
    area = rank[clicks == 1].sum() - positive * (positive + 1) / 2
    return float(area / (positive * (len(scores) - positive))), counters


@pytest.mark.slow
def test_training_is_as_good_with_fewer_bytes():
    auc, counters = zip(*(train_clicks(wire) for wire in WIRES), strict=True)
    print("AUC", dict(zip(WIRES, auc, strict=True)))
    assert auc[0] > 0.75  # it has learnt something
    assert abs(auc[1] - auc[0]) < 1e-3
    assert abs(auc[2] - auc[0]) < 5e-3
    # dim 8 and a slot of 8: a row of 64 bytes has 34 with float16, and with int8 26.
    for direction in ("row_bytes_in", "row_bytes_out"):
        full, half, quarter = (c[direction] for c in counters)
        assert half / full == pytest.approx(34 / 64, rel=0.02)
        assert 26 / 64 * 0.98 < quarter / full < half / full
    assert counters[0]["dropped_remainders"] == 0
    assert counters[1]["dropped_remainders"] > 0


def test_the_layer_keeps_it():
    layer = het_tf.keras.Embedding(4, name="t", cache=het_tf.Cache(rows=5, wire="float16"))
    config = layer.get_config()
    assert config["cache"]["wire"] == "float16"
    with het_tf.namespace("again"):
        again = het_tf.keras.Embedding.from_config(config)
        assert again.get_config() == config
        again(np.arange(3))
        assert het_tf.Table("t").stats()["cache"]["wire"] == "float16"


def test_tables_of_one_name_agree():
    het_tf.keras.Embedding(4, name="a", table="t", cache=het_tf.Cache(rows=5, wire="int8"))
    het_tf.keras.Embedding(4, name="b", table="t", cache=het_tf.Cache(rows=5, wire="int8"))
    with pytest.raises(ValueError, match=r'cache.wire is "int8", and "float32" is wanted'):
        het_tf.keras.Embedding(4, name="c", table="t", cache=het_tf.Cache(rows=5))


@pytest.mark.parametrize("bad", ["bfloat16", "fp16", 16])
def test_what_is_no_format_is_refused(bad: Any):
    with pytest.raises(ValueError, match=r"cache.wire is '.*'; it must be 'float32'"):
        het_tf.keras.Embedding(4, name="t", cache=het_tf.Cache(rows=5, wire=bad))
    assert het_tf.tables() == []
