"""The function `het_tf.export`: checks its arguments, traces the model, writes and publishes it."""

import importlib
import inspect
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from het_tf._version import __version__
from het_tf.ext.serving.python.export import quantise, redirect, signatures
from het_tf.ext.serving.python.export.publish import publish, staging_of
from het_tf.ext.serving.python.export.rows import Filter, Source
from het_tf.python import show
from het_tf.python.files import local_path
from het_tf.python.session import collective, native, settings
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state
from het_tf.python.table.table import flush

keras = tf.keras

FORMATS = ("portable", "native", "online")
UNKNOWN = ("initial", "zeros")
RECORD = "assets.extra/het_tf.json"
"""The record in each export, for `het_tf.serving.check` and for people."""


@dataclass(frozen=True)
class TableSummary:
    """One table of an export.

    Attributes:
      name, namespace: Name and namespace of the table.
      dim: Floats of a row.
      rows: Number of rows in the export; None: it reads them elsewhere.
      dropped: Number of rows left out by `min_count` and `max_age`.
      bytes: Bytes of the rows, without index; None: it reads them elsewhere.
    """

    name: str
    namespace: str
    dim: int
    rows: int | None
    dropped: int
    bytes: int | None


@dataclass(frozen=True, repr=False)
class Export:
    """The summary of an export; prints as a table.

    Attributes:
      path: The SavedModel.
      format, row_dtype, unknown: The arguments of `export`.
      signatures: Names of the signatures.
      tables: One summary for each table.
    """

    path: Path
    format: str
    row_dtype: str
    unknown: str
    signatures: list[str]
    tables: list[TableSummary]

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.format}, {self.row_dtype} rows, signatures {', '.join(self.signatures)}"
        ]
        for table in self.tables:
            if table.rows is None:
                text = "read from the server"
            else:
                text = f"{table.rows:,} rows of {table.dim}, {show.size(table.bytes or 0)}"
                if table.dropped:
                    text += f"; {table.dropped:,} rows left out"
            lines.append(f"  {table.name}: {text}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Export({str(self.path)!r}, format={self.format!r}, {len(self.tables)} tables)"


def export(
    model: Any,
    path: str | os.PathLike[str],
    format: Literal["portable", "native", "online"] = "portable",
    *,
    signatures: Any = None,
    row_dtype: Literal["float32", "float16", "bfloat16", "int8"] = "float32",
    unknown: Literal["initial", "zeros"] = "initial",
    min_count: int = 0,
    max_age: float | None = None,
    overwrite: bool = False,
    verbose: bool = True,
    **options: Any,
) -> Export | None:
    """Writes a model with its tables as a SavedModel that answers like `model(x, training=False)`.

        het_tf.export(model, "models/clicks/1")
        tf.saved_model.load("models/clicks/1").signatures["serving_default"](item=..., user=...)

    It sends pending updates of caches first, and leaves out optimizer slots. Under Horovod every rank must
    call it: all send their pending updates, rank 0 writes, and all return when the export exists.

    Args:
      model: A built Keras model with layers of het_tf. It does not change.
      path: Path of the SavedModel, a local directory that must not exist; its parents are made. It gets its
        name when everything is written: readers never see a part of it.
      format: "portable": TensorFlow's own ops and variables, for unmodified TensorFlow Serving,
        `saved_model_cli` and the C API. "native": rows in a memory-mapped file that the serving processes
        of a machine share; needs the library of het_tf. With follow=`het_tf.serving.Follow(address)` its rows
        and dense weights follow training while it is served. "online": reads the parameter server.
      signatures: Its signatures. None: "serving_default" with the model's inputs, by their names. Else
        a dict from names to: the inputs of the model (`tf.TensorSpec` in the structure of its
        inputs), or a batch of them, or a tf.function with an input_signature that calls the model and
        returns a dict of tensors.
      row_dtype: Type of stored rows: "float32", "float16", "bfloat16", or "int8" (with a scale for each row).
      unknown: The row of an id without one: "initial": its initial row, as in training; "zeros".
      min_count: Leaves out rows with fewer updates than this, 0 to 65535.
      max_age: Leaves out rows whose last update is longer ago than this, in seconds. None: no limit.
      overwrite: Whether a SavedModel at the path may be replaced.
      verbose: Whether to print a summary.
      **options: Options of the format, see docs/serving.md.

    Returns:
      The summary; None on other ranks than 0.

    Raises:
      TypeError: model is not a Keras model; the format lacks an option.
      ValueError: The model has no weights yet, or no layers of het_tf; an argument is out of range.
      FileExistsError: The path exists.
      OSError: The path cannot be written; it does not exist then.
    """
    asked = redirect.Options(row_dtype, unknown)
    writes = settings.workers().rank == 0
    with collective.together("export_check", "export"):
        layers = _check(model, format, asked, min_count, max_age)
        _check_options(format, options)
        target = _check_path(path, overwrite) if writes else Path()
    if settings.workers().size > 1:
        flush(all_ranks=True)
    result: Export | None = None
    with collective.together("export", "export"):
        for namespace in dict.fromkeys(layer.namespace for layer in layers):
            native.call("HetRefresh", namespace)  # every rank continues with the exported rows
        if writes:
            sources = _sources(layers, Filter(min_count, max_age))
            result = _export(model, target, format, signatures, asked, sources, overwrite, options)
    if verbose and result is not None:
        print(result)
    return result


def _export(
    model: Any,
    target: Path,
    format: str,
    wanted: Any,
    asked: redirect.Options,
    sources: list[Source],
    overwrite: bool,
    options: dict[str, Any],
) -> Export:
    kind = _backend(format)
    with staging_of(target) as (staging, work):
        backend = kind(sources, asked, work, **options)
        functions = signatures.functions(model, wanted, backend)
        module = tf.Module()
        module.backend = backend.trackables()
        module.captured = _captured(model, functions.values())
        _check_ops(format, functions)
        tf.saved_model.save(module, str(staging), signatures=functions)
        sizes = backend.row_bytes()
        summary = Export(
            target,
            format,
            asked.row_dtype,
            asked.unknown,
            list(functions),
            [
                TableSummary(
                    source.table.name,
                    source.namespace,
                    source.table.dim,
                    source.kept,
                    source.dropped,
                    None if sizes is None else sizes.get(source.key),
                )
                for source in sources
            ],
        )
        details = backend.record()
        del backend, module, functions
        _record(staging, summary, details)
        publish(staging, target, overwrite)
    return summary


# --- checks -------------------------------------------------------------------------------------------------


def _check(model: Any, format: str, asked: redirect.Options, min_count: Any, max_age: Any) -> list[Any]:
    """Checks arguments. Returns the layers of het_tf in the model."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {type(model).__name__}; give a built keras.Model")
    for argument, value, known in (
        ("format", format, FORMATS),
        ("row_dtype", asked.row_dtype, quantise.ROWS),
        ("unknown", asked.unknown, UNKNOWN),
    ):
        if value not in known:
            raise ValueError(f"{argument} is {value!r}; give one of {known}")
    if isinstance(min_count, bool) or not isinstance(min_count, int) or not 0 <= min_count <= 65535:
        raise ValueError(f"min_count is {min_count!r}; give a number of updates from 0 to 65535")
    if max_age is not None and not (
        isinstance(max_age, (int, float)) and max_age is not True and max_age > 0
    ):
        raise ValueError(f"max_age is {max_age!r}; give seconds > 0, or None for no limit")
    if format == "online" and (asked.row_dtype != "float32" or min_count or max_age is not None):
        raise ValueError(
            "format is 'online', which exports no rows; row_dtype, min_count and max_age need 'portable' "
            "or 'native' (max_lag bounds the age of a served row)"
        )
    if not model.built:
        raise ValueError(
            f"model {model.name!r} has no weights yet; call it on a batch first, or give it a keras.Input"
        )
    layers = layer_state.layers_of(model)
    if not layers:
        raise ValueError(f"model {model.name!r} has no layers of het_tf; use Keras' model.export(path)")
    return layers


def _check_options(format: str, options: dict[str, Any]) -> None:
    """Checks options: the keyword-only arguments of the format's backend."""
    parameters = inspect.signature(_backend(format).__init__).parameters.values()
    known = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    foreign = sorted(set(options) - known)
    if foreign:
        has = ", ".join(sorted(known)) or "none"
        raise TypeError(
            f"format={format!r} has no option {', '.join(map(repr, foreign))}; its options are: {has}"
        )


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


def _sources(layers: Sequence[Any], which: Filter) -> list[Source]:
    """Returns each table of the layers once."""
    found = {
        (layer.namespace, table.name): Source(table, layer.namespace, which)
        for layer in layers
        for table in layer.tables
    }
    return list(found.values())


def _backend(format: str) -> Any:
    return importlib.import_module(f"het_tf.ext.serving.python.export.{format}").Backend


def _check_ops(format: str, functions: dict[str, Any]) -> None:
    """Refuses signatures that read live tables: they were not traced with the backend."""
    native_ops = {"HetServe", "HetFollowDense"}
    allowed = {"portable": set(), "native": native_ops, "online": {"HetLookup"}}[format]
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


def _record(staging: Path, summary: Export, details: dict[str, Any]) -> None:
    record = {
        "format": summary.format,
        "row_dtype": summary.row_dtype,
        "unknown": summary.unknown,
        "signatures": summary.signatures,
        "het_tf": __version__,
        "tensorflow": tf.__version__,
        "tables": [vars(table) for table in summary.tables],
        **details,
    }
    file = staging / RECORD
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
