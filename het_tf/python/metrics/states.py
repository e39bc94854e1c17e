"""The states of metrics: variables (sums) and samples. Every metric has one kind or both."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from het_tf.python.metrics.programs import exact

if TYPE_CHECKING:
    from het_tf.python.metrics.samples import Samples


def variables_of(metrics: Sequence[Any]) -> list[Any]:
    """Their sums; the number of samples is none."""
    counts = {id(store.count) for store in samples_of(metrics)}
    return [one for metric in metrics for one in metric.variables if id(one) not in counts]


def samples_of(metrics: Sequence[Any]) -> "list[Samples]":
    """Their samples."""
    stores: Iterator[Any] = (getattr(one, "samples", None) for one in _single(metrics))
    return [store for store in stores if hasattr(store, "columns") and hasattr(store, "replace")]


@exact
def add(into: Sequence[Any], metrics: Sequence[Any]) -> None:
    """Adds the states of metrics to those of others of the same classes; eagerly."""
    for total, variable in zip(variables_of(into), variables_of(metrics), strict=True):
        total.assign(np.asarray(total.numpy()) + np.asarray(variable.numpy()))
    for all_samples, samples in zip(samples_of(into), samples_of(metrics), strict=True):
        all_samples.append(*samples.columns())


def _single(metrics: Sequence[Any]) -> Iterator[Any]:
    """Yields single metrics: Keras combines several into one (CompileMetrics)."""
    for metric in metrics:
        yield metric
        yield from (one for one in getattr(metric, "metrics", ()) if one is not metric)
