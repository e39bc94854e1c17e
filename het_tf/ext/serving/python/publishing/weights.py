"""The dense weights of a Keras model as named arrays, which `blob.pack` takes, and back.

A weight's name is the path of its variable. The tables are not in it, nor are the state of the optimizer
and metrics.
"""

import math
from typing import Any

import numpy as np

from het_tf.ext.checkpoint.python.model.dense import unique
from het_tf.ext.serving.python.publishing.blob import DTYPES, Array, Blob
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state


def variables_of(model: Any) -> list[tuple[str, Any]]:
    """Returns name and variable of each dense weight, in the order of `model.weights`.

    Leaves out the anchors of het_tf's layers, which are always 0. If variables share a path, the second one's
    name ends in "#2".

    Raises:
      TypeError: `model` is not a Keras model, or has a weight of a type that a blob cannot hold.
      ValueError: It has no weights yet.
    """
    if not isinstance(model, tf.keras.Model):
        raise TypeError(f"model is {type(model).__name__}; give a built keras.Model")
    if not model.built:
        raise ValueError(
            f"model {model.name!r} has no weights yet; call it on a batch first, or give it a keras.Input"
        )
    anchors = {id(one) for one in layer_state.variables_of(model)}
    seen = set[str]()
    found = []
    for variable in model.weights:
        if id(variable) in anchors:
            continue
        name = unique(variable.path, seen)
        dtype = tf.as_dtype(variable.dtype).name
        if dtype not in DTYPES:
            raise TypeError(
                f"weight {name!r} of model {model.name!r} is {dtype}, which cannot be published; a weight is "
                f"one of {', '.join(DTYPES)}"
            )
        found.append((name, variable))
    return found


def specs(named: list[tuple[str, Any]]) -> list[tuple[str, tuple[int, ...], str]]:
    """Returns name, static shape and name of the dtype of each of `variables_of`."""
    return [
        (name, tuple(map(int, variable.shape)), tf.as_dtype(variable.dtype).name) for name, variable in named
    ]


def size(model: Any) -> int:
    """Returns the bytes of all dense weights, without gaps and header."""
    return sum(
        math.prod(variable.shape) * int(tf.as_dtype(variable.dtype).size)
        for _, variable in variables_of(model)
    )


def read(model: Any) -> list[tuple[str, Array]]:
    """Returns name and value of each dense weight, as `variables_of`; the arrays are copies."""
    return [(name, np.array(tf.convert_to_tensor(variable))) for name, variable in variables_of(model)]


def assign(model: Any, blob: Blob) -> None:
    """Assigns the weights of a blob to a model.

    Raises:
      ValueError: Names, shapes or dtypes are not those of the model, in its order; nothing has changed.
      TypeError: As `variables_of`.
    """
    here = variables_of(model)
    ours = specs(here)
    theirs = [(one.name, one.shape, one.dtype) for one in blob.tensors.values()]
    if ours != theirs:
        lines = [f"\n  only in the blob: {one}" for one in theirs if one not in ours]
        lines += [f"\n  only in the model: {one}" for one in ours if one not in theirs]
        raise ValueError(
            f"the weights are not those of model {model.name!r}; build the model that was published"
            + ("".join(lines[:20]) or ": their order differs")
        )
    for name, variable in here:
        variable.assign(blob.array(name))
