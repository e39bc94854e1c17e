"""The calls of layers in a Keras model, in one form for functional and Sequential models.

Keras keeps the calls of a functional model as nodes; a Sequential model is its list of layers. Here both are
calls: a layer, and the sources of its inputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from het_tf.python.backend import keras


@dataclass(frozen=True)
class Call:
    """One call of a layer in a model.

    Attributes:
      layer: The layer, model or operation that is called.
      sources: The layers that its input tensors come from, in their order; an InputLayer for inputs.
      dtypes: Types of these tensors.
      arguments: All arguments of the call, flattened.
    """

    layer: Any
    sources: list[Any]
    dtypes: list[str]
    arguments: list[Any]


def is_sequential(model: Any) -> bool:
    """Whether a model is its list of layers."""
    return isinstance(model, keras.Sequential)


def is_graph(model: Any) -> bool:
    """Whether Keras knows the calls of a model: False if it is subclassed."""
    if not isinstance(model, keras.Model):
        return False
    return is_sequential(model) or hasattr(model, "_nodes_by_depth")


def inputs(model: Any) -> list[Any]:
    """The input tensors of a built model."""
    return list(model.inputs)


def input_layer(tensor: Any) -> Any:
    """The layer that a symbolic tensor comes from."""
    return tensor._keras_history.operation


def calls(model: Any) -> Iterator[Call]:
    """Yields the calls in a built model, without those inside nested models."""
    if is_sequential(model):
        source, tensor = input_layer(model.inputs[0]), model.inputs[0]
        for layer in model.layers:
            yield Call(layer, [source], [_dtype(tensor)], [tensor])
            source, tensor = layer, _output(layer, tensor)
        return
    for nodes in model._nodes_by_depth.values():
        for node in nodes:
            tensors = node.input_tensors
            if not tensors:  # an input layer
                continue
            yield Call(
                node.operation,
                [input_layer(tensor) for tensor in tensors],
                [_dtype(tensor) for tensor in tensors],
                keras.tree.flatten([node.arguments.args, node.arguments.kwargs]),
            )


def _output(layer: Any, fallback: Any) -> Any:
    """The output of a layer of a Sequential model; `fallback` if Keras does not know it."""
    try:
        return layer.output
    except (AttributeError, ValueError, RuntimeError):
        return fallback


def _dtype(tensor: Any) -> str:
    return str(keras.backend.standardize_dtype(tensor.dtype))


def is_mask(layer: Any) -> bool:
    """Whether it computes the mask of ids: a call beside the Embedding's."""
    return type(layer).__name__ == "NotEqual" and not isinstance(layer, keras.layers.Layer)


def inner_layers(layer: Any) -> list[Any]:
    """All layers nested in a layer, without itself."""
    if not hasattr(layer, "_flatten_layers"):  # an operation
        return []
    return list(layer._flatten_layers(include_self=False))
