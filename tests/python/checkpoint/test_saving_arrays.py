"""get_weights and set_weights: arrays that stand for the rows of a table, in one process and in several."""

import copy
import gc
import os
import pickle

import numpy as np
import pytest
import tensorflow as tf
from played_lib import Played
from saving_lib import (
    assert_equal,
    everything,
    keras,
    make_model,
    predictions,
    train,
)

import het_tf
from het_tf.python.checkpoint.keras import arrays
from het_tf.python.session import settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tf215,
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("error::het_tf.TablesNotSavedWarning"),
]


def test_arrays_keep_the_rows_as_long_as_they_live():
    model = make_model()
    train(model)
    weights = model.get_weights()
    (anchor,) = [one for one in weights if one.shape == ()]
    directory = anchor.taken.directory
    saved = everything()
    copied = copy.deepcopy(weights[:2]) + [one.copy() for one in weights[2:]]
    plain = [np.array(one) for one in weights]
    train(model)
    del weights, anchor
    gc.collect()
    assert directory.exists()
    model.set_weights(plain)  # by the number alone: somebody still holds the rows
    assert_equal(everything(), saved)
    assert float(tf.convert_to_tensor(model.layers[1].weights[0])) == 0.0
    train(model)
    model.set_weights(copied)
    assert_equal(everything(), saved)
    del copied
    gc.collect()
    assert not directory.exists()
    with pytest.raises(ValueError, match="stands for no rows that this process has kept"):
        model.set_weights(plain)
    assert_equal(everything(), saved)


def test_a_forked_process_leaves_the_rows_of_its_parent():
    model = make_model()
    train(model)
    saved, weights = everything(), model.get_weights()
    child = os.fork()
    if child == 0:
        weights.clear()
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    train(model)
    model.set_weights(weights)
    assert_equal(everything(), saved)


def test_numbers_that_stand_for_nothing():
    model = make_model()
    train(model)
    weights = model.get_weights()
    place = next(number for number, one in enumerate(weights) if one.shape == ())
    sent = pickle.loads(pickle.dumps(weights))
    assert type(sent[place]) is np.ndarray
    before = everything()
    for value in (1.0, 0.5, np.nan, float(weights[place]) + 1):
        weights[place] = np.float32(value)
        with pytest.raises(ValueError, match="stands for no rows"):
            model.set_weights(weights)
    weights[place] = np.float32(0)
    with pytest.warns(het_tf.TablesNotSavedWarning, match="set from arrays without the rows of table 't'"):
        model.set_weights(weights)
    assert_equal(everything(), before)


def test_arrays_of_another_model():
    model = make_model()
    train(model)
    other = make_model(name="other", layer="elsewhere")
    other.set_weights(model.get_weights())
    np.testing.assert_array_equal(predictions(other), predictions(model))
    assert_equal(everything("other"), everything())


def test_a_clone_in_a_namespace_takes_the_rows():
    model = make_model()
    train(model)
    with het_tf.namespace("copy"):
        clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    want = predictions(model)
    train(model)
    np.testing.assert_array_equal(predictions(clone), want)
    het_tf.reset("copy")


def test_several_workers_take_no_rows_as_arrays(monkeypatch):
    model = make_model()
    train(model)
    monkeypatch.setattr(settings.current, "hvd", Played(me=1))
    with pytest.warns(het_tf.TablesNotSavedWarning, match=r"all rows of all; save with het_tf\.callbacks"):
        weights = model.get_weights()
    assert not any(isinstance(one, arrays.Weight) for one in weights)
    before = everything()
    with pytest.warns(het_tf.TablesNotSavedWarning, match="set from arrays"):
        model.set_weights(weights)
    assert_equal(everything(), before)


def test_of_several_workers_rank_0_restores(monkeypatch, tmp_path):
    two = Played()
    model = make_model()
    train(model)
    path = str(tmp_path / "x.weights.h5")
    saved = everything()
    monkeypatch.setattr(settings.current, "hvd", two)
    with pytest.warns(het_tf.TablesNotSavedWarning, match="behind what other workers hold back"):
        model.save_weights(path)
    model.layers[1].embeddings = None
    het_tf.table("t").clear()
    two.me = 1
    with pytest.warns(het_tf.TablesNotSavedWarning, match="Rank 0 restores"):
        model.load_weights(path)
    assert het_tf.table("t").size == 0
    two.me = 0
    model.load_weights(path)
    assert_equal(everything(), saved)
