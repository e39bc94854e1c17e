"""`het_tf.prefetch`: rows of the next batches are fetched while the current one is computed.

    dataset ──map──► HetPrefetch(ids) and the batch, unchanged ──prefetch(depth)──► model
                          │ returns at once
                          └► rows that the cache lacks are on their way; those that it has stay

The op waits for nothing: not for the network, not for a lookup that waits for it. What a lookup returns does
not depend on it, but for check_ahead (core/client/look_ahead.h).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

from het_tf.python.layer import inputs as inputs_lib
from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.session import native
from het_tf.python.session.native import tf
from het_tf.python.table import layer_state

Lookups = list[tuple[EmbeddingCollection, Any]]


def prefetch(
    dataset: Any,
    layer: Any,
    depth: int = 1,
    inputs: Callable[..., Any] | None = None,
    check_ahead: bool = False,
) -> Any:
    """Fetches the rows of coming batches while the current one is computed.

        dataset = het_tf.prefetch(dataset.batch(1024), embed)
        model.fit(dataset)

    Make it the last step of the pipeline. For each batch that the pipeline has ready, the rows that the cache
    lacks are asked for, and the rows that it has stay until the batch has been looked up. The lookup checks
    them as it checks all cached rows, so the bounds hold as without (but for `check_ahead`), and with
    staleness 0 one worker learns the same to the last bit. Where tables live in this process there is nothing
    to fetch, and the dataset is the same with an ordinary `prefetch(depth)` behind it.

    A prefetch tells of no trouble: where a server is away, or a table gone, the lookup says so. Rows that
    were fetched take memory beside the cache until their lookup has come: at most as many rows of a table as
    its cache has are there or on their way; of a larger batch the lookup fetches the rest. The counters
    `prefetched`, `prefetch_late` and `prefetch_unused` of `Table.stats()["cache"]` say how it goes.

    Args:
      dataset: A tf.data.Dataset of batches: inputs, or tuples (inputs, ...) as `model.fit` takes them.
      layer: What will look the ids up: an `Embedding`, an `EmbeddingCollection` or a model of
        `het_tf.models`; a list of them; or a dict {key of the inputs: layer}. Without `inputs`,
        a collection of named features and a model take theirs out of a dict of inputs by name; a layer of
        one feature takes the input of the layer's name out of a dict, or else the inputs as they are; a list
        of layers is fed from a list of as many inputs in order, and from anything else each on its own.
      depth: How many batches ahead, 1 or more. 1 hides the network where a batch is computed in the time that
        its rows need.
      inputs: Where the ids are, if they are elsewhere, or are made from the batch: called with the components
        of an element (as the function of `Dataset.map` is), returns what `layer` is called on; for a list or
        dict of layers the same structure. It is to compute the ids that the model will look up: other ones
        are fetched in vain.
      check_ahead: True: cached rows are checked here, too, while an earlier batch is computed, so a training
        lookup whose rows are all checked asks the server nothing. A row may then be staler than its pull
        bound by what others push in the meantime: reads miss up to `depth` more updates of each other worker,
        where workers go in step. A lookup still checks a row where more than `depth` others of its table came
        in between, at a pull bound of 0, and without training. False: the lookup checks, always.

    Returns:
      A tf.data.Dataset with the same elements in the same order. An iterator that is left early leaves
      nothing behind but rows in the cache, which go within some steps.

    Raises:
      ValueError: depth is not an integer of 1 or more; `layer` has no rows of het_tf, or has its cache on a
        GPU; the ids are not found in an element, or are no ids.
      TypeError: `dataset` is not a tf.data.Dataset; check_ahead is no bool.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches "
            "(tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(1024))"
        )
    if isinstance(depth, bool) or not isinstance(depth, numbers.Integral) or depth < 1:
        raise ValueError(f"depth is {depth!r}; give how many batches ahead, an integer of 1 or more")
    if not isinstance(check_ahead, bool):
        raise TypeError(f"check_ahead is {check_ahead!r}; give True or False")
    _check(layer, check_ahead)
    ahead = int(depth) if check_ahead else 0

    def start(*element: Any) -> Any:
        if inputs is None:
            lookups = _match(layer, element[0])
        else:
            lookups = _pair(layer, inputs(*element))
        for each, ids in lookups:
            _start(each, ids, ahead)
        return element if len(element) > 1 else element[0]

    # Tuples are spread by map; anything else, and a tuple of one, comes as it is.
    spec = dataset.element_spec
    if isinstance(spec, tuple) and len(spec) == 1:
        mapped = dataset.map(lambda only: (start(only),))
    else:
        mapped = dataset.map(start)
    return mapped.prefetch(int(depth))


