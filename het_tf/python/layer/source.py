"""The source of rows of a layer's call: live tables, or a temporary replacement.

    EmbeddingCollection.call ─► ops.lookup: the op HetLookup, live tables, gradients
                             └► inside `reading_from`: its argument, a function

Export uses it: while a model is traced for serving, its code runs as always, with its
combiners, ragged ids, weights and masks; only the op at the bottom differs.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from het_tf.python.table.config import FeatureConfig

# Features, their namespace, int64 ids of any shape for each -> float32 rows `ids.shape + [dim]`.
Lookup = Callable[[Sequence[FeatureConfig], str, Sequence[Any]], list[Any]]

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
