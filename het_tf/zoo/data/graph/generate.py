"""`graph_like`: makes a graph of any size with communities and a power law of degrees, in pieces.

Node v is in community v % communities, and smaller v are more popular.
An edge leads from a node to a member of its own community (`_INSIDE` of the edges), or to any node; the
probability falls with the rank r of popularity as (r + 1)^-_SKEW. The number of a node's edges follows a
Pareto distribution: P(degree >= d) ~ d^(1 - _TAIL). Both match reports on citations and friendships
(Clauset, Shalizi and Newman, 2009: exponents of 2 to 3).

A piece of nodes depends only on the seed and its number (Philox, counter-based), so every machine makes the
same file, with the memory of one piece.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.graph import Graph
from het_tf.inputs.python.graph.writer import GraphWriter
from het_tf.python.checks import whole
from het_tf.python.files import local_path
from het_tf.python.show import size
from het_tf.zoo.data import wheels
from het_tf.zoo.data.graph.nodes import NodeSet, NodeTask

_PIECE = 1 << 18
_TAIL = 2.5
_SMALLEST, _LARGEST = 4, 10_000  # edges of a node
_INSIDE = 0.8
_SKEW = 0.8
_MEMBERS = 500  # of a community, about
_MOST_LABELLED = 1_000_000
_NOISE = 0.1
CLASSES = 16
LEAST_NODES, MOST_NODES = 10_000, 2**31
VERSION = 1
"""Version of the generator; part of the file's name."""

Int64Array = npt.NDArray[np.int64]


def graph_like(nodes: int = 100_000, seed: int = 0, path: str | os.PathLike[str] | None = None) -> NodeTask:
    """Makes a graph with communities and a power law of degrees, or opens its file.

    The class of a node is its community's, except for a tenth of the nodes, whose class is random: the best
    accuracy of a model is 90.6 %. Up to a million nodes have a class: eight tenths train,
    a tenth is valid, a tenth tests. There are no features.

    Args:
      nodes: 10,000 to 2^31. Edges are some 11 times as many, directed.
      seed: Seed of edges and classes.
      path: The file; None: in the cache (`HET_DATA_DIR`, or ~/.cache/het_tf). An existing file is used if it
        has as many nodes.

    Returns:
      The task; 16 classes.

    Raises:
      ValueError: nodes is out of range; the file at `path` is not a graph or has another number of nodes.
      RuntimeError: The file cannot be written.
    """
    nodes = whole("nodes", nodes, LEAST_NODES, MOST_NODES)
    name = f"graph_like-{VERSION}-{nodes}-{seed}.graph"
    file = local_path("path", path) if path is not None else wheels.cache_dir() / "graphs" / name
    with wheels.writing(file, size(_bytes(nodes))):
        if not file.exists():
            write_graph_like(file, nodes, seed)
        graph = Graph.open(file)
    if graph.nodes != nodes:
        raise ValueError(f"{file} has {graph.nodes:,} nodes, but nodes is {nodes:,}; give another path")
    rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
    count = min(nodes, _MOST_LABELLED)
    ids = rng.permutation(count) * (nodes // count)
    labels = class_of(ids, nodes, seed)
    tenth = count // 10
    train, valid, test = (
        NodeSet(ids[part], labels[part])
        for part in (slice(2 * tenth, None), slice(tenth, 2 * tenth), slice(0, tenth))
    )
    return NodeTask("graph_like", graph, CLASSES, False, train, valid, test, None, "community")


def write_graph_like(path: str | os.PathLike[str], nodes: int, seed: int) -> None:
    """Writes the graph, piece by piece.

    Raises:
      OSError: The file cannot be written.
    """
    edges = sum(int(_degrees(piece, nodes, seed).sum()) for piece in range(-(-nodes // _PIECE)))
    with GraphWriter(path, nodes, edges) as writer:
        for degrees, neighbours in _pieces(nodes, seed):
            writer.append(degrees, neighbours)
        writer.finish()


def class_of(ids: Int64Array, nodes: int, seed: int) -> Int64Array:
    """Returns the classes of nodes, int64 of the shape of `ids`."""
    random = _mix(ids.astype(np.uint64) + np.uint64(seed << 32))
    wrong = (random >> np.uint64(40)) < np.uint64(_NOISE * (1 << 24))
    return np.where(wrong, random % np.uint64(CLASSES), ids % _communities(nodes) % CLASSES).astype(np.int64)


def _communities(nodes: int) -> int:
    return max(CLASSES, nodes // _MEMBERS)


def _bytes(nodes: int) -> int:
    return nodes * (16 + 4 * 12)


def _degrees(piece: int, nodes: int, seed: int) -> Int64Array:
    """Returns the degrees of the nodes of a piece."""
    begin, end = piece * _PIECE, min((piece + 1) * _PIECE, nodes)
    rng = np.random.Generator(np.random.Philox(key=[seed, 2], counter=[0, 0, 0, piece]))
    drawn = _SMALLEST * (1 - rng.random(end - begin)) ** (-1 / (_TAIL - 1))
    return np.minimum(drawn, min(_LARGEST, nodes // 10)).astype(np.int64)


def _pieces(nodes: int, seed: int) -> Iterator[tuple[Int64Array, Int64Array]]:
    communities = _communities(nodes)
    for piece in range(-(-nodes // _PIECE)):
        begin, end = piece * _PIECE, min((piece + 1) * _PIECE, nodes)
        degrees = _degrees(piece, nodes, seed)
        rng = np.random.Generator(np.random.Philox(key=[seed, 3], counter=[0, 0, 0, piece]))
        source = np.repeat(np.arange(begin, end, dtype=np.int64), degrees)
        community = source % communities
        inside = rng.random(len(source)) < _INSIDE
        members = (nodes - 1 - community) // communities + 1
        place = _places(rng.random(len(source)), np.where(inside, members, nodes))
        target = np.where(inside, place * communities + community, place)
        target = np.where(target == source, (target + communities) % nodes, target)
        yield degrees, target


def _places(unit: npt.NDArray[np.float64], limit: Int64Array) -> Int64Array:
    """Returns places in [0, limit), by (place + 1)^-_SKEW: the inverse of the distribution's integral."""
    power = 1 - _SKEW
    place = ((limit + 1.0) ** power * unit + (1 - unit)) ** (1 / power) - 1
    return np.minimum(place.astype(np.int64), limit - 1)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of MurmurHash3."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))
