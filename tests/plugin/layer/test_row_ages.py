"""Steps that depend on a row's age: what makes a row young, and what keeps its age."""

import numpy as np
import pytest
import tensorflow as tf
from rules_lib import learn

import het_tf

pytestmark = [pytest.mark.usefixtures("fresh")]

RATE, DECAY = 0.5, 4
MODES = [{}, {"cache": het_tf.Cache(rows=4, staleness=0)}]


def embedding(name="t", decay_steps=DECAY, **more):
    optimizer = het_tf.optimizers.RowWiseAdagrad(RATE, decay_steps=decay_steps)
    return het_tf.keras.Embedding(2, name=name, optimizer=optimizer, **more)


def train(layer, ids, times=1):
    for _ in range(times):
        learn(layer, lambda: tf.reduce_sum(layer(tf.constant(ids, tf.int64))))


def moved(layer, name, key):
    """How far one more update moves a row, whose gradients have all been 1."""
    before = het_tf.Table(name).lookup([key])
    train(layer, [key])
    return float((before - het_tf.Table(name).lookup([key])).mean())


def step(age):
    return RATE / np.sqrt(1 + age / DECAY)


@pytest.mark.parametrize("mode", MODES)
def test_an_assigned_row_begins_anew(mode):
    """An age without its accumulator would make the next step RATE * sqrt(DECAY)."""
    layer = embedding(**mode)
    train(layer, [7], 30)
    het_tf.Table("t").assign([7, 8], [[1, 2], [3, 4]])
    for age in range(3):
        for key in (7, 8):
            assert moved(layer, "t", key) == pytest.approx(step(age), rel=1e-4)


def test_rows_with_slots_and_clocks_go_on():
    layer, copy = embedding(), embedding("copy")
    train(layer, [7], 30)
    train(layer, [8])
    rows = het_tf.Table("t").scan()
    table = het_tf.Table("copy")
    table.assign(rows["ids"], rows["rows"], with_slots=True, clocks=rows["clocks"])
    for key in (7, 8):
        assert moved(copy, "copy", key) == moved(layer, "t", key)
    np.testing.assert_array_equal(table.scan()["rows"], het_tf.Table("t").scan()["rows"])


def test_slots_without_clocks_are_refused():
    layer, table = embedding(), het_tf.Table("t")
    train(layer, [7], 3)
    scanned = table.scan()
    with pytest.raises(ValueError, match=r"table 't': .* with slots and without clocks.*Give clocks"):
        table.assign(scanned["ids"], scanned["rows"] + 1, with_slots=True)
    np.testing.assert_array_equal(table.scan()["rows"], scanned["rows"])
    train(embedding("published", decay_steps=1), [7], 3)  # AdaGrad's steps need the accumulator alone
    scanned = het_tf.Table("published").scan()
    het_tf.Table("published").assign(scanned["ids"], scanned["rows"], with_slots=True)


BAD_CLOCKS = [
    ([-1], True, r"must be integers >= 0 of shape \(1,\)"),
    ([1, 2], True, r"clocks are int64 of shape \(2,\)"),
    ([1.0], True, "clocks are float64"),
    ([1], False, "clocks belong to slots"),
]


@pytest.mark.parametrize(("clocks", "with_slots", "words"), BAD_CLOCKS)
def test_bad_clocks_are_refused(clocks, with_slots, words):
    embedding()
    table = het_tf.Table("t")
    with pytest.raises(ValueError, match=words):
        table.assign([7], np.zeros((1, table.row_floats if with_slots else 2)), with_slots, clocks)
    assert table.size == 0
