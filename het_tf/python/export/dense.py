"""The dense weights of a model that follows training, as a version of it has them (publishing/weights.py)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from het_tf.python.publishing import blob as blobs
from het_tf.python.publishing import weights as publishing
from het_tf.python.session.native import tf


@dataclass(frozen=True)
class Weight:
    """One dense weight of a model.

    Attributes:
      name: Its path; the second of two equal paths gets "#2".
      shape: Its static shape.
      dtype: The name of its dtype, such as "float32".
      variable: The variable.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    variable: Any


def weights_of(model: Any) -> list[Weight]:
    """Returns the dense weights of a built Keras 3 model, in the order of `model.weights`.

    Raises:
      TypeError: A weight has a dtype that a version cannot have.
    """
    return [
        Weight(name, tuple(map(int, one.shape)), str(tf.as_dtype(one.dtype).name), one)
        for name, one in publishing.variables_of(model)
    ]


def described(weights: Sequence[Weight]) -> str:
    """Returns names, shapes and dtypes: JSON [[name, shape, dtype], ...]."""
    return json.dumps([[one.name, list(one.shape), one.dtype] for one in weights])


def signature(weights: Sequence[Weight]) -> str:
    """Returns a digest that is equal for models that can take each other's weights."""
    return blobs.signature((one.name, one.shape, one.dtype) for one in weights)


def blob(weights: Sequence[Weight]) -> bytes:
    """Returns the present values as a blob."""
    return blobs.pack([(one.name, np.array(tf.convert_to_tensor(one.variable))) for one in weights])
