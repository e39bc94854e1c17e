"""Copies a model: replaces some layers, and copies the weights of the others."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from het_tf.ext.checkpoint.python.saving import moment
from het_tf.ext.convert.python import graph
from het_tf.python import ids as ids_lib
from het_tf.python.backend import keras
from het_tf.python.table import layer_state

Replace = Callable[[Any], Any]


class Cloner:
    """Copies models, and nested models, with `keras.models.clone_model`.

    A layer that is called several times is copied once, in all models together. Lookup layers are shared, not
    copied, since their configuration lacks the state of `adapt`; so are layers of functions
    (Lambda).

    Args:
      replace: Returns a layer's replacement, or None for a copy.

    Attributes:
      pairs: Each copied layer, and its copy.
    """

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._made: dict[int, Any] = {}
        self._becomes: dict[int, bool] = {}
        self.pairs: list[tuple[Any, Any]] = []

    def model(self, model: Any) -> Any:
        """Returns a copy of a functional or Sequential model. Inputs of ids as floats become integers.

        Raises:
          ValueError: A layer cannot be copied, or an input is read both as ids and as numbers.
        """
        with _as_if_not_compiled(model):
            return keras.models.clone_model(
                model, input_tensors=self._inputs(model), clone_function=self._layer
            )

    def copy_weights(self) -> None:
        """Copies the weights of the layers.

        Raises:
          ValueError: A copy has weights of other shapes.
        """
        for old, new in self.pairs:
            if [tuple(each.shape) for each in old.weights] != [tuple(each.shape) for each in new.weights]:
                raise ValueError(
                    f"layer {old.name!r} ({type(old).__name__}) has weights of other shapes in a copy "
                    "from its get_config(); give get_config() all arguments that its weights depend on"
                )
            if hasattr(old, layer_state.ATTRIBUTE):
                moment.copy(old, new)
            else:
                new.set_weights(old.get_weights())

    def variables(self) -> list[tuple[Any, Any]]:
        """Returns each copied weight, and its copy."""
        return [both for old, new in self.pairs for both in zip(old.weights, new.weights, strict=True)]

    def _layer(self, layer: Any) -> Any:
        if id(layer) not in self._made:
            self._made[id(layer)] = self._copy(layer)
        return self._made[id(layer)]

    def _copy(self, layer: Any) -> Any:
        instead = self._replace(layer)
        if instead is not None:
            return instead
        if graph.is_graph(layer):
            return self.model(layer)
        if not isinstance(layer, keras.layers.Layer):  # an operation, without state
            return layer
        weightless = not any(hasattr(weight, "shape") for weight in layer.weights)
        if weightless and (hasattr(layer, "adapt") or isinstance(layer, keras.layers.Lambda)):
            return layer
        try:
            made = type(layer).from_config(layer.get_config())
        except Exception as error:
            raise ValueError(
                f"layer {layer.name!r} ({type(layer).__name__}) cannot be copied ({error}); give its class a "
                "get_config() with the arguments of its __init__"
            ) from error
        if not isinstance(layer, keras.layers.InputLayer):
            self.pairs.append((layer, made))
        return made

    # --- inputs -----------------------------------------------------------------------------------

    def _inputs(self, model: Any) -> Any:
        """Returns new inputs of a model in its structure: integers for floats that are read as ids."""
        tensors = [self._input(model, tensor) for tensor in graph.inputs(model)]
        if graph.is_sequential(model):
            return tensors[0]
        return keras.tree.pack_sequence_as(model.input, tensors)

    def _input(self, model: Any, tensor: Any) -> Any:
        layer = graph.input_layer(tensor)
        dtype = ids_lib.widest() if self._is_of_ids(model, layer) else tensor.dtype
        options: dict[str, Any] = {"batch_shape": tuple(tensor.shape), "dtype": dtype, "name": layer.name}
        if getattr(layer, "sparse", False):
            options["sparse"] = True
        if getattr(layer, "ragged", False):
            options["ragged"] = True
        if getattr(layer, "optional", False):
            options["optional"] = True
        return keras.Input(**options)

    def _is_of_ids(self, model: Any, layer: Any) -> bool:
        """Whether an input has floats that only replaced layers read."""
        if id(layer) not in self._becomes:
            readers = [reader for call in graph.calls(model) for reader in self._readers(call, layer)]
            if any(readers) and not all(readers):
                raise ValueError(
                    f"input {layer.name!r} has floats that are read as ids and as numbers; give the ids a "
                    "separate input"
                )
            self._becomes[id(layer)] = any(readers)
        return self._becomes[id(layer)]

    def _readers(self, call: graph.Call, layer: Any) -> Iterator[bool]:
        """Yields, for each float of `layer` that a call takes, whether it takes it as an id."""
        for number, (source, dtype) in enumerate(zip(call.sources, call.dtypes, strict=True)):
            if source is not layer or not dtype.startswith(("float", "bfloat")) or graph.is_mask(call.layer):
                continue
            if graph.is_graph(call.layer):
                inner = graph.input_layer(graph.inputs(call.layer)[number])
                yield self._is_of_ids(call.layer, inner)
            else:
                yield isinstance(call.layer, keras.layers.Embedding) and (
                    type(self._layer(call.layer)) is not keras.layers.Embedding
                )


@contextlib.contextmanager
def _as_if_not_compiled(model: Any) -> Iterator[None]:
    """Hides compilation: Keras would compile copies from a configuration, which fails for functions."""
    if not model.compiled:
        yield
        return
    model.compiled = False
    try:
        yield
    finally:
        model.compiled = True
