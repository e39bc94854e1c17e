"""Exact search of the nearest items, for retrieval models."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from het_tf.python.checks import whole

SCORES = 1 << 24
"""Scores in memory at a time: 64 MiB."""


class Index:
    """Vectors of items, and their ids; finds the items with the largest dot products with a query.

    The search is exact: it compares each query with each item, in blocks of `SCORES` scores. For some
    millions of items, start from `to_faiss()` and its approximate indexes.

    Args:
      ids: int64 or strings `[N]`: the items, each once.
      vectors: float32 `[N, d]`.

    Raises:
      ValueError: The shapes do not fit, an id is there twice, or a vector is NaN or Inf.
    """

    def __init__(self, ids: npt.ArrayLike, vectors: npt.ArrayLike) -> None:
        self.ids = np.asarray(ids)
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        if self.ids.dtype.kind not in "iuOSU":
            raise ValueError(f"ids are {self.ids.dtype}; give integers or strings")
        self.ids = self.ids.astype(np.int64 if self.ids.dtype.kind in "iu" else object)
        if self.ids.ndim != 1 or self.vectors.ndim != 2 or len(self.ids) != len(self.vectors):
            raise ValueError(
                f"ids have shape {self.ids.shape} and vectors {self.vectors.shape}; give [N] and [N, d]"
            )
        if len(np.unique(self.ids)) != len(self.ids):
            raise ValueError("ids has items twice; give each once, as np.unique(ids) does")
        if not np.isfinite(self.vectors).all():
            raise ValueError("vectors hold NaN or Inf; find out why the training diverged")

    def __len__(self) -> int:
        return len(self.ids)

    def search(self, queries: Any, k: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
        """Returns the k items with the largest dot products with each query, the largest first.

        Args:
          queries: float32 `[Q, d]`.
          k: Number of items to find, from 1 to the number of items.

        Returns:
          Scores float32 `[Q, k]` and ids `[Q, k]`; among equal scores the item that was given first comes
          first.

        Raises:
          ValueError: k is above the number of items or below 1; queries have another shape.
        """
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.vectors.shape[1]:
            raise ValueError(
                f"queries have shape {queries.shape}; give [Q, {self.vectors.shape[1]}], vectors of the "
                "model that made the index"
            )
        whole("k", k, 1, len(self), "a number of items")
        items = min(len(self), SCORES // 16)  # at least 16 queries a block
        rows = max(1, SCORES // items)
        scores, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for begin in range(0, len(queries), rows):
            part = slice(begin, begin + rows)
            found = self._search(tf.constant(queries[part]), k, items)
            scores[part], places[part] = (one.numpy() for one in found)
        return scores, self.ids[places]

    def _search(self, queries: Any, k: int, items: int) -> tuple[Any, Any]:
        """Returns scores and places of the best of each block of items, and then of all blocks."""
        best: list[tuple[Any, Any]] = []
        for begin in range(0, len(self), items):
            block = self.vectors[begin : begin + items]
            products = tf.matmul(queries, tf.constant(block), transpose_b=True)
            found = tf.math.top_k(products, min(k, len(block)))
            best.append((found.values, tf.cast(found.indices, tf.int64) + begin))
        if len(best) == 1:
            return best[0]
        values, places = (tf.concat(column, axis=1) for column in zip(*best, strict=True))
        found = tf.math.top_k(values, k)
        return found.values, tf.gather(places, found.indices, batch_dims=1)

    def to_faiss(self) -> Any:
        """Returns the same index in FAISS, an `IndexIDMap` over an `IndexFlatIP`.

        Raises:
          ImportError: FAISS is not installed.
          ValueError: Ids are strings.
        """
        if self.ids.dtype != np.int64:
            raise ValueError(
                "ids are strings, but FAISS takes integers; give it Index(np.arange(len(index)), "
                "index.vectors).to_faiss(), and look its answers up in index.ids"
            )
        try:
            import faiss  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise ImportError(
                "Index.to_faiss() needs FAISS, which is not installed: pip install faiss-cpu"
            ) from None
        index = faiss.IndexIDMap(faiss.IndexFlatIP(self.vectors.shape[1]))
        index.add_with_ids(self.vectors, self.ids)
        return index

    def __repr__(self) -> str:
        return f"Index({len(self)} items, {self.vectors.shape[1]} floats each)"


def batches_of(items: Any) -> Iterator[Mapping[str, Any]] | None:
    """Returns the inputs in data that training takes, batch by batch; None: it is something else.

    Raises:
      ValueError: A dataset has no end.
    """
    if isinstance(items, tf.data.Dataset):
        if int(items.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError("items is a dataset without an end; give it before repeat()")
        text = np.frompyfunc(lambda one: one.decode() if isinstance(one, bytes) else one, 1, 1)
        inputs = (batch[0] if isinstance(batch, tuple) else batch for batch in items.as_numpy_iterator())
        return (
            {name: text(column) if column.dtype == object else column for name, column in batch.items()}
            for batch in inputs
        )
    if hasattr(items, "blocks"):
        return (block.inputs() for block in items.blocks())
    return iter([items.inputs()]) if hasattr(items, "inputs") else None


def make_index(
    encode: Callable[[dict[str, Any]], Any], inputs: Mapping[str, Any], name: str, batch_size: int
) -> Index:
    """Makes the index of items.

    Args:
      encode: Maps a batch of inputs to vectors, float `[B, d]`.
      inputs: Arrays of N rows by name.
      name: Name of the input with the item's id.
      batch_size: Items to encode at a time.
    """
    whole("batch_size", batch_size)
    ids = np.asarray(inputs[name])
    if not len(ids):
        raise ValueError("there are no items; an index has one or more")
    run = tf.function(encode, reduce_retracing=True)
    vectors = [
        run({key: tf.constant(column[at : at + batch_size]) for key, column in inputs.items()}).numpy()
        for at in range(0, len(ids), batch_size)
    ]
    return Index(ids, np.concatenate(vectors))
