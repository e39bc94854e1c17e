"""The layers of `het_tf.lookahead`, and which part of a batch each takes."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from het_tf.python.backend import keras
from het_tf.python.layer import source
from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.table import layer_state

Calls = list[tuple[Any, Any]]  # layers, each with its inputs


def check(layer: Any) -> list[EmbeddingCollection]:
    """Returns the layers of het_tf in `layer`. ValueError: one of them has no lookups that can be planned."""
    layers = layers_in(layer)
    if not layers:
        raise ValueError("layer is empty; give the layers that look the ids up")
    collections = []
    for each in layers:
        found = layer_state.layers_of(each) if isinstance(each, keras.layers.Layer) else []
        may_have = isinstance(each, keras.Model) and not each.built  # makes its layers in its first call
        if not found and not may_have:
            raise ValueError(f"layer is {source.shown(each)}, without lookups of het_tf; {source.GIVE}")
        collections += found
    for collection in collections:
        cache = layer_state.of(collection).cache
        if cache.place != "cpu":
            raise ValueError(
                f"layer {collection.name!r} has its cache on a GPU (Cache(device={cache.given.device!r}))"
                "; only lookups of rows that are cached in host memory can be planned. Leave "
                'het_tf.lookahead out, or give Cache(device="cpu")'
            )
    return collections


def layers_in(layer: Any) -> list[Any]:
    """Returns the layers of a list or a dict, or the only one."""
    several = layer.values() if isinstance(layer, Mapping) else layer
    return [_of_module(each) for each in (several if isinstance(several, Iterable) else [several])]


def calls(layer: Any, inputs: Callable[..., Any] | None, batch: tuple[Any, ...]) -> Calls:
    """Returns layers, and the inputs of each in a batch. Arguments and errors as in `lookahead`."""
    found = _match(layer, batch[0]) if inputs is None else _pair(layer, inputs(*batch))
    return [(_of_module(each), x) for each, x in found]


def _of_module(layer: Any) -> Any:
    """Returns the layer of a module of het_tf.torch; anything else as it is."""
    modules = sys.modules.get("het_tf.python.layer.modules")  # which imports torch
    return layer.layer if modules is not None and isinstance(layer, modules.Tables) else layer


def _pair(layer: Any, x: Any) -> Calls:
    """Returns layers and the inputs of each if `x` has the structure of `layer`."""
    if isinstance(layer, Mapping):
        if not isinstance(x, Mapping) or set(layer) - set(x):
            have = sorted(map(str, x)) if isinstance(x, Mapping) else f"a {type(x).__name__}"
            raise ValueError(
                f"layer is a dict with the keys {sorted(map(str, layer))}, but the inputs are {have}; give "
                "inputs=, a function from an element to such a dict"
            )
        return [(each, x[key]) for key, each in layer.items()]
    if isinstance(layer, (list, tuple)):
        if not isinstance(x, (list, tuple)) or len(x) != len(layer):
            have = f"{len(x)}" if isinstance(x, (list, tuple)) else f"a {type(x).__name__}"
            raise ValueError(f"layer is a list of {len(layer)}, but the inputs are {have}; give one for each")
        return list(zip(layer, x, strict=True))
    return [(layer, x)]


def _match(layer: Any, x: Any) -> Calls:
    """Matches the inputs of a batch with layers without the user's function."""
    if isinstance(layer, Mapping):
        return _pair(layer, x)
    if isinstance(layer, (list, tuple)):
        if isinstance(x, (list, tuple)) and len(x) == len(layer):
            return _pair(layer, x)
        return [call for each in layer for call in _match(each, x)]
    layer = _of_module(layer)
    if isinstance(layer, EmbeddingCollection) and isinstance(x, Mapping):
        features = layer_state.of(layer).features
        if features.structure == "single":
            name = features.keys[0]
            if name not in x:
                raise ValueError(
                    f"layer {layer.name!r} reads one feature, {name!r}, but the inputs are a dict of "
                    f"{sorted(map(str, x))}; give inputs=, a function from an element to the layer's ids"
                )
            x = x[name]
        elif features.structure == "list":
            raise ValueError(
                f"layer {layer.name!r} takes a list of {len(features.flat)} inputs, but the dataset gives "
                "a dict; give inputs=, a function from an element to that list"
            )
    return [(layer, x)]