def _start(layer: EmbeddingCollection, values: Any, check_ahead: int) -> None:
    """Adds the op for one call of the layer."""
    state = layer_state.of(layer)
    features = state.features
    ids = [
        inputs_lib.prepare(feature, value, None, None)[0]
        for feature, value in zip(features.flat, features.flatten(values, "inputs"), strict=True)
    ]
    call = state.call
    with tf.device("/device:CPU:0"):
        native.ops.het_prefetch(ids=ids, tables=call.tables, specs=call.specs, check_ahead=check_ahead)


# --- which layer, and what it is called on ----------------------------------------------------------------


def _check(layer: Any, check_ahead: bool) -> None:
    """ValueError: something in `layer` has no rows that can be prefetched, or checked ahead."""
    if isinstance(layer, Mapping):
        layers = list(layer.values())
    else:
        layers = list(layer) if isinstance(layer, (list, tuple)) else [layer]
    if not layers:
        raise ValueError("layer is empty; give the layers that look the ids up")
    for each in layers:
        for collection in _collections(each):
            cache = layer_state.of(collection).cache
            if cache.place != "cpu":
                raise ValueError(
                    f"layer {collection.name!r} has its cache on a GPU (Cache(device={cache.given.device!r}))"
                    "; only rows that are cached in host memory can be prefetched. Leave het_tf.prefetch "
                    'out, or give Cache(device="cpu")'
                )


def _collections(layer: Any) -> list[EmbeddingCollection]:
    if isinstance(layer, EmbeddingCollection):
        return [layer]
    side = getattr(layer, "rows", layer)  # of a model of het_tf.models
    collection = getattr(side, "collection", None)
    if isinstance(collection, EmbeddingCollection):
        return [collection]
    raise ValueError(
        f"layer is {getattr(layer, 'name', layer)!r}, a {type(layer).__name__}, which looks no rows of "
        "het_tf up; give the het_tf.keras.Embedding or EmbeddingCollection, a model of het_tf.models, or a "
        "list or dict of them"
    )


def _calls(layer: Any, x: Any) -> Lookups:
    """What a call of the layer or model on `x` looks up."""
    if isinstance(layer, EmbeddingCollection):
        return [(layer, x)]
    side = getattr(layer, "rows", layer)
    return [(side.collection, side.ids(x))]


def _pair(layer: Any, x: Any) -> Lookups:
    """`x` has the structure of `layer`."""
    if isinstance(layer, Mapping):
        if not isinstance(x, Mapping) or set(layer) - set(x):
            have = sorted(map(str, x)) if isinstance(x, Mapping) else f"a {type(x).__name__}"
            raise ValueError(
                f"layer is a dict with the keys {sorted(map(str, layer))}, and the inputs are {have}; give "
                "inputs=, a function from an element to such a dict"
            )
        return [call for key, each in layer.items() for call in _calls(each, x[key])]
    if isinstance(layer, (list, tuple)):
        if not isinstance(x, (list, tuple)) or len(x) != len(layer):
            have = f"{len(x)}" if isinstance(x, (list, tuple)) else f"a {type(x).__name__}"
            raise ValueError(f"layer is a list of {len(layer)}, and the inputs are {have}; give one for each")
        return [call for each, of in zip(layer, x, strict=True) for call in _calls(each, of)]
    return _calls(layer, x)


def _match(layer: Any, x: Any) -> Lookups:
    """The inputs of a batch as they come, without a function that says what is whose."""
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
                    f"layer {layer.name!r} reads one feature, {name!r}, and the inputs are a dict of "
                    f"{sorted(map(str, x))}; give inputs=, a function from an element to the layer's ids"
                )
            x = x[name]
        elif features.structure == "list":
            raise ValueError(
                f"layer {layer.name!r} takes a list of {len(features.flat)} inputs, and those of the dataset "
                "are a dict; give inputs=, a function from an element to that list"
            )
    return _calls(layer, x)
