"""A process that only loads models with layers of het_tf, or exports, imports the modules that have them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from saving_lib import make_model, train

import het_tf

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]

_LOAD = """
import os, sys, numpy as np, tensorflow as tf
os.chdir(sys.argv[1])
import het_tf.serving
answer = tf.saved_model.load("native").signatures["serving_default"]
ids = np.load("ids.npy")
(served,) = answer(tf.constant(ids)).values()
from tensorflow import keras
import het_tf.keras
model = keras.models.load_model("m.keras")
answers = [served, model(ids)]
layer = next(one for one in model.layers if type(one).__name__ == "Embedding")
keras.layers.deserialize(keras.layers.serialize(layer))
keras.models.clone_model(model)
assert type(layer) is het_tf.keras.Embedding
for restore in (
    lambda: model.load_weights("m.weights.h5"),
    lambda: tf.train.Checkpoint(model=model).read("point").expect_partial(),
):
    het_tf.Table("t").clear()
    restore()
    answers.append(model(ids))
np.save(sys.argv[2], answers)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    model = make_model(reuse=True)
    model.compile("adam", "mse")
    train(model)
    model.save(place / "m.keras")
    model.save_weights(place / "m.weights.h5")
    tf.train.Checkpoint(model=model).write(str(place / "point"))
    het_tf.export(model, place / "native", het_tf.serving.Native(), verbose=False)
    np.save(place / "ids.npy", np.arange(12).reshape(4, 3))
    return place, model(np.load(place / "ids.npy")).numpy()


def test_a_new_process_loads_a_model(saved, tmp_path):
    """Would catch: a module that does not register its classes, or ops."""
    place, wanted = saved
    subprocess.run([sys.executable, "-c", _LOAD, place, tmp_path / "p.npy"], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), [wanted] * 4, rtol=1e-6)
