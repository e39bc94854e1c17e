"""A process that imports het_tf and uses no name of it loads models with its layers, or exports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from saving_lib import keras, make_model, train

import het_tf
from het_tf.python import registering

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]

_IMPORTS = ["import het_tf, keras"]
_IMPORTS += [
    pytest.param(others, marks=pytest.mark.long)
    for others in (
        "import keras, het_tf",
        "import het_tf; from tensorflow import keras",
        "import tensorflow as tf; import het_tf; keras = tf.keras",
    )
]
_LOAD = """
import os, sys, numpy as np, tensorflow as tf
os.chdir(sys.argv[1])
assert not {"het_tf.keras", "het_tf.python.session.native"} & set(sys.modules)
try:
    tf.saved_model.load("nothing")
except OSError:
    assert "het_tf.python.session.native" not in sys.modules
answer = tf.saved_model.load("native").signatures["serving_default"]
ids = np.load("ids.npy")
(served,) = answer(tf.constant(ids)).values()
assert "het_tf.keras" not in sys.modules
model = keras.models.load_model("m.keras")
answers = [served, model(ids)]
layer = next(one for one in model.layers if type(one).__name__ == "Embedding")
keras.layers.deserialize(keras.layers.serialize(layer))
keras.models.clone_model(model)
import het_tf.keras
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


@pytest.mark.parametrize("imports", _IMPORTS)
def test_a_new_process_loads_a_model(saved, tmp_path, imports):
    """Defect: it must use a name of het_tf first, or classes and ops are not registered."""
    place, wanted = saved
    subprocess.run([sys.executable, "-c", imports + _LOAD, place, tmp_path / "p.npy"], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), [wanted] * 4, rtol=1e-6)


def test_every_class_is_listed():
    for module in registering.NAMES:
        importlib.import_module(f"het_tf.{module}")
    registry = keras.utils.get_custom_objects()
    there = {name for name in registry if name.startswith("het_tf>")}
    listed = {f"het_tf>{name}" for names in registering.NAMES.values() for name in names.split()}
    assert listed - there == set()
    assert there - listed == set()
    assert not any(isinstance(registry[name], registering._StandIn) for name in listed)


def test_keras_2_is_told_that_it_cannot_load():
    """Defect: the stand-in in the registry of tf_keras, which nothing replaces, asks itself for ever."""
    objects = {}
    saving = SimpleNamespace(get_custom_objects=lambda: objects)
    registering._register(SimpleNamespace(saving=saving))
    with pytest.raises(ImportError, match=r"het_tf are of Keras 3, and tf_keras is Keras 2; load by keras"):
        objects["het_tf>Embedding"].from_config({})
