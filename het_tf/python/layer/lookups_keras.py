"""Finds the lookups of a layer or model in a batch; on TensorFlow as tensors (lookups.py).

A functional model's calls are known: the part of it that computes the ids is a model of its own. So a
pipeline runs nothing else of the model.
"""

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from het_tf.python.backend import keras
from het_tf.python.layer.backends import ops
from het_tf.python.table import layer_state

Array = npt.NDArray[Any]
Lookup = tuple[Any, list[Array], list[Array | None]]
"""A layer, with the ids of each feature, int64 of any shape, and its mask or None."""


class Finder:
    """The lookups of a layer or model.

    Args:
      layer: A layer of het_tf, or a functional or Sequential model.

    Raises:
      ValueError: Keras does not know the calls of the model, or ids depend on more than its inputs.
    """

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._part: Any = None
        self._calls: list[tuple[Any, list[Any]]] = []  # layers, each with its ids, then its masks
        if hasattr(layer, layer_state.ATTRIBUTE):
            return
        model = getattr(layer, "_functional", None) or layer  # of a built Sequential model
        for one, arguments in self._recorded(model):
            if hasattr(one, layer_state.ATTRIBUTE):
                self._calls.append((one, _given(one, arguments)))
            elif isinstance(one, keras.layers.Layer) and (inner := layer_state.layers_of(one)):
                self._refuse(inner, f"inside of {one.name!r}")
        self._part = keras.Model(model.input, [x for _, given in self._calls for x in given if x is not None])
        for one in self._part.operations:
            if getattr(one, "variables", ()):  # random layers have some, too
                self._refuse([each for each, _ in self._calls], f"on ids that depend on {one.name!r}")

    def _recorded(self, model: Any) -> list[tuple[Any, Any]]:
        """Returns the calls that Keras has recorded, in order: operations and their arguments.

        These names of Keras are private. The public `clone_model` calls all layers again, and they keep that.
        """
        try:
            depths = model._nodes_by_depth
            nodes = [node for depth in sorted(depths, reverse=True) for node in depths[depth]]
            return [(node.operation, node.arguments) for node in nodes]
        except AttributeError:
            known = hasattr(model, "operations") or (isinstance(model, keras.Sequential) and model.built)
            hidden = f"in a way that Keras {keras.__version__} does not tell"
            self._refuse(
                layer_state.layers_of(self._layer), hidden if known else "in code that Keras does not record"
            )

    def _refuse(self, layers: list[Any], how: str) -> NoReturn:
        if not layers:
            raise ValueError(
                f"model {self._layer.name!r} shows no layer of het_tf before its first call, so its lookups "
                "are not known; call it on a batch first, or give its layer in place of the model, and "
                "inputs=, a function from a batch to the layer's ids"
            )
        name = layers[0].name
        raise ValueError(
            f"model {self._layer.name!r} calls layer {name!r} {how}, so its ids are not known before the "
            "step; give that layer in place of the model, and inputs=, a function from a batch to its ids: "
            f"inputs=lambda x, y: x[{name!r}]"
        )

    def calls(self, inputs: Any) -> list[tuple[Any, list[Any]]]:
        """Returns the layers called in a batch, each with the ids of its features, then their masks or None.

        Raises:
          ValueError: The model cannot be called on the inputs.
        """
        if self._part is None:
            ids = layer_state.of(self._layer).features.flatten(inputs, "inputs")
            return [(self._layer, [*ids, *(None for _ in ids)])]
        try:
            found = iter(keras.tree.flatten(self._part(inputs)))
        except Exception as error:
            raise ValueError(
                f"layer {self._layer.name!r} cannot be called on the inputs that the dataset gives; give "
                f"inputs=, a function from an element to its inputs: {error}"
            ) from error
        return [(one, [None if x is None else next(found) for x in given]) for one, given in self._calls]

    def __call__(self, inputs: Any) -> list[Lookup]:
        """Returns the lookups in a batch, as arrays. ValueError: the ids are invalid."""
        return [_lookup(*call) for call in self.calls(inputs)]


def _given(layer: Any, arguments: Any) -> list[Any]:
    """Returns the symbolic ids of each feature in a call of a layer, then the mask of each, or None."""
    args, kwargs = arguments.args, arguments.kwargs
    features = layer_state.of(layer).features
    mask = kwargs.get("mask", args[2] if len(args) > 2 else None)
    return [
        *features.flatten(args[0] if args else kwargs["inputs"], "inputs"),
        *features.flatten(mask, "mask", optional=True),
    ]


def _lookup(layer: Any, given: list[Any]) -> Lookup:
    features = layer_state.of(layer).features.flat
    pairs = zip(features, given[: len(features)], given[len(features) :], strict=True)
    prepared = [ops.prepare(feature, ids, None, mask)[0] for feature, ids, mask in pairs]
    ids = [np.ascontiguousarray(keras.ops.convert_to_numpy(one), np.int64) for one, _ in prepared]
    return layer, ids, [None if mask is None else keras.ops.convert_to_numpy(mask) for _, mask in prepared]
