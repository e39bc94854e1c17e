"""A profile of what a layer looks up of a dataset (public as `het_tf.planner.profile`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from het_tf.python.planner.profile import Feature, Profiler
from het_tf.python.planner.stats import Stats
from het_tf.python.show import Count, bar


def profile(
    dataset: Any,
    layer: Any,
    inputs: Callable[..., Any] | None = None,
    out: str | os.PathLike[str] = "stats",
    samples: int | None = None,
) -> Stats:
    """Counts in one pass what a layer will look up of a dataset.

        het_tf.planner.profile(dataset.batch(1024), model, out="stats")

    Args:
      dataset: A tf.data.Dataset of batches, as of `het_tf.plan`.
      layer: What looks the ids up, as of `het_tf.plan`: a layer or model, a list or a dict of them. Its
        features are those of the profile; their padding is no id.
      inputs: Where the ids are, as of `het_tf.plan`.
      out: The directory that stats.json and keys.npz are written into; it is made, and a profile that is
        there is replaced.
      samples: How many are counted; None: all.

    Returns:
      What was found.

    Raises:
      ValueError: As of `het_tf.plan`; the dataset has no samples or no end; samples is no whole number of 1
        or more.
      TypeError: `dataset` is not a tf.data.Dataset.
      OSError: The files cannot be written.
    """
    with bar("profile") as (begin, advance):
        begin(samples)
        return profile_of(dataset, layer, inputs, out, samples, "a dataset", advance)


def profile_of(
    dataset: Any,
    layer: Any,
    inputs: Callable[..., Any] | None,
    out: str | os.PathLike[str],
    samples: int | None,
    source: str,
    advance: Count,
) -> Stats:
    """The same; `source` is what people call the dataset, and `advance` is told of samples."""
    from het_tf.python.layer import plan
    from het_tf.python.session.native import tf

    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches")
    if samples is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("the dataset has no end; give samples=, how many are counted")
    plan.check(layer)
    features: dict[str, Feature] = {}

    def columns(*element: Any) -> tuple[Any, ...]:
        features.clear()
        found = []
        for number, (of, ids) in enumerate(plan.features_of_samples(layer, inputs, element)):
            name = of.name if of.name not in features else f"{of.name} {number}"
            features[name] = Feature(name, of.table.name, of.table.dim, of.padding_id)
            if of.max_sequence_length is not None:
                ids = ids[:, : of.max_sequence_length]
            if isinstance(ids, tf.RaggedTensor):
                found.append((ids.flat_values, ids.row_lengths()))
            else:
                found.append((tf.reshape(ids, [-1]), tf.fill(tf.shape(ids)[:1], tf.shape(ids)[1])))
        return tuple(found)

    # A tuple of one comes as it is, and is the element.
    batches = dataset.map(columns).prefetch(1)
    profiler = Profiler(list(features.values()), source, samples)
    for batch in batches.as_numpy_iterator():
        before = profiler.samples
        profiler.add(dict(zip(features, batch, strict=True)))
        advance(profiler.samples - before)
        if profiler.full:
            break
    return profiler.finish(out)
