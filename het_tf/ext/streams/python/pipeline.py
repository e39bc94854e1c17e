"""`het_tf.lookahead` on TensorFlow: announces the lookups of the next batches while earlier ones run.

    dataset ──map──► HetPlan(ids) and the batch, unchanged ──prefetch(window)──► model
                          │ returns at once
                          └► sorted out for the lookup, which begins early where tables are at a server

The op never waits, neither for the network nor for a lookup (ext/streams/cc/coming_steps.h).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from het_tf.ext.streams.python import matching
from het_tf.python import ids as ids_lib
from het_tf.python.layer import lookups
from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.session import native
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state
from het_tf.python.table.config import FeatureConfig


def planned(dataset: Any, layer: Any, window: int, inputs: Callable[..., Any] | None) -> Any:
    """Returns a dataset whose lookups are announced; arguments and errors as in `lookahead`."""
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches "
            "(tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(1024))"
        )

    def add(*element: Any) -> Any:
        start(layer, inputs, element, window)
        return element if len(element) > 1 else element[0]

    # map spreads tuples; anything else, and a tuple of one, comes unchanged.
    spec = dataset.element_spec
    if isinstance(spec, tuple) and len(spec) == 1:
        return ahead(dataset.map(lambda only: (add(only),)), window)
    return ahead(dataset.map(add), window)


def ahead(planned: Any, window: int) -> Any:
    """Plans the elements of a dataset when they are made: `window` of them wait for their step."""
    options = tf.data.Options()  # an iterator is saved without its plans: lookups work without them
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return planned.prefetch(window).with_options(options)


@dataclasses.dataclass(frozen=True)
class Everyone:
    """A step of all workers, for rows that travel on demand (ext/streams/cc/global_step.h).

    Attributes:
      batch: The components of an element with the concatenated batches of all workers.
      place: Place of the step in its stream, int64 scalar, not 0; the next step of a pass has the next one.
      worker: The number of this worker.
      workers: Number of workers; each has the same number of samples.
      summed: Whether gradients are summed over the workers before one of them updates a row.
    """

    batch: tuple[Any, ...]
    place: Any
    worker: int
    workers: int
    summed: bool


def start(
    layer: Any,
    inputs: Callable[..., Any] | None,
    batch: tuple[Any, ...],
    window: int,
) -> None:
    """Part of a pipeline: plans the lookups of `layer` in a batch. Arguments as in `lookahead`.

    Args:
      layer: A layer that `matching.check` accepts.
      inputs: A function, or None.
      batch: The components of an element of the dataset.
      window: Number of batches that may wait.
    """
    for each, ids in _lookups(layer, inputs, batch):
        _add(each, ids, window, {"all": [], "ends": [], "place": tf.constant(0, tf.int64)})


def start_on_demand(
    layer: Any, inputs: Callable[..., Any] | None, batch: tuple[Any, ...], window: int, everyone: Everyone
) -> list[EmbeddingCollection]:
    """As `start`, for rows that travel on demand. Returns the layers, one a lookup."""
    mine, of_all = _lookups(layer, inputs, batch), _lookups(layer, inputs, everyone.batch, by_sample=True)
    for (each, ids), (_, all_ids) in zip(mine, of_all, strict=True):
        more = {
            "all": [ids.flat_values if ids_lib.is_ragged(ids) else ids for ids in all_ids],
            "ends": [_ends(ids, everyone.workers) for ids in all_ids],
            "place": everyone.place,
            "worker": everyone.worker,
            "summed": everyone.summed,
        }
        _add(each, ids, window, more)
    return [each for each, _ in mine]


def end_pass(layers: list[EmbeddingCollection], place: Any) -> None:
    """Part of a pipeline: no step follows the one at `place`, for rows that travel on demand."""
    for each in layers:
        call = layer_state.of(each).call
        with tf.device("/device:CPU:0"):
            native.ops.het_end_pass(place=place, tables=call.tables, specs=call.specs)


def _add(layer: EmbeddingCollection, ids: list[Any], window: int, more: dict[str, Any]) -> None:
    """Makes the op for one call of the layer."""
    call = layer_state.of(layer).call
    with tf.device("/device:CPU:0"):
        native.ops.het_plan(ids=ids, tables=call.tables, specs=call.specs, window=window, **more)


def _ends(ids: Any, workers: int) -> Any:
    """Returns the ends of each worker's ids, int64 `[workers]`; all have the same number of samples."""
    ragged = ids_lib.is_ragged(ids)
    samples = ids.nrows(tf.int64) if ragged else tf.shape(ids, tf.int64)[0]
    ends = tf.range(1, workers + 1, dtype=tf.int64) * (samples // workers)
    if ragged:
        return tf.gather(tf.cast(ids.row_splits, tf.int64), ends)
    return ends * tf.shape(ids, tf.int64)[1]


def _lookups(
    layer: Any, inputs: Callable[..., Any] | None, batch: tuple[Any, ...], by_sample: bool = False
) -> lookups.Lookups:
    calls = matching.calls(layer, inputs, batch)
    return [found for each, x in calls for found in lookups.find(each, x, by_sample)]


def ids_of_samples(
    layer: Any, inputs: Callable[..., Any] | None, batch: tuple[Any, ...]
) -> list[tuple[FeatureConfig, Any]]:
    """Returns the lookups of a batch, sample by sample.

    Args:
      layer: As in `lookahead`.
      inputs: As in `lookahead`.
      batch: The components of an element of a dataset.

    Returns:
      The features, and for each int64 `[B, n]` or ragged `[B, None]`.

    Raises:
      ValueError: As in `lookahead`; or a model's ids do not lie sample by sample.
    """
    return [
        (feature, of_feature)
        for each, ids in _lookups(layer, inputs, batch, by_sample=True)
        for feature, of_feature in zip(layer_state.of(each).features.flat, ids, strict=True)
    ]
