"""`Graph`: a graph in a file, and draws of its neighbours (public as `het_tf.data.Graph`)."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.communities import communities
from het_tf.inputs.python.graph.edges import sort_edges
from het_tf.inputs.python.graph.writer import GraphWriter

if TYPE_CHECKING:
    import tensorflow as tf

Int64Array = npt.NDArray[np.int64]
Fanout = int | Mapping[int, int]

_CHUNK_NODES = 1 << 20
_ANY_TYPE = -1


class Graph:
    """A graph in a file that is mapped into memory: neighbours of nodes are drawn by a TensorFlow op.

        graph = Graph.from_edges("friends.graph", edges)             # int64 [E, 2]
        batch, friends, theirs = graph.sample([7, 9], (25, 10))      # [2], [2, 25], [2, 250]

    All graphs that a process opens, and all processes of a machine, share one copy of a file, whose pages
    come into memory as they are read. A file that is in use is replaced by writing a new one to its path;
    never truncate or overwrite it in place.

    Attributes:
      path: Of the file, absolute.
      nodes: Their number; ids are int64 in [0, nodes).
      edges: Their number in the file: of an undirected graph each is there in both directions.
      directed: Whether edges have a direction.
      weighted: Whether edges have weights, by which they are drawn.
      types: How many types edges have; 0: none.
      isolated: How many nodes have no edge.
      self_loops: How many edges from a node to itself were left out when the file was made.
      duplicates: How many edges were merged into an equal one.
      offsets: int64 [nodes + 1], mapped: the edges of node v are [offsets[v], offsets[v + 1]).
      edge_ends: uint32 or int64 [edges], mapped: the neighbour that each edge leads to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """As `open`."""
        from het_tf.inputs.python import native

        self.path = str(Path(path).absolute())
        try:
            found = json.loads(native.call("HetGraphInspect", self.path))
        except LookupError as error:
            raise FileNotFoundError(str(error)) from None
        self.nodes: int = found["nodes"]
        self.edges: int = found["edges"]
        self.directed: bool = not found["symmetric"]
        self.weighted: bool = found["weighted"]
        self.types: int = found["types"]
        self.isolated: int = found["isolated"]
        self.self_loops: int = found["self_loops"]
        self.duplicates: int = found["duplicates"]
        self.offsets = np.memmap(self.path, "<i8", "r", found["offsets_at"], (self.nodes + 1,))
        other = "<u4" if found["neighbour_bytes"] == 4 else "<i8"
        self.edge_ends: npt.NDArray[Any] = np.zeros(0, other)
        self._communities: dict[int, Int64Array] = {}
        if self.edges:
            self.edge_ends = np.memmap(self.path, other, "r", found["neighbours_at"], (self.edges,))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Graph:
        """Opens the file of a graph. Reads its header and offsets, 8 bytes a node, and checks them.

        Args:
          path: Of a file that `from_edges` or a `GraphWriter` wrote.

        Raises:
          FileNotFoundError: There is none.
          OSError: It cannot be read.
          ValueError: It is no graph, cut off or damaged, or of another version.
        """
        return cls(path)

    @classmethod
    def from_edges(
        cls,
        path: str | os.PathLike[str],
        edges: npt.ArrayLike,
        nodes: int | None = None,
        weights: npt.ArrayLike | None = None,
        types: npt.ArrayLike | None = None,
        directed: bool = False,
    ) -> Graph:
        """Writes a graph to a file and opens it.

        An edge from a node to itself is left out: GraphSAGE takes a node's own vector beside those of its
        neighbours anyway. An edge that comes several times (of an undirected graph, in whatever direction)
        counts once, with the sum of its weights; with other types it is another edge. Both are counted, in
        `self_loops` and `duplicates`. Takes memory for some four copies of the edges; the generator of
        `graph_like` shows how a larger graph is written in pieces.

        Args:
          path: Of the file; one that is there is replaced, once the new one is complete.
          edges: Integers [E, 2]: the two ends of each, ids from 0. Directed: from the first to the second,
            and the neighbours of a node are those that its edges lead to.
          nodes: Their number; None: the largest id and one. Nodes without edges are legal.
          weights: Floats [E], finite and above 0: neighbours are drawn in proportion. None: all alike.
          types: Integers [E], 0 to 255: of each edge. None: there are no types.
          directed: False: each edge goes both ways.

        Raises:
          ValueError: Ids are no integers, negative or not below `nodes`; weights or types are not as said.
          OSError: The file cannot be written; what was at `path` before is there still.
        """
        sort = sort_edges(edges, nodes, weights, types, directed)
        count = len(sort.degrees)
        starts = np.concatenate([[0], np.cumsum(sort.degrees)])
        kinds = 0 if sort.types is None else int(sort.types.max(initial=0)) + 1
        weighted = sort.weights is not None
        with GraphWriter(path, count, len(sort.neighbours), weighted, kinds, not directed) as writer:
            for begin in range(0, count, _CHUNK_NODES):
                end = min(begin + _CHUNK_NODES, count)
                part = slice(starts[begin], starts[end])
                writer.append(
                    sort.degrees[begin:end],
                    sort.neighbours[part],
                    None if sort.weights is None else sort.weights[part],
                    None if sort.types is None else sort.types[part],
                )
            writer.finish(sort.self_loops, sort.duplicates)
        return cls(path)

    def degrees(self) -> Int64Array:
        """How many edges each node has (of a directed graph: that lead away from it), int64 [nodes]."""
        return np.asarray(np.diff(self.offsets), np.int64)

    def neighbours(self, node: int) -> Int64Array:
        """All neighbours of a node in the order of the file, int64 [degree].

        Raises:
          ValueError: There is no such node.
        """
        if not 0 <= node < self.nodes:
            raise ValueError(f"node is {node}; give an id from 0 to {self.nodes - 1}")
        return self.edge_ends[self.offsets[node] : self.offsets[node + 1]].astype(np.int64)

    def communities(self, seed: int = 0) -> Int64Array:
        """A community of each node, int64 [nodes]: nodes that have most of their edges among each other.

        Found once and kept in memory: by label propagation over all edges, a second for a million of them. To
        place samples by, see `NodeSet.samples`.

        Args:
          seed: Others find other communities.

        Returns:
          For each node the number of one of its community's nodes, the same on all machines.
        """
        if seed not in self._communities:
            self._communities[seed] = communities(self.offsets, self.edge_ends, seed)
        return self._communities[seed]

    # --- draws ----------------------------------------------------------------------------------------------

    def sample(
        self, nodes: Any, fanouts: Sequence[Fanout] = (25, 10), seed: Any = 0, batch: Any = 0
    ) -> tuple[tf.Tensor, ...]:
        """Draws neighbours of nodes, neighbours of those, and so on (Hamilton et al. 2017, algorithm 2).

        As in the paper each node has a fixed number of draws, uniform and with replacement; by weight where
        the graph has weights. A node that has no edge (of the type that is drawn) draws itself. The draws are
        a function of the arguments and of the file: the same on every machine, by however many threads, and
        independent for other seeds or batches. The neighbours of node i of hop k are [i * f, (i + 1) * f) of
        hop k + 1.

            dataset.map(lambda nodes, batch: graph.sample(nodes, (25, 10), seed=1, batch=batch))

        Args:
          nodes: Ids, integers [B].
          fanouts: Neighbours to draw of each node, hop by hop, beginning with those of `nodes`. A dict
            {type: count} draws over edges of those types, in its order, and not of others.
          seed: An integer, or a scalar int64 tensor.
          batch: The number of the batch, likewise.

        Returns:
          int64 tensors: [B], [B, f1], [B, f1 * f2], ...: the nodes and what was drawn, hop by hop.

        Raises:
          ValueError: fanouts has no hops, counts below 1, or types that the graph does not have.
          tf.errors.InvalidArgumentError: nodes has an id that is no node; the file is damaged.
        """
        import tensorflow as tf

        from het_tf.inputs.python.native import ops

        draws = self._draws(fanouts)
        given = tf.convert_to_tensor(nodes)
        if not given.dtype.is_integer:
            raise ValueError(f"nodes is {given.dtype.name}; ids of nodes are integers: give int64")
        first = tf.reshape(tf.cast(given, tf.int64), [-1])
        with tf.device("/device:CPU:0"):
            hops = ops.het_sample_neighbours(
                path=self.path,
                nodes=first,
                draws=tf.constant(draws, tf.int64),
                seed=tf.cast(seed, tf.int64),
                batch=tf.cast(batch, tf.int64),
                H=len(fanouts),
            )
        width = 1
        for number, hop in enumerate(hops):
            width *= sum(count for where, _, count in draws if where == number)
            hop.set_shape([first.shape[0], width])
        return (first, *hops)

    def walk(self, nodes: Any, length: int, seed: Any = 0, batch: Any = 0) -> tf.Tensor:
        """Random walks, one from each node.

        Args:
          nodes: Ids, integers [B].
          length: Steps of a walk, 1 or more.
          seed: As of `sample`.
          batch: As of `sample`.

        Returns:
          int64 [B, length]: where each walk is after 1, 2, ... steps. A walk that can not go on stays.

        Raises:
          ValueError, tf.errors.InvalidArgumentError: As of `sample`.
        """
        import tensorflow as tf

        if isinstance(length, bool) or not isinstance(length, numbers.Integral) or length < 1:
            raise ValueError(f"length is {length!r}; give the steps of a walk, an integer of 1 or more")
        return tf.concat(self.sample(nodes, (1,) * int(length), seed, batch)[1:], axis=1)

    def negatives(self, count: int, seed: Any = 0, batch: Any = 0, uniform: bool = False) -> tf.Tensor:
        """Draws nodes by their degree to the power of 0.75: negatives for link prediction.

        Args:
          count: How many, with replacement.
          seed: As of `sample`, from whose draws these are independent.
          batch: As of `sample`.
          uniform: Draw all nodes alike, those without edges too.

        Returns:
          int64 [count].

        Raises:
          ValueError: count is no integer of 1 or more; the graph has no edges, and `uniform` is False.
        """
        import tensorflow as tf

        from het_tf.inputs.python.native import ops

        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
            raise ValueError(f"count is {count!r}; give how many nodes to draw, an integer of 1 or more")
        if not uniform and self.edges == 0:
            raise ValueError(f"{self.path} has no edges to draw nodes by; give uniform=True")
        with tf.device("/device:CPU:0"):
            nodes = ops.het_sample_nodes(
                path=self.path,
                count=tf.constant(count, tf.int64),
                seed=tf.cast(seed, tf.int64),
                batch=tf.cast(batch, tf.int64),
                uniform=uniform,
            )
        nodes.set_shape([count])
        return nodes

    def check_fanouts(self, fanouts: Sequence[Fanout]) -> None:
        """ValueError: fanouts has no hops, counts below 1, or types that the graph does not have."""
        self._draws(fanouts)

    def _draws(self, fanouts: Sequence[Fanout]) -> list[tuple[int, int, int]]:
        """What the op is told: hop, type, count."""
        if isinstance(fanouts, (str, Mapping)) or not isinstance(fanouts, Sequence) or not fanouts:
            raise ValueError(f"fanouts is {fanouts!r}; give the draws of each hop, such as (25, 10)")
        draws: list[tuple[int, int, int]] = []
        for hop, fanout in enumerate(fanouts):
            parts = fanout.items() if isinstance(fanout, Mapping) else [(_ANY_TYPE, fanout)]
            if not parts:
                raise ValueError(f"fanouts is {fanouts!r}: hop {hop} draws nothing; give {{type: count}}")
            for kind, count in parts:
                if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
                    raise ValueError(f"fanouts is {fanouts!r}; give integers of 1 or more")
                if isinstance(fanout, Mapping) and not 0 <= kind < self.types:
                    have = f"0 to {self.types - 1}" if self.types else "none"
                    raise ValueError(f"fanouts is {fanouts!r}, and the types of {self.path} are {have}")
                draws.append((hop, int(kind), int(count)))
        return draws
