"""The source of rows of a layer's call: live tables, or a temporary replacement.

    EmbeddingCollection.call ─► ops.lookup: the op HetLookup, live tables, gradients
                             └► inside `reading_from`: its argument, a function

While a model is traced for serving, or to find its lookups (lookups.py), its code runs as always, with
its combiners, ragged ids, weights and masks; only the op at the bottom differs.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any


@dataclasses.dataclass(frozen=True)
class Read:
    """The rows that a call of a layer needs.

    Attributes:
      layer: The layer.
      ids: For each of its features int64 of any shape.
      inputs: What it was called on, for each feature.
      masks: The mask of each, or None.
    """

    layer: Any
    ids: Sequence[Any]
    inputs: Sequence[Any]
    masks: Sequence[Any]


# -> for each feature float32 rows `ids.shape + [dim]`.
Lookup = Callable[[Read], list[Any]]

GIVE = "give a layer of het_tf.keras, a Keras model that has some, or a list or dict of them"

_lookup: ContextVar[Lookup | None] = ContextVar("het_tf_rows_from", default=None)


def replacement() -> Lookup | None:
    """The function that a call must use in place of the live tables, or None."""
    return _lookup.get()


@contextlib.contextmanager
def reading_from(lookup: Lookup) -> Iterator[None]:
    """While open, layers called in this context read by `lookup`, and do not train."""
    token = _lookup.set(lookup)
    try:
        yield
    finally:
        _lookup.reset(token)


def shown(layer: Any) -> str:
    """Returns the name and type of a layer, or of what is none, for a message."""
    return f"{getattr(layer, 'name', layer)!r}, a {type(layer).__name__}"
