"""Sources of a profile: files of samples, graphs, and the lookups of a layer in a dataset."""

from __future__ import annotations

import dataclasses
import glob
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.ext.placement.python.cli.formats import open_samples
from het_tf.ext.placement.python.cli.samples import SEVERAL
from het_tf.ext.placement.python.placement import Numpy, hashes
from het_tf.ext.sizing.python.profile import Feature, Profiler
from het_tf.ext.sizing.python.stats import Stats
from het_tf.python.files import local_path
from het_tf.python.show import bar

SCHEMES = "criteo:FILE, csv:GLOB, parquet:GLOB, tfrecord:GLOB, graph:FILE or module:function"

_BLOCK = 1 << 13


@dataclasses.dataclass(frozen=True)
class Source:
    """Features, batches with the progress of each, and the total progress, if known."""

    features: list[Feature]
    batches: Iterator[tuple[Mapping[str, Any], int]]
    total: int | None

    def profile(self, name: str, out: str | os.PathLike[str], samples: int | None) -> Stats:
        """Profiles it in one pass. ValueError, OSError: as in `Profiler`, or `out` is a file."""
        place = local_path("out", out)
        if place.exists() and not place.is_dir():
            raise ValueError(f"{out} is a file; give a directory, which is made")
        profiler = Profiler(self.features, name, samples)
        with bar("profile") as (begin, advance):
            begin(self.total)
            for batch, units in self.batches:
                profiler.add(batch)
                advance(units)
                if profiler.full:
                    break
            return profiler.finish(place)


Tables = Callable[[list[str]], list[Feature]]  # features from fields or ids


def open_files(kind: str, pattern: str, fields: list[str] | None, tables: Tables) -> Source:
    """Opens files of samples, in the order of their names; `fields` None: all that have ids.

    Raises:
      ValueError: The file does not exist, has another format, or lacks the fields.
    """
    one = local_path(f"--data {kind}:", pattern)
    paths = [one] if one.exists() else [Path(path) for path in sorted(glob.glob(str(one)))]
    if not paths:
        raise ValueError(f"--data {kind}:{pattern}: there is no such file; give one, or a pattern of names")
    samples = open_samples(kind, paths)
    reasons = samples.fields()
    fit = [name for name, reason in reasons.items() if reason in ("", SEVERAL)]
    for name in fields or []:
        if name not in fit:
            fault = f"{name!r}, which {reasons.get(name, 'is not there')}"
            raise ValueError(f"--fields has {fault}; fields of ids: {', '.join(fit) or 'none'}")
    names = fields or fit
    if not names:
        raise ValueError(f"{paths[0]} has no samples, or no field of integers or strings")
    samples.only(names)

    def batches() -> Iterator[tuple[Mapping[str, Any], int]]:
        lists = [name for name in names if reasons[name] == SEVERAL]
        single = [name for name in names if name not in lists]
        for rows in samples.blocks(_BLOCK):
            batch = {name: _ids(values) for name, values in samples.columns(rows, single).items()}
            for name, (values, counts) in samples.lists(rows, lists).items():
                batch[name] = _ids(values), counts
            yield batch, samples.units(rows)
        samples.require_unchanged()

    return Source(tables(names), batches(), samples.total)


def _ids(values: Any) -> Any:
    """Returns integers, and hashes of strings, as int64."""
    return hashes(values).view(np.int64) if Numpy.is_text(values) else values


def open_graph(path: str, fanout: tuple[int, ...], tables: Tables) -> Source:
    """Opens the reads of GraphSAGE in an epoch: each node, its neighbours, and their neighbours.

    Raises:
      ValueError: The file does not exist or is not a graph; fanout has counts below 1.
    """
    from het_tf.inputs.python.graph.graph import Graph

    try:
        graph = Graph.open(path)
    except FileNotFoundError as error:
        raise ValueError(f"--data graph:{path}: {error}; give a file of het_tf.inputs.Graph") from None
    graph.check_fanouts(fanout)

    def batches() -> Iterator[tuple[Mapping[str, Any], int]]:
        for begin in range(0, graph.nodes, _BLOCK):
            nodes = order[begin : begin + _BLOCK]
            hops = graph.sample(nodes, fanout, batch=begin)
            yield (
                {"nodes": np.concatenate([np.reshape(hop, [len(nodes), -1]) for hop in hops], 1)},
                len(nodes),
            )

    order = np.random.default_rng(0).permutation(graph.nodes)
    return Source(tables(["nodes"]), batches(), graph.nodes)


