"""`het_tf.workers.shard_on_demand`: plans the lookups of placed streams.

Every rank reads all of a placed stream, so it knows the lookups of the others, and passes them to the core
(ext/streams/cc/window.h): a row then goes to the server when another rank uses it next. Within a pass
anything except the next batch of the stream is refused until all ranks have flushed: `fit` of a distributed
model does so before and after it, and before its evaluations.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from het_tf.ext.streams.python import matching, pipeline
from het_tf.python.session import settings
from het_tf.python.session.native import tf

WINDOW = 32


class _Passes:
    """Numbers the passes of all streams whose rows travel on demand: each pass has its own places.

    An iterator may be left, and the next one reads the same batches.
    """

    begun: "_Passes | None" = None
    ended = 0  # of the count

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("/CPU:0"):
            self.count = tf.Variable(0, dtype=tf.int64, trainable=False)

    @staticmethod
    def begin() -> Any:
        """Returns the first place of a new pass."""
        return _Passes.begun.count.assign_add(1) * 2**40 + 1  # type: ignore[union-attr]


def passes() -> int | None:
    """Returns the number of passes since `end_passes`; None if no stream's rows travel on demand.

    In each, this rank holds back updates that others do not need next. Its pipeline is ahead of the steps by
    an unknown time, so ranks agree on the number before they act on it.
    """
    return None if _Passes.begun is None else int(_Passes.begun.count) - _Passes.ended


def end_passes() -> None:
    """Call it when no iterator goes on, and all ranks have flushed: none holds back anything."""
    _Passes.ended += passes() or 0


@dataclasses.dataclass(frozen=True)
class Readers:
    """The layers that look up a placed stream, and when their rows travel. Arguments as in `shard_placed`.

    Args:
      layer: `lookahead`.
      inputs: As there.
      on_demand: Whether an update waits until another rank uses its row.

    Raises:
      ValueError: As in `shard_on_demand`.
    """

    layer: Any
    inputs: Callable[..., Any] | None
    on_demand: bool

    def __post_init__(self) -> None:
        if self.layer is None and self.on_demand:
            raise ValueError("lookahead is None; give the layer or model that looks the ids up")
        collections = [] if self.layer is None else matching.check(self.layer)
        if self.on_demand:
            _check_layers(collections)

    def of_rank(self, batches: Any) -> Any:
        """Returns this rank's batches, planned if a layer is given. The pipeline is ahead of the steps."""
        if self.layer is None:
            return batches.prefetch(tf.data.AUTOTUNE)
        return pipeline.planned(batches, self.layer, WINDOW, self.inputs)

    def of_all_ranks(self, batches: Any, rank: int, ranks: int) -> Any:
        """Returns this rank's batches, planned with the lookups of all ranks.

        Args:
          batches: A dataset of (this rank's batch, the concatenated batches of all ranks).
          rank: This rank.
          ranks: Number of ranks.
        """
        _Passes.begun = _Passes.begun or _Passes()

        nothing = _without_samples(batches.element_spec)

        # A batch comes out when the next one, or the end of the pass, has been planned: a rank that has the
        # last batch knows that it is the last one.
        def start(state: Any, ended: Any, element: tuple[Any, Any]) -> Any:
            before, *previous = state
            mine, everyone = element
            layers: list[Any] = []

            def plan() -> Any:
                place = tf.cond(tf.equal(before, 0), _Passes.begin, lambda: before + 1)
                of = pipeline.Everyone(components_of(everyone), place, rank, ranks, settings.accumulates())
                layers[:] = pipeline.start_on_demand(self.layer, self.inputs, components_of(mine), WINDOW, of)
                _check_layers(layers)
                return place

            def end() -> Any:
                pipeline.end_pass(layers, before)
                return before

            # The first branch is traced first: it finds the layers.
            place = tf.cond(tf.logical_not(ended), plan, end)
            return (place, *_parts(mine)), (before > 0, _whole(batches.element_spec[0], previous))

        marked = batches.map(lambda *one: (False, one))
        marked = marked.concatenate(tf.data.Dataset.from_tensors((True, nothing)))
        begin = (tf.constant(0, tf.int64), *_parts(nothing[0]))
        planned = marked.scan(begin, lambda state, one: start(state, *one))
        planned = planned.filter(lambda any_before, _: any_before).map(lambda _, mine: mine)
        same_length = tf.data.experimental.assert_cardinality(batches.cardinality())
        return pipeline.ahead(planned.apply(same_length), WINDOW)


def _parts(element: Any) -> list[Any]:
    """Returns the tensors of an element, of which the state of a scan consists."""
    return list(tf.nest.flatten(element, expand_composites=True))


def _whole(spec: Any, parts: list[Any]) -> Any:
    """The element of such tensors."""
    return tf.nest.pack_sequence_as(spec, parts, expand_composites=True)


def _without_samples(spec: Any) -> Any:
    """Returns an element of a dataset with this spec, of zeros; unknown dimensions are 0."""

    def nothing(one: Any) -> Any:
        if isinstance(one, tf.RaggedTensorSpec):
            flat = tf.zeros([0, *one.shape[one.ragged_rank + 1 :]], one.dtype)
            splits = [tf.zeros([(one.shape[0] or 0) + 1], one.row_splits_dtype)]
            splits += [tf.zeros([1], one.row_splits_dtype)] * (one.ragged_rank - 1)
            return tf.RaggedTensor.from_nested_row_splits(flat, splits, validate=False)
        return tf.zeros([size or 0 for size in one.shape], one.dtype)

    return tf.nest.map_structure(nothing, spec)


def components_of(element: Any) -> tuple[Any, ...]:
    """Returns the components of an element of a dataset."""
    return element if isinstance(element, tuple) else (element,)


def _check_layers(collections: list[Any]) -> None:
    """Raises ValueError if rows of these layers cannot travel on demand."""
    of_table: dict[str, Any] = {}
    for layer in collections:
        for table in layer.tables:
            other = of_table.setdefault(table.name, layer)
            if other is not layer:
                raise ValueError(
                    f"rows cannot travel on demand: layers {other.name!r} and {layer.name!r} share table "
                    f"{table.name!r}: neither knows which rows the other one needs. Give both features to "
                    "one EmbeddingCollection"
                )
    if len(set(map(id, collections))) < len(collections):
        raise ValueError(
            "rows cannot travel on demand: lookahead has a layer twice, or calls it twice; look all its ids "
            "up in one call"
        )
