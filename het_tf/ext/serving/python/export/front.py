"""The function `het_tf.export`: checks arguments, traces the model, writes it."""

import importlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from het_tf._version import __version__
from het_tf.ext.serving.python.export import signatures
from het_tf.ext.serving.python.export.formats import Format, Portable, name_of
from het_tf.ext.serving.python.export.replace import replace, staging_of
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python import show
from het_tf.python.files import local_path
from het_tf.python.session import collective, native, settings
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state
from het_tf.python.table.table import flush

keras = tf.keras

RECORD = "assets.extra/het_tf.json"
"""The record in each export, for `het_tf.serving.check` and for people."""


@dataclass(frozen=True)
class TableSummary:
    """One table of an export.

    Attributes:
      name, namespace: Name and namespace of the table.
      dim: Floats of a row.
      rows: Number of rows in the export.
      dropped: Number of rows left out by `min_count` and `max_age`.
      bytes: Bytes of the rows, without index.
    """

    name: str
    namespace: str
    dim: int
    rows: int
    dropped: int
    bytes: int


@dataclass(frozen=True, repr=False)
class Export:
    """The summary of an export; prints as a table.

    Attributes:
      path: The SavedModel.
      format: The argument of `export`.
      signatures: Names of the signatures.
      tables: One summary for each table.
    """

    path: Path
    format: Format
    signatures: list[str]
    tables: list[TableSummary]

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {name_of(self.format)}, {self.format.row_dtype} rows, "
            f"signatures {', '.join(self.signatures)}"
        ]
        for table in self.tables:
            text = f"{table.rows:,} rows of {table.dim}, {show.size(table.bytes)}"
            if table.dropped:
                text += f"; {table.dropped:,} rows left out"
            lines.append(f"  {table.name}: {text}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Export({str(self.path)!r}, format={name_of(self.format)}, {len(self.tables)} tables)"


def export(
    model: Any,
    path: str | os.PathLike[str],
    format: Format = Portable(),  # noqa: B008  (frozen)
    *,
    signatures: Any = None,
    overwrite: bool = False,
    verbose: bool = True,
) -> Export | None:
    """Writes a model with its tables as a SavedModel that answers like `model(x, training=False)`.

        het_tf.export(model, "models/clicks/1")
        tf.saved_model.load("models/clicks/1").signatures["serving_default"](item=..., user=...)
        het_tf.export(model, "models/clicks/2", het_tf.serving.Native(row_dtype="int8"))

    It sends pending updates of caches first, and leaves out optimizer slots. Under Horovod every rank must
    call it: all send their pending updates, rank 0 writes, and all return when the export exists.

    Args:
      model: A built Keras model with layers of het_tf. It does not change.
      path: Path of the SavedModel, a local directory that must not exist; its parents are made. It gets its
        name when everything is written: readers never see a part of it.
      format: `het_tf.serving.Portable()`: for unmodified TensorFlow. `Native()`: rows in mapped files, which
        can follow training. Each has its own arguments, such as the type of stored rows and the rows to
        leave out.
      signatures: Its signatures. None: "serving_default" with the model's inputs, by their names. Else
        a dict from names to: the inputs of the model (`tf.TensorSpec` in the structure of its
        inputs), or a batch of them, or a tf.function with an input_signature that calls the model and
        returns a dict of tensors.
      overwrite: Whether a SavedModel at the path may be replaced.
      verbose: Whether to print a summary.

    Returns:
      The summary; None on other ranks than 0.

    Raises:
      TypeError: model is not a Keras model, or format no format.
      ValueError: The model has no weights yet, or no layers of het_tf; it does not fit the signatures.
      FileExistsError: The path exists.
      OSError: The path cannot be written; it does not exist then.
      Further errors, as the format says.
    """
    writes = settings.workers().rank == 0
    with collective.together("export_check", "export"):
        layers = _check(model, format)
        target = _check_path(path, overwrite) if writes else Path()
    if settings.workers().size > 1:
        flush(all_ranks=True)
    result: Export | None = None
    with collective.together("export", "export"):
        for namespace in dict.fromkeys(layer.namespace for layer in layers):
            native.call("HetRefresh", namespace)  # every rank continues with the exported rows
        if writes:
            result = _export(model, target, format, signatures, _sources(layers, format), overwrite)
    if verbose and result is not None:
        print(result)
    return result


def _export(
    model: Any,
    target: Path,
    format: Format,
    wanted: Any,
    sources: list[Source],
    overwrite: bool,
) -> Export:
    module_of_backend = importlib.import_module(f"het_tf.ext.serving.python.export.{name_of(format)}")
    with staging_of(target) as (staging, work):
        backend = module_of_backend.Backend(sources, format, work)
        functions = signatures.functions(model, wanted, backend)
        module = tf.Module()
        module.backend = backend.trackables()
        module.captured = _captured(model, functions.values())
        _check_ops(format, functions)
        tf.saved_model.save(module, str(staging), signatures=functions)
        sizes = backend.row_bytes()
        tables = [
            TableSummary(one.table.name, one.namespace, one.table.dim, one.kept, one.dropped, sizes[one.key])
            for one in sources
        ]
        summary = Export(target, format, list(functions), tables)
        del backend, module, functions
        _record(staging, summary)
        replace(staging, target, overwrite)
    return summary


# --- checks -------------------------------------------------------------------------------------------------


def _check(model: Any, format: Format) -> list[Any]:
    """Checks arguments. Returns the layers of het_tf in the model."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {type(model).__name__}; give a built keras.Model")
    if not isinstance(format, Format):
        raise TypeError(f"format is {format!r}; give het_tf.serving.Portable() or Native()")
    if not model.built:
        raise ValueError(
            f"model {model.name!r} has no weights yet; call it on a batch first, or give it a keras.Input"
        )
    layers = layer_state.layers_of(model)
    if not layers:
        raise ValueError(f"model {model.name!r} has no layers of het_tf; use Keras' model.export(path)")
    return layers


def _check_path(path: Any, overwrite: bool) -> Path:
    target = local_path("path", path).absolute()
    if os.path.lexists(target):
        if not overwrite:
            raise FileExistsError(f"{target} exists; give another path, or overwrite=True to replace it")
        if not (target / "saved_model.pb").is_file():
            raise FileExistsError(
                f"{target} exists and is not a SavedModel; overwrite=True replaces only these; give "
                "another path"
            )
    return target


def _sources(layers: Sequence[Any], format: Format) -> list[Source]:
    """Returns each table of the layers once."""
    since = None if format.max_age is None else time.time() - format.max_age
    found = {
        (layer.namespace, table.name): Source(table, layer.namespace, format.min_count, since)
        for layer in layers
        for table in layer.tables
    }
    return list(found.values())


def _check_ops(format: Format, functions: dict[str, Any]) -> None:
    """Refuses signatures that read live tables: they were not traced with the backend."""
    allowed = set() if isinstance(format, Portable) else {"HetServe", "HetFollowDense"}
    for name, function in functions.items():
        graph = function.graph.as_graph_def()
        nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
        foreign = {node.op for node in nodes if node.op.startswith("Het")} - allowed
        if foreign:
            raise RuntimeError(
                f"signature {name!r} reads the live tables (ops {sorted(foreign)}): the model calls a "
                "tf.function that was traced before; take @tf.function off the model's methods (fit, predict "
                "and export compile the model themselves)"
            )


def _captured(model: Any, functions: Any) -> list[Any]:
    """Returns the variables of the functions, and the tables of the model's preprocessing layers."""
    found: dict[int, Any] = {}
    for function in functions:
        found |= {id(variable): variable for variable in function.variables}
    for layer in model._flatten_layers():
        for value in vars(layer).values():
            if isinstance(value, tf.saved_model.experimental.TrackableResource):
                found[id(value)] = value
    return list(found.values())


def _record(staging: Path, summary: Export) -> None:
    record = {
        "format": name_of(summary.format),
        "row_dtype": summary.format.row_dtype,
        "unknown": summary.format.unknown,
        "signatures": summary.signatures,
        "het_tf": __version__,
        "tensorflow": tf.__version__,
        "tables": [vars(table) for table in summary.tables],
    }
    file = staging / RECORD
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
