"""Where the rows of a layer's call come from: live tables, or what takes their place for a while.

    EmbeddingCollection.call ─► ops.lookup: the op HetLookup, live tables, gradients
                             └► inside of `reading_from`: the function that it was given

Export is what gives one: while a model is traced for serving, its own code runs as always, with its
combiners, ragged ids, weights and masks, and only the op at the bottom is another one.
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
    """What a call is to read from in place of the live tables; None: read those."""
    return _lookup.get()


@contextlib.contextmanager
def reading_from(lookup: Lookup) -> Iterator[None]:
    """Inside, layers called in this context read by `lookup`, and nothing trains."""
    token = _lookup.set(lookup)
    try:
        yield
    finally:
        _lookup.reset(token)
