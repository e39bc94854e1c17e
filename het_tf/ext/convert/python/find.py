"""Finds the layers of a model that become tables, and the faults of the others."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from het_tf.ext.convert.python import graph, vocabulary
from het_tf.ext.convert.python.vocabulary import Vocabulary
from het_tf.python.backend import keras
from het_tf.python.table.config import TableConfig


@dataclass
class Found:
    """A `keras.layers.Embedding` that becomes a layer of het_tf.

    Attributes:
      layer: The Embedding.
      path: Its name after the names of its models: "towers/item".
      name: Name of its table: the layer's, or its path if other layers have that name.
      calls: The calls of the layer.
      vocabulary: The lookup whose tokens become ids; None: ids are the numbers of the rows.
      masks: The calls that compute the mask of its ids, if they are separate.
    """

    layer: Any
    path: str
    name: str = ""
    calls: list[graph.Call] = field(default_factory=list)
    vocabulary: Vocabulary | None = None
    masks: list[Any] = field(default_factory=list)


@dataclass
class Search:
    """The result of `search`.

    Attributes:
      found: Layers that become tables, by the id of the layer.
      faults: Layers that cannot be converted: a line for each, with its remedy.
      calls: All calls of all models, each with the model's path.
    """

    found: dict[int, Found] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    calls: list[tuple[str, graph.Call]] = field(default_factory=list)


def search(
    model: Any, only: Sequence[str] | None, declared: Mapping[str, Any], open_vocabulary: bool
) -> Search:
    """Looks for the layers that become tables.

    Args:
      model: Functional or Sequential, built.
      only: Paths of the layers to convert; None: all.
      declared: The caller's tables by the paths of layers: a TableConfig, or a name.
      open_vocabulary: Whether tokens of lookup layers become ids.

    Raises:
      ValueError: `only` or `declared` names a layer that does not exist.
    """
    result = Search()
    paths = [path for path in _walk(model, "", result, set())]
    for argument, names in {"layers": only or (), "tables": declared}.items():
        for name in names:
            if name not in paths:
                known = ", ".join(map(repr, paths)) or "none"
                raise ValueError(
                    f"{argument} names {name!r}; the layers keras.layers.Embedding of model {model.name!r} "
                    f"are {known}"
                )
    if only is not None:
        if left_out := [name for name in declared if name not in only]:
            raise ValueError(f"tables names {left_out[0]!r}, which layers={list(only)} lacks; add it there")
        result.found = {key: one for key, one in result.found.items() if one.path in only}
        result.faults = []
    names = [one.layer.name for one in result.found.values()]
    for one in result.found.values():
        one.name = one.layer.name if names.count(one.layer.name) == 1 else one.path.replace("/", "_")
        one.calls = [call for _, call in result.calls if call.layer is one.layer]
        sources = [call.sources[0] for call in one.calls]
        one.masks = [
            call.layer for _, call in result.calls if graph.is_mask(call.layer) and call.sources[0] in sources
        ]
        result.faults += [
            f"{one.path}: {why}"
            for why in _against(one, isinstance(declared.get(one.path), TableConfig), result)
        ]
    if open_vocabulary:
        vocabulary.choose(result.found, [call for _, call in result.calls], result.faults)
    return result


def _walk(model: Any, prefix: str, result: Search, seen: set[int]) -> Iterator[str]:
    """Fills `found` and `calls`; yields the paths of all Embeddings that are layers of a model."""
    result.calls += [(prefix, call) for call in graph.calls(model)]
    for layer in model.layers:
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        path = prefix + layer.name
        if graph.is_graph(layer):
            yield from _walk(layer, f"{path}/", result, seen)
        elif isinstance(layer, keras.layers.Embedding):
            result.found[id(layer)] = Found(layer, path)
            yield path
        elif inner := [one for one in graph.inner_layers(layer) if isinstance(one, keras.layers.Embedding)]:
            result.faults += [
                f"{path}: it is a {type(layer).__name__} that holds the Embedding {one.name!r}, which a copy "
                "cannot replace there; call that layer outside of it"
                for one in inner
            ]


# --- faults of a layer --------------------------------------------------------------------------------------


def _against(one: Found, declared: bool, result: Search) -> Iterator[str]:
    layer = one.layer
    if type(layer) is not keras.layers.Embedding:
        yield (
            f"it is a {type(layer).__name__}, a subclass of keras.layers.Embedding, and may do more; put a "
            "plain keras.layers.Embedding with its rows in its place, or leave it as it is"
        )
        return
    yield from _regularised(one, declared)
    yield from _kinds(layer)
    yield from _ids(one)
    yield from _tied(one, result)
    if not _finite(layer.embeddings):
        yield "its rows hold NaN or Inf, which tables refuse; find their cause, or set them"


def _regularised(one: Found, declared: bool) -> Iterator[str]:
    layer, name = one.layer, one.path
    declare = f"tables={{{name!r}: het_tf.TableConfig({layer.name!r}, {layer.output_dim}, "
    if layer.embeddings_regularizer is not None and not declared:
        yield (
            f"embeddings_regularizer is {_kind(layer.embeddings_regularizer)}, a loss of all rows; a table "
            f"has l2, for the rows of each step: give {declare}l2=...)}}, or l2=0"
        )
    if layer.embeddings_constraint is not None and not declared:
        yield (
            f"embeddings_constraint is {_kind(layer.embeddings_constraint)}; a table has max_norm, the "
            f"longest that a row may be: give {declare}max_norm=...)}}, or max_norm=None"
        )
    if layer.activity_regularizer is not None:
        yield (
            f"activity_regularizer is {_kind(layer.activity_regularizer)}; put a layer "
            "keras.layers.ActivityRegularization behind it, and leave the argument out"
        )


def _kinds(layer: Any) -> Iterator[str]:
    if getattr(layer, "lora_enabled", False):
        yield "it has LoRA weights; save the model and load it, which merges them into the rows"
    if getattr(layer, "quantization_mode", None) is not None:
        yield f"it is quantised to {layer.quantization_mode}; convert the model before quantize()"
    if getattr(layer, "sparse", False):
        yield "sparse is True; tables give dense rows: leave it out"
    dtype = getattr(layer, "variable_dtype", None) or layer.dtype
    if dtype == "float64":
        yield "its rows are float64, and those of tables float32: make the model in float32"


def _ids(one: Found) -> Iterator[str]:
    for call in one.calls:
        source = call.sources[0]
        if call.dtypes[0].startswith(("float", "bfloat")) and not isinstance(source, keras.layers.InputLayer):
            yield (
                f"its ids come from {source.name!r} as {call.dtypes[0]}, but a table takes integers; cast "
                "them to int64 in between"
            )


def _tied(one: Found, result: Search) -> Iterator[str]:
    """Yields other layers that read the rows: a converted layer has no weight for them to read."""
    variable, layer = one.layer.embeddings, one.layer
    for path, call in result.calls:
        who = call.layer
        if who is layer or graph.is_graph(who):
            continue
        name = path + who.name
        mine = (layer, variable, getattr(variable, "value", None))
        weights = [*getattr(who, "weights", ()), *_closure(who), *call.arguments]
        if any(each is my for each in weights for my in mine if my is not None):
            yield (
                f"{name!r} reads its rows, too (tied weights), but rows of a table are read only by ids; "
                f"give {name!r} a separate weight"
            )


def _closure(layer: Any) -> list[Any]:
    """Variables that the function of a Lambda layer has captured."""
    function = getattr(layer, "function", None)
    if not isinstance(layer, keras.layers.Lambda) or not inspect.isfunction(function):
        return []
    taken = inspect.getclosurevars(function)
    return [*taken.nonlocals.values(), *taken.globals.values()]


def _finite(variable: Any) -> bool:
    rows = np.asarray(variable)
    step = max(1, (1 << 24) // max(1, rows.shape[1]))
    return all(bool(np.isfinite(rows[i : i + step]).all()) for i in range(0, len(rows), step))


def _kind(value: Any) -> str:
    return type(value).__name__ if not inspect.isfunction(value) else value.__name__
