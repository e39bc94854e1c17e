"""What tests of the layer on every backend of Keras share: on the one that KERAS_BACKEND names."""

import keras
import numpy as np
import pytest

import het_tf

BACKEND = keras.backend.backend()
IDS, DIM = 12, 3
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="of JAX")
elsewhere = pytest.mark.skipif(BACKEND == "tensorflow", reason="other tests tell it of TensorFlow")


def invalid():
    """What is raised for values that no shape or type shows to be wrong."""
    if BACKEND != "tensorflow":
        return ValueError
    import tensorflow as tf

    return tf.errors.InvalidArgumentError


def rows(table="t", ids=IDS):
    """The rows 0 to ids of a table."""
    return het_tf.Table(table).lookup(np.arange(ids))


def array(x):
    return np.array(keras.ops.convert_to_numpy(x))


def gradients(loss, variables):
    """Returns loss() and its gradients, as the backend's users take them."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, [one.value for one in variables])
    if BACKEND == "torch":
        for one in variables:
            one.value.grad = None
        value = loss()
        value.backward()
        return value.detach(), [one.value.grad for one in variables]
    import jax

    def stateless(values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return loss()

    return jax.value_and_grad(stateless)([one.value for one in variables])


def apply(optimizer, found, variables):
    """Applies gradients; on PyTorch as Keras does, outside of autograd."""
    if BACKEND == "torch":
        import torch

        with torch.no_grad():
            optimizer.apply(found, variables)
    else:
        optimizer.apply(found, variables)


class Reference(keras.layers.Embedding):
    """keras.layers.Embedding with a dense gradient, and given rows."""

    def __init__(self, start, **kwargs):
        super().__init__(*start.shape, **kwargs)
        self.build((None,))
        self.set_weights([start])

    def call(self, inputs):
        return keras.ops.matmul(keras.ops.one_hot(inputs, IDS), self.embeddings)


def reset():
    """No tables, no state of Keras, seeds set."""
    from het_tf.python.table import registry

    for namespace in {"", *registry.namespaces()}:
        het_tf.reset(namespace)
    het_tf.init()
    keras.mixed_precision.set_dtype_policy("float32")
    # Keras would collect all garbage each time, which takes longer than most tests.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
