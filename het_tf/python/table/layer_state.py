"""The state of het_tf's Keras layers, beside Keras' own.

`EmbeddingCollection` makes a `LayerState` in its constructor. Other modules that work on layers
(saving, planning, several workers) read it by `of`, and no other private attribute.
"""

from dataclasses import dataclass
from typing import Any

from het_tf.python.table.cache import LayerCache
from het_tf.python.table.features import Features
from het_tf.python.table.registry import Entry

ATTRIBUTE = "_het_state"  # of the layer


@dataclass(frozen=True)
class Call:
    """Shared by all calls of one layer: attributes of its ops."""

    tables: tuple[str, ...]  # of each feature
    dims: tuple[int, ...]  # of each feature
    specs: str  # core/engine/call_spec.h
    place: str = "cpu"  # of the cache: "cpu" or "gpu"


@dataclass(frozen=True)
class Update:
    """What the ops of a variable get: names of its tables, JSON of their configurations, "cpu" or "gpu"."""

    tables: list[str]
    specs: str
    place: str

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of an op."""
        return {"tables": self.tables, "specs": self.specs}


@dataclass(eq=False)
class LayerState:
    """The state of one layer.

    Attributes:
      features: Its features, with the structure of its inputs.
      cache: Cache of its tables.
      namespace: Namespace of its tables.
      call: Arguments of its ops.
      file_keys: Names of its tables in files -> their names.
      entries: Registry entries of its tables.
      variables: The variables that stand for its tables, each once (layer/variable.py).
    """

    features: Features
    cache: LayerCache
    namespace: str
    call: Call
    file_keys: dict[str, str]
    entries: list[Entry]
    variables: list[Any]


def of(layer: Any) -> LayerState:
    """Returns the state of a layer of het_tf."""
    state: LayerState = getattr(layer, ATTRIBUTE)
    return state


def layers_of(model: Any) -> list[Any]:
    """Returns the layers of het_tf in a Keras model."""
    return [layer for layer in model._flatten_layers() if hasattr(layer, ATTRIBUTE)]


def variables_of(model: Any) -> list[Any]:
    """Returns the variables that stand for the tables of a Keras model, each once."""
    found = {id(one): one for layer in layers_of(model) for one in of(layer).variables}
    return list(found.values())
