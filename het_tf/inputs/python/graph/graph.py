"""`Graph`: a graph in a file, and draws of its neighbours (public as `het_tf.inputs.Graph`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.communities import communities
from het_tf.inputs.python.graph.edges import sort_edges
from het_tf.inputs.python.graph.writer import GraphWriter
from het_tf.python.checks import is_whole, whole
from het_tf.python.files import local_path

if TYPE_CHECKING:
    import tensorflow as tf

Int64Array = npt.NDArray[np.int64]
Fanout = int | Mapping[int, int]

_CHUNK_NODES = 1 << 20
_ANY_TYPE = -1


class Graph:
    """A graph in a memory-mapped file; a TensorFlow op draws neighbours of nodes.

        graph = Graph.from_edges("friends.graph", edges)             # int64 [E, 2]
        batch, friends, theirs = graph.sample([7, 9], (25, 10))      # [2], [2, 25], [2, 250]

    All graphs of a process, and all processes of a machine, share one copy of a file, whose pages
    come into memory as they are read. To replace a file in use, write a new one to its path;
    never truncate or overwrite it in place.

    Attributes:
      path: Absolute path of the file.
      nodes: Number of nodes; ids are int64 in [0, nodes).
      edges: Number of edges in the file; an undirected graph has each in both directions.
      directed: Whether edges have a direction.
      weighted: Whether edges have weights; draws are proportional to them.
      types: Number of types of edges; 0: none.
      isolated: Number of nodes without edges.
      self_loops: Number of edges from a node to itself that were left out of the file.
      duplicates: Number of edges that were merged into an equal one.
      offsets: int64 [nodes + 1], mapped: the edges of node v are [offsets[v], offsets[v + 1]).
      edge_ends: uint32 or int64 [edges], mapped: the neighbour that each edge leads to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """As `open`."""
        from het_tf.inputs.python import native

        self.path = str(local_path("path", path).absolute())
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
        """Opens the file of a graph. Reads and checks its header and offsets, 8 bytes a node.

        Args:
          path: A file written by `from_edges` or a `GraphWriter`.

        Raises:
          FileNotFoundError: It does not exist.
          OSError: It cannot be read.
          ValueError: It is not a graph, truncated or damaged, or of another version.
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

        Leaves out edges from a node to itself: GraphSAGE uses a node's own vector beside those of its
        neighbours anyway. Merges repeated edges (in an undirected graph in either direction) into one with
        the sum of their weights; edges of different types are different. Both are counted, in
        `self_loops` and `duplicates`. Takes memory for some four copies of the edges; a larger graph
        is written in pieces by `GraphWriter`.

        Args:
          path: The file; an existing one is replaced once the new one is complete.
          edges: Integers [E, 2]: the two ends of each, ids from 0. Directed: from the first to the second,
            and a node's edges lead to its neighbours.
          nodes: Number of nodes; None: the largest id plus one. Nodes without edges are legal.
          weights: Floats [E], finite and above 0: neighbours are drawn in proportion. None: uniformly.
          types: Integers [E], 0 to 255, the type of each edge. None: no types.
          directed: False: each edge goes both ways.

        Raises:
          ValueError: Ids are not integers, negative or not below `nodes`; weights or types are invalid.
          OSError: The file cannot be written; an existing file at `path` is unchanged.
        """
        sort = sort_edges(edges, nodes, weights, types, directed)
        count = len(sort.degrees)
        starts = np.concatenate([[0], np.cumsum(sort.degrees)])
        types = sort.columns.get("type")
        kinds = 0 if types is None else int(types.max(initial=0)) + 1
        with GraphWriter(
            path, count, int(starts[-1]), "weight" in sort.columns, kinds, not directed
        ) as writer:
            for begin in range(0, count, _CHUNK_NODES):
                end = min(begin + _CHUNK_NODES, count)
                part = {name: one[starts[begin] : starts[end]] for name, one in sort.columns.items()}
                writer.append(sort.degrees[begin:end], part["target"], part.get("weight"), part.get("type"))
            writer.finish(sort.self_loops, sort.duplicates)
        return cls(path)

    def degrees(self) -> Int64Array:
        """Returns the number of each node's edges (outgoing, in a directed graph), int64 [nodes]."""
        return np.asarray(np.diff(self.offsets), np.int64)

    def neighbours(self, node: int) -> Int64Array:
        """Returns all neighbours of a node in the order of the file, int64 [degree].

        Raises:
          ValueError: The node does not exist.
        """
        if not 0 <= node < self.nodes:
            raise ValueError(f"node is {node}; give an id from 0 to {self.nodes - 1}")
        return self.edge_ends[self.offsets[node] : self.offsets[node + 1]].astype(np.int64)

    def communities(self, seed: int = 0) -> Int64Array:
        """Returns a community of each node, int64 [nodes]: nodes with most of their edges among each other.

        Found once by label propagation over all edges, a second for a million of them, and kept in memory.
        To place samples by it, give them the field `communities[node]`.

        Args:
          seed: Different seeds find different communities.

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

        As in the paper each node has a fixed number of draws, uniform and with replacement; by weight if
        the graph has weights. A node without edges (of the drawn type) draws itself. The draws are
        a function of the arguments and of the file: equal on every machine and for any number of threads, and
        independent for different seeds or batches. The neighbours of node i of hop k are [i * f, (i + 1) * f)
        of hop k + 1.

            dataset.map(lambda nodes, batch: graph.sample(nodes, (25, 10), seed=1, batch=batch))

        Args:
          nodes: Ids, integers [B].
          fanouts: Neighbours to draw of each node, hop by hop, beginning with those of `nodes`. A dict
            {type: count} draws only over edges of those types, in its order.
          seed: An integer, or a scalar int64 tensor.
          batch: The number of the batch, likewise.

        Returns:
          int64 tensors: [B], [B, f1], [B, f1 * f2], ...: the nodes and the drawn ones, hop by hop.

        Raises:
          ValueError: fanouts has no hops, counts below 1, or types that the graph lacks.
          tf.errors.InvalidArgumentError: nodes has an id outside the graph; the file is damaged.
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
          seed: As in `sample`.
          batch: As in `sample`.

        Returns:
          int64 [B, length]: the node of each walk after 1, 2, ... steps. A walk at a dead end stays there.

        Raises:
          ValueError, tf.errors.InvalidArgumentError: As in `sample`.
        """
        import tensorflow as tf

        length = whole("length", length, what="the steps of a walk")
        return tf.concat(self.sample(nodes, (1,) * length, seed, batch)[1:], axis=1)

    def negatives(self, count: int, seed: Any = 0, batch: Any = 0, uniform: bool = False) -> tf.Tensor:
        """Draws nodes by their degree to the power of 0.75: negatives for link prediction.

        Args:
          count: Number of draws, with replacement.
          seed: As in `sample`, whose draws are independent of these.
          batch: As in `sample`.
          uniform: Draw all nodes uniformly, including those without edges.

        Returns:
          int64 [count].

        Raises:
          ValueError: count is not an integer of 1 or more; the graph has no edges, and `uniform` is False.
        """
        import tensorflow as tf

        from het_tf.inputs.python.native import ops

        count = whole("count", count, what="the number of nodes to draw")
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

    def _draws(self, fanouts: Sequence[Fanout]) -> list[tuple[int, int, int]]:
        """Returns the arguments of the op: hop, type, count."""
        if isinstance(fanouts, (str, Mapping)) or not isinstance(fanouts, Sequence) or not fanouts:
            raise ValueError(f"fanouts is {fanouts!r}; give the draws of each hop, such as (25, 10)")
        draws: list[tuple[int, int, int]] = []
        for hop, fanout in enumerate(fanouts):
            parts = fanout.items() if isinstance(fanout, Mapping) else [(_ANY_TYPE, fanout)]
            if not parts:
                raise ValueError(f"fanouts is {fanouts!r}: hop {hop} draws nothing; give {{type: count}}")
            for kind, count in parts:
                if not is_whole(count, 1):
                    raise ValueError(f"fanouts is {fanouts!r}; give integers of 1 or more")
                if isinstance(fanout, Mapping) and not 0 <= kind < self.types:
                    have = f"0 to {self.types - 1}" if self.types else "none"
                    raise ValueError(f"fanouts is {fanouts!r}, but the types of {self.path} are {have}")
                draws.append((hop, int(kind), int(count)))
        return draws
