"""Writes the file of a graph (het_tf/inputs/graph/graph_format.h) node by node, with little memory.

    with GraphWriter(path, nodes=3, edges=4) as writer:
        writer.append(degrees=[2, 1, 1], neighbours=[1, 2, 0, 0])
        writer.finish()

The file gets its name when it is complete and on disk, so readers never see half of one. A writer that fails,
for example on a full disk, leaves an existing file unchanged.
"""

from __future__ import annotations

import os
import struct
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from het_tf.python.files import local_path, pair_of, rename

_MAGIC = b"HETGRAPH"
_VERSION = 1
_ALIGN = 64
_WEIGHTED, _TYPED, _SYMMETRIC = 1, 2, 4
# magic, version, header bytes | file bytes, nodes, edges | neighbour bytes, flags, types, 0 |
# begins of offsets, popularity, neighbours, weights, types | self loops, duplicates, isolated | zeros
_HEADER = struct.Struct("<8sII3Q4I5Q3Q64s")
_CHECKSUM = struct.Struct("<Q")
_HEADER_BYTES = 192
assert _HEADER.size + _CHECKSUM.size == _HEADER_BYTES

MOST_TYPES = 256
POPULARITY_POWER = 0.75
"""Exponent of the degree in the distribution of negatives (Mikolov et al. 2013; Hamilton et al. 2017)."""


class GraphWriter:
    """Writes a graph into a file.

    Args:
      path: The file; an existing one is replaced when this one is complete.
      nodes: Number of nodes, 1 or more; ids are in [0, nodes).
      edges: Final number of edges, counting both directions.
      weighted: Whether edges have weights.
      types: Number of types of edges, at most 256; 0: none.
      symmetric: Whether every edge comes in both directions; kept in the header.

    Raises:
      OSError: The file cannot be made, or there is no room for it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: int,
        edges: int,
        weighted: bool = False,
        types: int = 0,
        symmetric: bool = False,
    ) -> None:
        self.path = local_path("path", path)
        self.nodes, self.edges, self.types = nodes, edges, types
        self._neighbour = np.dtype("<u4" if nodes <= 2**32 else "<i8")
        self._flags = _WEIGHTED * weighted | _TYPED * (types > 0) | _SYMMETRIC * symmetric
        self._written_nodes = self._written_edges = self._isolated = 0
        self._popularity = 0.0
        sections = [8 * (nodes + 1), 8 * nodes, self._neighbour.itemsize * edges]
        sections += [8 * edges * weighted, edges * (types > 0)]
        self._at: list[int] = []  # begins of sections
        self._bytes = _HEADER_BYTES
        for size in sections:
            self._at.append(self._bytes if size or len(self._at) < 3 else 0)
            self._bytes += -(-size // _ALIGN) * _ALIGN
        self._beside, self._target = pair_of(self.path)
        self._file = os.open(self._beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.posix_fallocate(self._file, 0, self._bytes)  # a full disk fails here
            self._write(self._at[0], np.zeros(1, "<i8"))
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.discard()

    def append(
        self,
        degrees: npt.ArrayLike,
        neighbours: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        types: npt.ArrayLike | None = None,
    ) -> None:
        """Adds the next nodes with all of their edges.

        Args:
          degrees: int64 [n], degrees of the next n nodes.
          neighbours: int64 [sum(degrees)], the other ends of their edges, node by node; within a node sorted
            by type.
          weights: float64 [sum(degrees)], above 0; if edges have weights.
          types: uint8 [sum(degrees)]; if edges have types.

        Raises:
          ValueError: There are more nodes or edges than announced, or lengths differ.
          OSError: The file cannot be written.
        """
        degree = np.asarray(degrees, np.int64)
        ends = np.cumsum(degree)
        count = int(ends[-1]) if len(ends) else 0
        other = np.asarray(neighbours)
        node, edge = self._written_nodes, self._written_edges
        if node + len(degree) > self.nodes or edge + count > self.edges or len(other) != count:
            raise ValueError(
                f"degrees and neighbours are those of {node + len(degree):,} nodes and "
                f"{edge + len(other):,} edges so far, but the file is made for {self.nodes:,} and "
                f"{self.edges:,}; give as many as it was made for, and sum(degrees) neighbours"
            )
        self._write(self._at[0] + 8 * (node + 1), (ends + edge).astype("<i8"))
        popularity = self._popularity + np.cumsum(degree.astype(np.float64) ** POPULARITY_POWER)
        self._write(self._at[1] + 8 * node, popularity.astype("<f8"))
        self._write(self._at[2] + self._neighbour.itemsize * edge, other.astype(self._neighbour))
        if self._flags & _WEIGHTED:
            sums = np.cumsum(np.asarray(weights, np.float64))
            before = np.concatenate([[0.0], sums])[ends - degree]  # of the earlier nodes
            self._write(self._at[3] + 8 * edge, (sums - np.repeat(before, degree)).astype("<f8"))
        if self._flags & _TYPED:
            self._write(self._at[4] + edge, np.asarray(types, np.uint8))
        self._written_nodes += len(degree)
        self._written_edges += count
        self._isolated += int((degree == 0).sum())
        self._popularity = float(popularity[-1]) if len(popularity) else self._popularity

    def finish(self, self_loops: int = 0, duplicates: int = 0) -> None:
        """Completes the file and gives it its name.

        Args:
          self_loops: Number of edges from a node to itself that were left out; kept in the header.
          duplicates: Number of edges that were merged into others; kept in the header.

        Raises:
          ValueError: Nodes or edges are missing.
          OSError: The file cannot be written.
        """
        if (self._written_nodes, self._written_edges) != (self.nodes, self.edges):
            raise ValueError(
                f"the graph has {self._written_nodes:,} of {self.nodes:,} nodes and {self._written_edges:,} "
                f"of {self.edges:,} edges; append the others before finish()"
            )
        header = _HEADER.pack(
            *(_MAGIC, _VERSION, _HEADER_BYTES, self._bytes, self.nodes, self.edges),
            *(self._neighbour.itemsize, self._flags, self.types, 0, *self._at),
            *(self_loops, duplicates, self._isolated, bytes(64)),
        )
        self._write(0, np.frombuffer(header + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(header)), np.uint8))
        rename(self._beside, self._target)
        self.discard()

    def discard(self) -> None:
        """Removes the file unless it was finished."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._beside.unlink(missing_ok=True)

    def _write(self, offset: int, values: npt.NDArray[Any]) -> None:
        rest = memoryview(np.ascontiguousarray(values).view(np.uint8).reshape(-1))  # type: ignore[arg-type]
        while len(rest):
            done = os.pwrite(self._file, rest, offset)
            rest, offset = rest[done:], offset + done
