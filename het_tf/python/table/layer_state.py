"""What het_tf knows of a Keras layer of its own, beside what Keras knows.

`EmbeddingCollection` makes a `LayerState` when it is made itself. What deals with layers elsewhere
(saving, planning, several workers) reads it by `of`, and no other attribute that is not public.
"""

import weakref
from dataclasses import dataclass
from typing import Any

from het_tf.python.table.cache import LayerCache
from het_tf.python.table.features import Features
from het_tf.python.table.registry import Entry

ATTRIBUTE = "_het_state"  # of the layer


@dataclass(frozen=True)
class Call:
    """What every call of one layer has in common: attributes of its ops, and the layer's number."""

    tables: tuple[str, ...]  # of each feature
    dims: tuple[int, ...]  # of each feature
    specs: str  # core/engine/call_spec.h
    place: str = "cpu"  # where the cache is: "cpu" or "gpu"
    layer: int = 0  # by which the gradient of its lookups finds the layer (registry.py); 0: there is none


@dataclass(eq=False)
class LayerState:
    """One layer.

    Attributes:
      features: And the structure of its inputs.
      cache: Of its tables.
      namespace: Where they are.
      call: What its ops are given.
      file_keys: What its tables are called in files -> their names.
      entries: What is known of its tables.
      model: The outermost model around the last call, or None.
    """

    features: Features
    cache: LayerCache
    namespace: str
    call: Call
    file_keys: dict[str, str]
    entries: list[Entry]
    model: weakref.ref[Any] | None = None


def of(layer: Any) -> LayerState:
    """The state of a layer of het_tf."""
    state: LayerState = getattr(layer, ATTRIBUTE)
    return state


def layers_of(model: Any) -> list[Any]:
    """The layers of het_tf in a Keras model."""
    return [layer for layer in model._flatten_layers() if hasattr(layer, ATTRIBUTE)]
