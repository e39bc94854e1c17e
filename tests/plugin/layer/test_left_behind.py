"""A model leaks no more into its process than one with Keras' own layers.

Keras sums dense gradients over replicas by a tf.custom_gradient, and TensorFlow keeps the graph of each. It
has another way for the sparse gradients of keras.layers.Embedding, whose models are not compared.
"""

import gc

import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf.python.session import native

keras = tf.keras
pytestmark = pytest.mark.usefixtures("fresh")

IDS = np.random.default_rng(0).integers(0, 100, (16, 3))
LABELS = np.ones((16, 1), np.float32)

LAYERS = {
    "keras": lambda: keras.layers.Dense(8),
    "unnamed": lambda: het_tf.keras.Embedding(8),
    "cached": lambda: het_tf.keras.Embedding(8, cache=het_tf.Cache(rows=10, staleness=0)),
}


def graphs():
    """FuncGraphs of this process that cannot be collected."""
    from tensorflow.python.framework.func_graph import FuncGraph

    for _ in range(3):  # what a finalizer lets go is for the next time
        gc.collect()
    return sum(isinstance(each, FuncGraph) for each in gc.get_objects())


def train(make):
    ids = keras.Input((3,), dtype="int64")
    layer = make()
    model = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Flatten()(layer(ids))))
    model.compile("sgd", "mse")
    model.fit(IDS, LABELS, verbose=0)
    return getattr(layer, "_het_state", None)


def left_by(make, models=2):
    """FuncGraphs and bytes of het_tf that a model leaves, once the first ones have been made."""
    for _ in range(4):  # until buffers for reuse are there
        train(make)
    before = graphs(), native.call_int("HetAllocatedBytes")
    for _ in range(models):
        train(make)
    return (graphs() - before[0]) / models, (native.call_int("HetAllocatedBytes") - before[1]) / models


@pytest.mark.long
@pytest.mark.parametrize("kind", ["unnamed", "cached"])
def test_trained_model_leaks_no_more_than_keras(kind):
    of_keras, _ = left_by(LAYERS["keras"])
    left, allocated = left_by(LAYERS[kind])
    assert left <= 1.2 * of_keras
    assert allocated < 1000
    assert het_tf.tables() == []


@pytest.mark.slow
def test_successive_models_share_ops(eagerly):
    """TensorFlow keeps what it knows of an op for ever: the attributes tell ops apart."""
    specs = set()
    for _ in range(3):
        keras.backend.clear_session()
        specs.add(train(LAYERS["unnamed"]).call.specs)
        gc.collect()
    assert len(specs) == 1
