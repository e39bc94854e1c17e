"""PubMed: papers, their citations, and their kind of diabetes."""

from __future__ import annotations

import collections
import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.graph import Graph
from het_tf.zoo.data import wheels
from het_tf.zoo.data.graph.nodes import NodeSet, NodeTask

_TRAIN, _VALID = 60, 500


def pubmed() -> NodeTask:
    """Loads PubMed (Sen et al. 2008) in the standard split of Yang et al., ICML 2016: 20 papers a class.

    Returns:
      19,717 papers, 44,324 citations (without directions and three self loops), 500 features (TF-IDF of
      words, each row of length 1), 3 classes; 60 papers train, 500 valid, 1,000 test.

    Raises:
      RuntimeError: The data can be neither found nor downloaded; the message has the command that gets it.
    """
    paths = dict(zip(wheels.PUBMED, wheels.fetch_all(list(wheels.PUBMED.values())), strict=True))
    parts = {name: _unpickle(path.read_bytes()) for name, path in paths.items() if name != "test.index"}
    test = np.loadtxt(paths["test.index"], dtype=np.int64)
    place = np.concatenate([np.arange(len(parts["ally"])), test])  # rows of "all", then of the test
    features = np.zeros((len(place), parts["allx"].shape[1]), np.float32)
    features[place] = np.concatenate([parts["allx"].dense(), parts["tx"].dense()])
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    labels = np.zeros(len(place), np.int64)
    labels[place] = np.concatenate([parts["ally"], parts["ty"]]).argmax(axis=1)
    edges = [(node, other) for node, others in parts["graph"].items() for other in others]
    graph = graph_file("pubmed-1", np.array(edges, np.int64), len(place))
    sets = [np.arange(_TRAIN), np.arange(_TRAIN, _TRAIN + _VALID), np.sort(test)]
    train, valid, tested = (NodeSet(ids, labels[ids]) for ids in sets)
    return NodeTask("pubmed", graph, 3, False, train, valid, tested, features, "kind of diabetes")


def graph_file(name: str, edges: npt.NDArray[np.int64], nodes: int) -> Graph:
    """Returns the graph of a data set; writes it to the cache if it is missing.

    Raises:
      RuntimeError: The cache cannot be written.
    """
    path = wheels.cache_dir() / "graphs" / f"{name}.graph"
    try:
        return Graph.open(path)
    except (OSError, ValueError):  # missing or damaged
        pass
    with wheels.writing(path):
        return Graph.from_edges(path, edges, nodes)


class _SparseRows:
    """The pickled state of a scipy.sparse.csr_matrix."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.shape: tuple[int, int] = state["_shape"]
        self._data, self._columns, self._ends = state["data"], state["indices"], state["indptr"]

    def dense(self) -> npt.NDArray[np.float32]:
        result = np.zeros(self.shape, np.float32)
        result[np.repeat(np.arange(self.shape[0]), np.diff(self._ends)), self._columns] = self._data
        return result


class _Unpickler(pickle.Unpickler):
    """Makes only arrays, sparse matrices and dicts of lists."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("scipy.sparse.csr", "csr_matrix"):
            return _SparseRows
        if (module, name) == ("collections", "defaultdict"):
            return collections.defaultdict
        if name in ("ndarray", "dtype", "_reconstruct") and module.split(".")[0] == "numpy":
            return super().find_class(module, name)
        if (module, name) == ("__builtin__", "list"):
            return list
        raise pickle.UnpicklingError(f"{module}.{name} is not part of this data")


def _unpickle(content: bytes) -> Any:
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()
