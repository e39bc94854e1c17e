"""`het_tf.lookahead`: announces the lookups of the next batches while earlier ones are computed.

    dataset ──map──► HetPlan(ids) and the batch, unchanged ──prefetch(window)──► model
                          │ returns at once
                          └► sorted out for the lookup, which begins early where tables are at a server

The op never waits, neither for the network nor for a lookup (ext/window/cc/coming_steps.h).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from het_tf.python import ids as ids_lib
from het_tf.python.checks import whole
from het_tf.python.layer import lookups
from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.session import native
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state
from het_tf.python.table.config import FeatureConfig

Calls = list[tuple[Any, Any]]  # layers, each with its inputs


def lookahead(
    dataset: Any,
    layer: Any,
    window: int = 32,
    inputs: Callable[..., Any] | None = None,
) -> Any:
    """Announces the lookups of the next batches to het_tf.

        dataset = het_tf.lookahead(dataset.batch(1024), embed)
        model.fit(dataset)

    Make it the last step of the pipeline. The pipeline's threads sort the ids of each ready batch, so the
    lookup need not do it. If tables are at a server, the rows of the next
    batch are checked and fetched while the current one is computed, and the lookup waits only for rows that
    have not arrived yet. They may lack updates that other workers send in that time: one more of each worker
    if workers are in step. At a pull bound of 0 (`staleness=0`) lookups do not begin early.

    A batch is recognised by its ids. A batch that the model does not look up, because the loop was left or
    the layer changes its ids, only costs memory until newer ones come; a lookup whose batch was not
    planned is an ordinary one. If tables are at a server, 32 such lookups in a row print a line on stderr.
    `Table.stats()["planned"]` counts planned lookups. The lookup reports errors of tables and of the
    server.

    Args:
      dataset: A tf.data.Dataset of batches: inputs, or tuples (inputs, ...) as for `model.fit`. Its
        iterators can be saved and restored; batches that were ready then are looked up without a plan.
      layer: What looks the ids up: any Keras model, called on the inputs as in `fit`; an `Embedding` or an
        `EmbeddingCollection`; a list of them; or a dict {key of the inputs: layer}. Without `inputs`,
        a collection of named features takes its inputs by name from a dict; a layer of one feature takes the
        input of the layer's name from a dict, or else all inputs; a list of layers takes a list of as many
        inputs in order, and each takes its part of anything else.
      window: Number of batches that the pipeline is ahead, 1 or more. They are in memory, with about 40 bytes
        for each id.
      inputs: Selects or computes the ids if they are elsewhere: called with the components
        of an element (like the function of `Dataset.map`), returns the inputs of `layer`; for a list or
        dict of layers the same structure. It must compute the ids that the model will look up.

    Returns:
      A tf.data.Dataset with the same elements in the same order.

    Raises:
      ValueError: window is not an integer of 1 or more; `layer` has no rows of het_tf, or has its cache on a
        GPU; the ids are not found in an element, or are invalid; only the step of a model knows its ids (they
        depend on chance, rows or weights, or are looked up in a `tf.function` of the model).
      TypeError: `dataset` is not a tf.data.Dataset.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches "
            "(tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(1024))"
        )
    batches = whole("window", window, what="the batches to plan ahead")
    check(layer)

    def add(*element: Any) -> Any:
        start(layer, inputs, element, batches)
        return element if len(element) > 1 else element[0]

    # map spreads tuples; anything else, and a tuple of one, comes unchanged.
    spec = dataset.element_spec
    if isinstance(spec, tuple) and len(spec) == 1:
        return ahead(dataset.map(lambda only: (add(only),)), batches)
    return ahead(dataset.map(add), batches)


def ahead(planned: Any, window: int) -> Any:
    """Plans the elements of a dataset when they are made: `window` of them wait for their step."""
    options = tf.data.Options()  # an iterator is saved without its plans: lookups work without them
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return planned.prefetch(window).with_options(options)


