"""Checks a user's edges, and puts them in the order of a graph's file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.writer import MOST_TYPES
from het_tf.python.checks import whole

Int64Array = npt.NDArray[np.int64]


class SortedEdges(NamedTuple):
    """Edges by node, type and neighbour, without self loops and duplicates.

    Attributes:
      degrees: int64 [nodes].
      neighbours: int64 [E].
      weights: float64 [E] or None.
      types: uint8 [E] or None.
      self_loops: Number of edges that were left out.
      duplicates: Number of edges that were merged into others.
    """

    degrees: Int64Array
    neighbours: Int64Array
    weights: npt.NDArray[np.float64] | None
    types: npt.NDArray[np.uint8] | None
    self_loops: int
    duplicates: int


def sort_edges(
    edges: npt.ArrayLike,
    nodes: int | None = None,
    weights: npt.ArrayLike | None = None,
    types: npt.ArrayLike | None = None,
    directed: bool = False,
) -> SortedEdges:
    """Returns the edges in the order of a file; arguments and errors as in `Graph.from_edges`."""
    pairs = _check_edges(edges)
    count = _check_nodes(nodes, pairs)
    weight = _check_weights(weights, len(pairs))
    kind = _check_types(types, len(pairs))
    proper = pairs[:, 0] != pairs[:, 1]
    self_loops = int(len(pairs) - proper.sum())
    if self_loops:
        pairs = pairs[proper]
        weight = None if weight is None else weight[proper]
        kind = None if kind is None else kind[proper]
    source, target = pairs[:, 0], pairs[:, 1]
    if not directed:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = None if weight is None else np.concatenate([weight, weight])
        kind = None if kind is None else np.concatenate([kind, kind])
    source, target, kind, weight, merged = _merge(source, target, kind, weight, count)
    return SortedEdges(
        np.bincount(source, minlength=count).astype(np.int64),
        target,
        weight,
        kind,
        self_loops,
        merged if directed else merged // 2,
    )


def _merge(
    source: Int64Array,
    target: Int64Array,
    kind: npt.NDArray[np.uint8] | None,
    weight: npt.NDArray[np.float64] | None,
    nodes: int,
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.uint8] | None, npt.NDArray[np.float64] | None, int]:
    """Sorts by source, type and target, and merges equal edges; the last result is the number merged."""
    if kind is None and weight is None and nodes <= 2**31:  # one key an edge sorts five times as fast
        key = np.sort(source * nodes + target)
        first = np.ones(len(key), bool)
        np.not_equal(key[1:], key[:-1], out=first[1:])
        merged = int(len(key) - first.sum())
        source, target = np.divmod(key[first] if merged else key, nodes)
        return source, target, None, None, merged
    order = np.lexsort((target, source) if kind is None else (target, kind, source))
    source, target = source[order], target[order]
    kind = None if kind is None else kind[order]
    first = np.ones(len(source), bool)
    first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    if kind is not None:
        first[1:] |= kind[1:] != kind[:-1]
    if weight is not None and len(weight):
        weight = np.add.reduceat(weight[order], np.flatnonzero(first))
    kind = None if kind is None else kind[first]
    return source[first], target[first], kind, weight, int(len(first) - first.sum())


def _check_edges(edges: npt.ArrayLike) -> Int64Array:
    array: npt.NDArray[Any] = np.asarray(edges)
    if array.size == 0 and array.ndim <= 2:
        array = np.zeros((0, 2), np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"edges is {array.dtype}, but ids of nodes are integers from 0; number the nodes "
            "(numpy.unique(names, return_inverse=True) does) and give int64"
        )
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"edges has the shape {list(array.shape)}; give [edges, 2], the two ends of each")
    largest = int(array.max(initial=0))
    if largest >= 2**63 - 1:
        raise ValueError(f"edges has the id {largest}; give ids below 2^63 - 1, numbered from 0")
    pairs = array.astype(np.int64, copy=False)
    if len(pairs) and int(pairs.min()) < 0:
        row = int(np.flatnonzero((pairs < 0).any(axis=1))[0])
        raise ValueError(
            f"edges has the id {int(pairs[row].min())} in row {row}; ids of nodes are integers from 0: "
            "remove the row, or number the nodes from 0"
        )
    return pairs


def _check_nodes(nodes: int | None, pairs: Int64Array) -> int:
    needed = int(pairs.max(initial=-1)) + 1
    if nodes is None:
        if needed == 0:
            raise ValueError("edges is empty and nodes is None: a graph has 1 node or more; give nodes=")
        return needed
    nodes = whole("nodes", nodes, what="their number")
    if needed > nodes:
        row = int(np.flatnonzero((pairs >= nodes).any(axis=1))[0])
        raise ValueError(
            f"edges has the id {int(pairs[row].max())} in row {row}, but nodes is {nodes}: ids are from 0 to "
            f"{nodes - 1}; give nodes={needed}, or remove the row"
        )
    return nodes


def _check_weights(weights: npt.ArrayLike | None, count: int) -> npt.NDArray[np.float64] | None:
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise ValueError(
            f"weights is {array.dtype}{list(array.shape)}; give a number for each of the {count} edges"
        )
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"weights has {array[row]} in row {row}; give finite weights above 0, and remove edges that are "
            "never drawn"
        )
    return array.astype(np.float64)


def _check_types(types: npt.ArrayLike | None, count: int) -> npt.NDArray[np.uint8] | None:
    if types is None:
        return None
    array = np.asarray(types)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise ValueError(
            f"types is {array.dtype}{list(array.shape)}; give an integer for each of the {count} edges"
        )
    bad = (array < 0) | (array >= MOST_TYPES)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"types has {array[row]} in row {row}; give types from 0 to {MOST_TYPES - 1}")
    return array.astype(np.uint8)
