"""`graph_like`: makes a graph of any size with communities and a power law of degrees, in pieces.

Node v is in community v % communities, and smaller v are more popular. An edge leads from a node to a member
of its own community (`INSIDE` of the edges), or to any node; the probability falls with the rank r of
popularity as (r + 1)^-SKEW. The number of a node's edges follows a Pareto distribution: P(degree >= d) ~
d^(1 - TAIL). Both match reports on citations and friendships (Clauset, Shalizi and Newman, 2009).

A piece of nodes depends only on the seed and its number (Philox, counter-based), so every machine makes the
same file, with the memory of one piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from data import cache_dir

from het_tf.inputs import Graph, GraphWriter

PIECE = 1 << 18
TAIL = 2.5
SMALLEST, LARGEST = 4, 10_000  # edges of a node
INSIDE = 0.8
SKEW = 0.8
MEMBERS = 500  # of a community, about
LEAST = 16  # communities
VERSION = 1
"""Version of the generator; part of the file's name."""

Int64Array = npt.NDArray[np.int64]


def graph_like(nodes: int, seed: int = 0) -> Graph:
    """Returns the graph of a seed, of some 11 times as many directed edges as nodes; its file is cached."""
    path = cache_dir() / f"graph_like-{VERSION}-{nodes}-{seed}.graph"
    if not path.exists():
        edges = sum(int(_degrees(piece, nodes, seed).sum()) for piece in range(-(-nodes // PIECE)))
        with GraphWriter(path, nodes, edges) as writer:
            for degrees, neighbours in _pieces(nodes, seed):
                writer.append(degrees, neighbours)
            writer.finish()
    return Graph.open(path)


def _degrees(piece: int, nodes: int, seed: int) -> Int64Array:
    """Returns the degrees of the nodes of a piece."""
    begin, end = piece * PIECE, min((piece + 1) * PIECE, nodes)
    rng = np.random.Generator(np.random.Philox(key=[seed, 2], counter=[0, 0, 0, piece]))
    drawn = SMALLEST * (1 - rng.random(end - begin)) ** (-1 / (TAIL - 1))
    return np.minimum(drawn, min(LARGEST, nodes // 10)).astype(np.int64)


def _pieces(nodes: int, seed: int) -> Iterator[tuple[Int64Array, Int64Array]]:
    communities = max(LEAST, nodes // MEMBERS)
    for piece in range(-(-nodes // PIECE)):
        begin, end = piece * PIECE, min((piece + 1) * PIECE, nodes)
        degrees = _degrees(piece, nodes, seed)
        rng = np.random.Generator(np.random.Philox(key=[seed, 3], counter=[0, 0, 0, piece]))
        source = np.repeat(np.arange(begin, end, dtype=np.int64), degrees)
        community = source % communities
        inside = rng.random(len(source)) < INSIDE
        members = (nodes - 1 - community) // communities + 1
        place = _places(rng.random(len(source)), np.where(inside, members, nodes))
        target = np.where(inside, place * communities + community, place)
        target = np.where(target == source, (target + communities) % nodes, target)
        yield degrees, target


def _places(unit: npt.NDArray[np.float64], limit: Int64Array) -> Int64Array:
    """Returns places in [0, limit), by (place + 1)^-SKEW: the inverse of the distribution's integral."""
    power = 1 - SKEW
    place = ((limit + 1.0) ** power * unit + (1 - unit)) ** (1 / power) - 1
    return np.minimum(place.astype(np.int64), limit - 1)
