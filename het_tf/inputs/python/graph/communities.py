"""Finds communities of bounded size by label propagation (Raghavan, Albert and Kumara, 2007).

Every node starts as its own community. In each round a random half of the nodes moves to the community with
most of their edges, in either direction; ties go to the larger hash, which changes each round.
Only half moves, since neighbours that move at once would swap places forever. A community at its largest
size accepts no more nodes: else popular nodes would draw the whole graph into one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from het_tf.python.hashing import GAMMA, mix

Int64Array = npt.NDArray[np.int64]

ROUNDS = 12
PARTS, LEAST = 256, 8
"""A community grows up to 1/256 of the nodes, so that 30 workers get about equally many; in small graphs up
to 8 nodes."""


def communities(offsets: Int64Array, edge_ends: npt.NDArray[np.integer], seed: int = 0) -> Int64Array:
    """Returns the community of each node of a graph in CSR form, as the number of one of its nodes.

    Args:
      offsets: `[nodes + 1]`: the edges of node v are [offsets[v], offsets[v + 1]).
      edge_ends: `[edges]`: the node that each edge leads to. Directions are ignored.
      seed: Seed of the order in which nodes move.

    Returns:
      int64 `[nodes]`. Memory: about 50 bytes an edge while it runs.
    """
    nodes = len(offsets) - 1
    tails = np.repeat(np.arange(nodes), np.diff(offsets))
    node, other = np.concatenate([tails, edge_ends]), np.concatenate([edge_ends, tails]).astype(np.int64)
    of = np.arange(nodes)
    for number in range(ROUNDS):
        moves = (_hashed(np.arange(nodes), seed, 2 * number) & np.uint64(1)).astype(bool)
        from_, to = of[node], of[other]
        takes = np.bincount(of, minlength=nodes) < max(LEAST, nodes // PARTS)
        wanted = moves[node] & (takes[to] | (from_ == to))
        _move(of, node[wanted], to[wanted], _hashed(np.arange(nodes), seed, 2 * number + 1))
    return of


def _move(of: Int64Array, node: Int64Array, to: Int64Array, turn: npt.NDArray[np.uint64]) -> None:
    """Sets the community of each node that has edges to the most frequent `to` of these."""
    if not len(node):
        return
    pairs = np.sort(node * len(of) + to)
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    times = np.diff(first, append=len(pairs)).astype(np.uint64)
    node, to = pairs[first] // len(of), pairs[first] % len(of)
    worth = (times << np.uint64(32)) | (turn[to] >> np.uint64(32))
    begins = np.flatnonzero(np.diff(node, prepend=-1))
    best = np.repeat(np.maximum.reduceat(worth, begins), np.diff(begins, append=len(node))) == worth
    of[node[best]] = to[best]


def _hashed(values: Int64Array, seed: int, number: int) -> npt.NDArray[np.uint64]:
    return mix(values.astype(np.uint64) + np.uint64((seed * 1000 + number) * int(GAMMA) % 2**64))
