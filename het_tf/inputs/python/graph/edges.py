"""Checks a user's edges, and puts them in the order of a graph's file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.writer import MOST_TYPES
from het_tf.python.checks import whole

Int64Array = npt.NDArray[np.int64]


Columns = dict[str, npt.NDArray[Any]]
"""Of edges: "source", "target", int64 [E]; where edges have them "type", uint8 [E], "weight", float64 [E]."""


class SortedEdges(NamedTuple):
    """Edges by node, type and neighbour, without self loops and duplicates.

    Attributes:
      degrees: int64 [nodes].
      columns: Of the edges.
      self_loops: Number of edges that were left out.
      duplicates: Number of edges that were merged into others.
    """

    degrees: Int64Array
    columns: Columns
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
    columns: Columns = {"source": pairs[:, 0], "target": pairs[:, 1]}
    if types is not None:
        columns["type"] = _check_types(types, len(pairs))
    if weights is not None:
        columns["weight"] = _check_weights(weights, len(pairs))
    proper = pairs[:, 0] != pairs[:, 1]
    columns = {name: column[proper] for name, column in columns.items()}
    if not directed:
        other = {**columns, "source": columns["target"], "target": columns["source"]}
        columns = {name: np.concatenate([column, other[name]]) for name, column in columns.items()}
    merged = _merged(columns, count)
    duplicates = len(columns["source"]) - len(merged["source"])
    return SortedEdges(
        np.bincount(merged["source"], minlength=count).astype(np.int64),
        merged,
        int(len(pairs) - proper.sum()),
        duplicates if directed else duplicates // 2,
    )


def _merged(columns: Columns, nodes: int) -> Columns:
    """Sorts by source, type and target, and merges equal edges."""
    if len(columns) == 2 and nodes <= 2**31:  # one key an edge sorts five times as fast
        key = np.sort(columns["source"] * nodes + columns["target"])
        source, target = np.divmod(key[np.diff(key, prepend=-1) != 0], nodes)
        return {"source": source, "target": target}
    names = [name for name in ("target", "type", "source") if name in columns]
    order = np.lexsort([columns[name] for name in names])
    columns = {name: column[order] for name, column in columns.items()}
    first = np.ones(len(order), bool)
    first[1:] = np.any([columns[name][1:] != columns[name][:-1] for name in names], axis=0)
    found = {name: column[first] for name, column in columns.items()}
    if "weight" in columns and len(order):
        found["weight"] = np.add.reduceat(columns["weight"], np.flatnonzero(first))
    return found


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


def _check_weights(weights: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    array = np.asarray(weights)
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise ValueError(
            f"weights is {array.dtype}{list(array.shape)}; give a number for each of the {count} edges"
        )
    _refuse(
        "weights",
        array,
        ~(np.isfinite(array) & (array > 0)),
        "finite weights above 0, and remove edges that are never drawn",
    )
    return array.astype(np.float64)


def _check_types(types: npt.ArrayLike, count: int) -> npt.NDArray[np.uint8]:
    array = np.asarray(types)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.shape != (count,):
        raise ValueError(
            f"types is {array.dtype}{list(array.shape)}; give an integer for each of the {count} edges"
        )
    _refuse("types", array, (array < 0) | (array >= MOST_TYPES), f"types from 0 to {MOST_TYPES - 1}")
    return array.astype(np.uint8)


def _refuse(argument: str, array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], give: str) -> None:
    """Raises ValueError if an element of an argument is bad; `give` says what to give."""
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{argument} has {array[row]} in row {row}; give {give}")