@dataclasses.dataclass(frozen=True)
class Everyone:
    """A step of all workers, for rows that travel on demand (ext/window/cc/global_step.h).

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
      layer: A layer that `check` accepts.
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


# --- layers and their inputs ------------------------------------------------------------------------------


def check(layer: Any) -> list[EmbeddingCollection]:
    """Returns the layers of het_tf in `layer`. ValueError: one of them has no lookups that can be planned."""
    if isinstance(layer, Mapping):
        layers = list(layer.values())
    else:
        layers = list(layer) if isinstance(layer, (list, tuple)) else [layer]
    if not layers:
        raise ValueError("layer is empty; give the layers that look the ids up")
    collections = []
    for each in layers:
        found = layer_state.layers_of(each) if isinstance(each, tf.keras.layers.Layer) else []
        may_have = isinstance(each, tf.keras.Model) and not each.built  # makes its layers in its first call
        if not found and not may_have:
            raise ValueError(f"layer is {lookups.shown(each)}, without lookups of het_tf; {lookups.GIVE}")
        collections += found
    for collection in collections:
        cache = layer_state.of(collection).cache
        if cache.place != "cpu":
            raise ValueError(
                f"layer {collection.name!r} has its cache on a GPU (Cache(device={cache.given.device!r}))"
                "; only lookups of rows that are cached in host memory can be planned. Leave "
                'het_tf.lookahead out, or give Cache(device="cpu")'
            )
    return collections


def _lookups(
    layer: Any, inputs: Callable[..., Any] | None, batch: tuple[Any, ...], by_sample: bool = False
) -> lookups.Lookups:
    calls = _match(layer, batch[0]) if inputs is None else _pair(layer, inputs(*batch))
    return [found for each, x in calls for found in lookups.find(each, x, by_sample)]


def _pair(layer: Any, x: Any) -> Calls:
    """Returns layers and the inputs of each if `x` has the structure of `layer`."""
    if isinstance(layer, Mapping):
        if not isinstance(x, Mapping) or set(layer) - set(x):
            have = sorted(map(str, x)) if isinstance(x, Mapping) else f"a {type(x).__name__}"
            raise ValueError(
                f"layer is a dict with the keys {sorted(map(str, layer))}, but the inputs are {have}; give "
                "inputs=, a function from an element to such a dict"
            )
        return [(each, x[key]) for key, each in layer.items()]
    if isinstance(layer, (list, tuple)):
        if not isinstance(x, (list, tuple)) or len(x) != len(layer):
            have = f"{len(x)}" if isinstance(x, (list, tuple)) else f"a {type(x).__name__}"
            raise ValueError(f"layer is a list of {len(layer)}, but the inputs are {have}; give one for each")
        return list(zip(layer, x, strict=True))
    return [(layer, x)]


def _match(layer: Any, x: Any) -> Calls:
    """Matches the inputs of a batch with layers without the user's function."""
    if isinstance(layer, Mapping):
        return _pair(layer, x)
    if isinstance(layer, (list, tuple)):
        if isinstance(x, (list, tuple)) and len(x) == len(layer):
            return _pair(layer, x)
        return [call for each in layer for call in _match(each, x)]
    if isinstance(layer, EmbeddingCollection) and isinstance(x, Mapping):
        features = layer_state.of(layer).features
        if features.structure == "single":
            name = features.keys[0]
            if name not in x:
                raise ValueError(
                    f"layer {layer.name!r} reads one feature, {name!r}, but the inputs are a dict of "
                    f"{sorted(map(str, x))}; give inputs=, a function from an element to the layer's ids"
                )
            x = x[name]
        elif features.structure == "list":
            raise ValueError(
                f"layer {layer.name!r} takes a list of {len(features.flat)} inputs, but the dataset gives "
                "a dict; give inputs=, a function from an element to that list"
            )
    return [(layer, x)]


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
