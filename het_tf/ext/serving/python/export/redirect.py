"""Redirects a model's lookups to a backend while the model is traced for serving.

The model's own code runs as always, with its combiners, ragged ids, weights and masks. Only the op at the
bottom differs:

    EmbeddingCollection.call ─► layer/source.py ─► redirect.lookup ─► backend.lookup

so a backend does not handle features: it maps int64 ids to float32 rows.
"""

import abc
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from het_tf.ext.serving.python.export.formats import Format
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.layer import source
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state
from het_tf.python.table.config import FeatureConfig, TableConfig


@dataclass(frozen=True)
class Request:
    """One feature's part of a lookup.

    Attributes:
      table: The table to read.
      namespace: The namespace of the table.
      ids: int64 tensor of any shape, known or not; may be empty, may hold any id.
    """

    table: TableConfig
    namespace: str
    ids: Any

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, which identify a table."""
        return self.namespace, self.table.name


class Backend(abc.ABC):
    """Answers the lookups of one exported model.

    Every export makes one, and uses it in this order:

        backend = Backend(sources, format, directory)
        tf.function, once for each signature: with redirect.to(backend, model): model(...)  # around, lookup
        module.backend = backend.trackables()
        tf.saved_model.save(module, path)

    Caches are flushed first. An exception at any point ends the export, and leaves nothing at the
    path.

    Args:
      sources: One for each table of the model. `source.read(directory)` returns the rows.
      format: The user's, of the backend's own class.
      directory: Empty, on the file system of the export, removed after it: for files that become assets
        (`tf.saved_model.Asset` copies them into the SavedModel).
    """

    def __init__(self, sources: Sequence[Source], format: Format, directory: Path) -> None:
        self.sources = {source.key: source for source in sources}
        self.format = format
        self.directory = directory

    @abc.abstractmethod
    def lookup(self, requests: Sequence[Request]) -> list[Any]:
        """Returns the rows of all features of a layer's call, in order, as ops in the traced graph.

        Args:
          requests: For tables of the sources; the batch dimension of their ids is unknown.

        Returns:
          For each float32 of shape `ids.shape + [dim]`, on the CPU. An id without a row has its initial row,
          or zeros, by `format.unknown`.
        """

    def around(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Returns a context that is open while the model is called in a traced function."""
        return contextlib.nullcontext()

    def trackables(self) -> Any:
        """Returns variables, assets and tables of the ops of `lookup`: a trackable, a dict or a list."""
        return {}

    def row_bytes(self) -> dict[tuple[str, str], int]:
        """Returns the bytes of each table's rows in the export, for the summary."""
        return {}


def join(ids: Sequence[Any]) -> tuple[Any, Any]:
    """Joins several tensors of ids.

    Returns:
      The ids: a single tensor unchanged, else int64 [n]; and a function from their rows and dim to a list of
      one tensor of rows per tensor of ids, of shape `ids.shape + [dim]`.
    """
    if len(ids) == 1:
        return ids[0], lambda rows, dim: [rows]
    flat = [one if one.shape.rank == 1 else tf.reshape(one, [-1]) for one in ids]

    def split(rows: Any, dim: int) -> list[Any]:
        parts = tf.split(rows, [tf.size(one) for one in flat], num=len(flat))
        return [
            part if one.shape.rank == 1 else tf.reshape(part, tf.concat([tf.shape(one), [dim]], 0))
            for part, one in zip(parts, ids, strict=True)
        ]

    return tf.concat(flat, 0), split


@contextlib.contextmanager
def to(backend: Backend, model: Any) -> Iterator[None]:
    """While open, layers called read from the backend, and do not train.

    Enter it inside the traced function, not around the `tf.function`.
    """
    root = _graph()

    def read(of: source.Read) -> list[Any]:
        _refuse_inner_function(root)
        return lookup(backend, layer_state.of(of.layer).features.flat, of.layer.namespace, of.ids)

    with backend.around(model), source.reading_from(read):
        yield


def _refuse_inner_function(root: Any) -> None:
    """Checks that the lookup is made in the function `root`.

    Raises:
      RuntimeError: The layer is called inside a `tf.function` of the model, which would keep the
        exported rows for later calls, outside any export.
    """
    graph = _graph()
    while graph is not None and graph is not root:
        if type(graph).__name__ == "FuncGraph":  # the bodies of cond and while have other types
            raise RuntimeError(
                f"the embeddings are called inside {graph.name!r}, a tf.function of the model's own, "
                "which would go on reading the exported rows after the export; take @tf.function off (fit, "
                "predict and export compile the model themselves)"
            )
        graph = getattr(graph, "outer_graph", None)


def _graph() -> Any:
    """Returns the function being traced, or None."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def lookup(
    backend: Backend, features: Sequence[FeatureConfig], namespace: str, ids: Sequence[Any]
) -> list[Any]:
    """As `ops.lookup`, from the backend: returns one float32 tensor `ids.shape + [dim]` per feature.

    Padding ids read zeros.
    """
    requests = [Request(feature.table, namespace, one) for feature, one in zip(features, ids, strict=True)]
    results = []
    for feature, one, rows in zip(features, ids, backend.lookup(requests), strict=True):
        if feature.padding_id is not None:
            rows = tf.where(tf.equal(one, feature.padding_id)[..., None], tf.zeros([], rows.dtype), rows)
        rows.set_shape([*one.shape, feature.table.dim])
        results.append(rows)
    return results