def open_function(module: str, function: str, samples: int | None) -> Source:
    """Opens the dataset and layer that a function of a module returns.

    Raises:
      ValueError: The module or function does not exist, or returns something else; as in `profile`.
    """
    if "" not in sys.path:  # as python -m does
        sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--data {module}:{function}: {error}; give {SCHEMES}") from None
    found = made() if callable(made) else made
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise ValueError(
            f"{module}:{function} gives {type(found).__name__}; let it return (dataset, layer) or "
            "(dataset, layer, inputs), as het_tf.lookahead takes them"
        )
    return open_dataset(found[0], found[1], found[2] if len(found) == 3 else None, samples)


def open_dataset(dataset: Any, layer: Any, inputs: Any, samples: int | None) -> Source:
    """Opens the lookups of a layer in a dataset; arguments and errors as in `profile`."""
    from het_tf.ext.window.python import matching
    from het_tf.python import backend

    matching.check(layer)
    opened = _of_dataset if backend.TENSORFLOW else _of_batches
    return opened(dataset, layer, inputs, samples)


def _of_dataset(dataset: Any, layer: Any, inputs: Any, samples: int | None) -> Source:
    from het_tf.ext.window.python import pipeline
    from het_tf.python.session.native import tf

    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches")
    if samples is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the dataset has no end; give the number of samples to count (samples=, --samples)")
    features: dict[str, Feature] = {}

    def columns(*element: Any) -> tuple[Any, ...]:
        found = []
        features.clear()  # tf.data traces this again if the model has made weights
        for number, (of, ids) in enumerate(pipeline.ids_of_samples(layer, inputs, element)):
            name = f"{of.name} {number}" if of.name in features else str(of.name)
            features[name] = Feature(name, of.table.name, of.table.dim, of.padding_id)
            ragged = isinstance(ids, tf.RaggedTensor)
            counts = ids.row_lengths() if ragged else tf.fill(tf.shape(ids)[:1], tf.shape(ids)[1])
            found.append((ids.flat_values if ragged else tf.reshape(ids, [-1]), counts))
        return tuple(found)

    rows = dataset.map(columns).prefetch(1).as_numpy_iterator()

    def batches() -> Iterator[tuple[Mapping[str, Any], int]]:
        try:
            for row in rows:
                yield dict(zip(features, row, strict=True)), len(row[0][1])
        except tf.errors.InvalidArgumentError as error:  # a message of lookups.py
            raise ValueError(error.message) from None

    return Source(list(features.values()), batches(), samples)


def _of_batches(batches: Any, layer: Any, inputs: Any, samples: int | None) -> Source:
    """Opens the lookups in a DataLoader or an iterator: PyTorch and JAX."""
    from het_tf.ext.window.python import iterator
    from het_tf.python.table import layer_state

    find = iterator.Lookups(layer, inputs)

    def columns(batch: Any) -> dict[Feature, tuple[Any, Any]]:
        found: dict[Feature, tuple[Any, Any]] = {}
        names: set[str] = set()
        each = (
            one
            for layer, ids, masks in find(batch)
            for one in zip(layer_state.of(layer).features.flat, ids, masks, strict=True)
        )
        for number, (feature, ids, mask) in enumerate(each):
            name = f"{feature.name} {number}" if feature.name in names else str(feature.name)
            names.add(name)
            present = np.ones(ids.shape, bool) if mask is None else mask
            counts = present.reshape(len(ids), -1).sum(1)
            found[Feature(name, feature.table.name, feature.table.dim, feature.padding_id)] = (
                ids[present],
                counts,
            )
        return found

    source = iter(batches) if isinstance(batches, Iterable) else iter(())
    begin = next(source, None)
    if begin is None:
        raise ValueError(f"dataset is {batches!r:.100}; give a DataLoader, or an iterator with batches")
    first = columns(begin)
    rows = itertools.chain([first], map(columns, source))
    found = ({feature.name: of for feature, of in row.items()} for row in rows)
    return Source(list(first), ((row, len(next(iter(row.values()))[1])) for row in found), samples)


def profile(
    dataset: Any,
    layer: Any,
    inputs: Callable[..., Any] | None = None,
    out: str | os.PathLike[str] = "stats",
    samples: int | None = None,
) -> Stats:
    """Counts the lookups of a layer in a dataset in one pass.

    Args:
      dataset: Batches, as in `het_tf.lookahead`.
      layer: The model, layer or layers that look the ids up, as in `lookahead`. Padding is not counted.
      inputs: Selects the ids, as in `het_tf.lookahead`.
      out: The directory of stats.json and keys.npz; made if missing, and an earlier profile is replaced.
      samples: Number of samples to count; None: all.

    Raises:
      ValueError: As in `lookahead`; `dataset` is not a dataset, or has no samples or no end; samples is
        not a whole number of 1 or more.
      OSError: The files cannot be written.
    """
    return open_dataset(dataset, layer, inputs, samples).profile("a dataset", out, samples)
