"""The online export: a SavedModel that reads the live tables of a parameter server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis_lib
import tensorflow as tf

import het_tf
from het_tf.python.export import online

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(redis_lib.missing()), reason=redis_lib.missing()),
    pytest.mark.usefixtures("fresh"),
]

keras = tf.keras
IDS = np.arange(-8, 8)


def connected(server: Any, **options: Any) -> Any:
    het_tf.init(ps=server.address, **options)
    return server


def make_model(name: str = "item", dim: int = 3) -> Any:
    """Rows of one feature of one id, and the mean of a padded one."""
    table = het_tf.TableConfig(name, dim, het_tf.optimizers.SGD(1.0))
    features = {
        "id": het_tf.FeatureConfig(table),
        "past": het_tf.FeatureConfig(table, combiner="mean", padding_id=-1),
    }
    inputs = {
        "id": keras.Input((), dtype="int64", name="id"),
        "past": keras.Input((3,), dtype="int64", name="past"),
    }
    rows = het_tf.keras.EmbeddingCollection(features, staleness=0)(inputs)
    return keras.Model(inputs, {"id": rows["id"] * 1.0, "past": rows["past"] * 1.0})


def step(model: Any, ids: Any = IDS) -> None:
    """One tick of each row, by a whole number, sent at once."""
    ids = tf.constant(ids, tf.int64)
    with tf.GradientTape() as tape:
        out = model({"id": ids, "past": tf.fill([len(ids), 3], tf.constant(-1, tf.int64))}, training=True)
        loss = tf.reduce_sum(out["id"])
    tape.gradient(loss, model.trainable_variables)


def batch() -> dict[str, Any]:
    past = np.stack([IDS, IDS[::-1], np.full(len(IDS), -1)], 1)
    return {"id": tf.constant(IDS, tf.int64), "past": tf.constant(past, tf.int64)}


def answer(loaded: Any) -> dict[str, np.ndarray]:
    out = loaded.signatures["serving_default"](**batch())
    return {name: value.numpy() for name, value in out.items()}


def wanted(model: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model(batch(), training=False).items()}


def assert_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def stats(namespace: str = "") -> dict[str, Any]:
    (found,) = [one for one in online.stats() if one["namespace"] == namespace]
    return found


def test_predictions_follow_training(server: Any, tmp_path: Path) -> None:
    connected(server)
    model = make_model()
    het_tf.export(model, tmp_path / "m", format="online", pull_bound=0, verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    for _ in range(3):
        assert_equal(answer(loaded), wanted(model))  # rows that nobody has trained, too
        step(model)
    assert_equal(answer(loaded), wanted(model))
    assert stats()["refreshed"] > 0
    before = stats()
    assert_equal(answer(loaded), wanted(model))
    after = stats()
    assert after["refreshed"] == before["refreshed"] and after["fetched"] == before["fetched"]
    assert after["confirmed"] == before["confirmed"] + len(IDS)


def test_a_pull_bound_lets_rows_be_so_many_ticks_behind(server: Any, tmp_path: Path) -> None:
    connected(server)
    model = make_model()
    het_tf.export(model, tmp_path / "m", format="online", pull_bound=2, verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    first = answer(loaded)
    step(model), step(model)
    assert_equal(answer(loaded), first)
    step(model)
    assert_equal(answer(loaded), wanted(model))


def test_rows_are_served_without_asking_as_long_as_max_age_allows(server: Any, tmp_path: Path) -> None:
    connected(server)
    model = make_model()
    het_tf.export(model, tmp_path / "m", format="online", max_age=1e6, verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    first = answer(loaded)
    step(model)
    assert_equal(answer(loaded), first)
    assert stats()["fresh"] > 0 and stats()["confirmed"] == 0

    het_tf.export(model, tmp_path / "now", format="online", max_age=1e-9, verbose=False)
    now = tf.saved_model.load(str(tmp_path / "now"))
    assert_equal(answer(now), wanted(model))
    step(model)
    assert_equal(answer(now), wanted(model))
