"""Sources of a profile: the lookups of a layer in a dataset."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from het_tf.ext.sizing.python.profile import Profiler
from het_tf.ext.sizing.python.stats import Stats
from het_tf.ext.streams.python import matching
from het_tf.python import backend
from het_tf.python.files import local_path
from het_tf.python.show import bar
from het_tf.python.table import layer_state
from het_tf.python.table.config import FeatureConfig

Columns = Mapping[str, tuple[Any, Any]]  # of each feature: ids [m], and the number of each sample's ids [n]


@dataclasses.dataclass(frozen=True)
class Source:
    """Features by name, batches, and the number of samples to count, if known."""

    features: Mapping[str, FeatureConfig]
    batches: Iterator[Columns]
    samples: int | None

    def profile(self, name: str, out: str | os.PathLike[str]) -> Stats:
        """Profiles it in one pass. ValueError, OSError: as in `Profiler`, or `out` is a file."""
        place = local_path("out", out)
        if place.exists() and not place.is_dir():
            raise ValueError(f"{out} is a file; give a directory, which is made")
        profiler = Profiler(self.features, name, self.samples)
        with bar("profile") as (begin, advance):
            begin(self.samples)
            for batch in self.batches:
                profiler.add(batch)
                advance(len(next(iter(batch.values()))[1]))
                if profiler.full:
                    break
            return profiler.finish(place)


def open_function(name: str, samples: int | None) -> Source:
    """Opens the dataset and layer that a function returns.

    Args:
      name: module:function.
      samples: As in `profile`.

    Raises:
      ValueError: The module or function does not exist, or returns something else; as in `profile`.
    """
    module, _, function = name.partition(":")
    if "" not in sys.path:  # as python -m does
        sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name}: {error}; give module:function") from None
    found = made() if callable(made) else made
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise ValueError(
            f"{name} gives {type(found).__name__}; let it return (dataset, layer) or "
            "(dataset, layer, inputs), as het_tf.lookahead takes them"
        )
    return open_dataset(found[0], found[1], found[2] if len(found) == 3 else None, samples)


def open_dataset(dataset: Any, layer: Any, inputs: Any, samples: int | None) -> Source:
    """Opens the lookups of a layer in a dataset; arguments and errors as in `profile`."""
    matching.check(layer)
    opened = _of_dataset if backend.TENSORFLOW else _of_batches
    return opened(dataset, layer, inputs, samples)


def _of_dataset(dataset: Any, layer: Any, inputs: Any, samples: int | None) -> Source:
    from het_tf.ext.streams.python import pipeline
    from het_tf.python.session.native import tf

    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches")
    if samples is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the dataset has no end; give the number of samples to count (samples=, --samples)")
    features: dict[str, FeatureConfig] = {}

    def columns(*element: Any) -> tuple[Any, ...]:
        found = []
        features.clear()  # tf.data traces this again if the model has made weights
        for of, ids in pipeline.ids_of_samples(layer, inputs, element):
            features[_unused(of, features)] = of
            ragged = isinstance(ids, tf.RaggedTensor)
            counts = ids.row_lengths() if ragged else tf.fill(tf.shape(ids)[:1], tf.shape(ids)[1])
            found.append((ids.flat_values if ragged else tf.reshape(ids, [-1]), counts))
        return tuple(found)

    rows = dataset.map(columns).prefetch(1).as_numpy_iterator()

    def batches() -> Iterator[Columns]:
        try:
            for row in rows:
                yield dict(zip(features, row, strict=True))
        except tf.errors.InvalidArgumentError as error:  # a message of lookups.py
            raise ValueError(error.message) from None

    return Source(features, batches(), samples)


def _of_batches(batches: Any, layer: Any, inputs: Any, samples: int | None) -> Source:
    """Opens the lookups in a DataLoader or an iterator: PyTorch and JAX."""
    from het_tf.ext.streams.python import iterator

    find = iterator.Lookups(layer, inputs)
    features: dict[str, FeatureConfig] = {}

    def columns(batch: Any) -> Columns:
        found: dict[str, tuple[Any, Any]] = {}
        for of_layer, ids, masks in find(batch):
            every = layer_state.of(of_layer).features.flat
            for feature, of, mask in zip(every, ids, masks, strict=True):
                present = np.ones(of.shape, bool) if mask is None else mask
                name = _unused(feature, found)
                features[name] = feature
                found[name] = of[present], present.reshape(len(of), -1).sum(1)
        return found

    source = iter(batches) if isinstance(batches, Iterable) else iter(())
    begin = next(source, None)
    if begin is None:
        raise ValueError(f"dataset is {batches!r:.100}; give a DataLoader, or an iterator with batches")
    first = columns(begin)
    return Source(features, itertools.chain([first], map(columns, source)), samples)


def _unused(feature: FeatureConfig, names: Mapping[str, object]) -> str:
    """Returns the name of a feature, with a number if another one has it."""
    return f"{feature.name} {len(names)}" if feature.name in names else str(feature.name)


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
    return open_dataset(dataset, layer, inputs, samples).profile("a dataset", out)
