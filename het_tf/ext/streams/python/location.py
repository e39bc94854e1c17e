"""`het_tf.workers.shard_placed(data, by="location", ...)`: places samples where rows were used.

The rule is ext/streams/cc/location.h, run by the op het_place_samples. Its state, 16 MB, passes
from batch to batch: a pass that is left, restarted or restored does not affect others, and a restored one
continues unchanged, so that ranks agree wherever their pipelines were.
"""

from typing import Any

import numpy as np

from het_tf.ext.streams.python.on_demand import Readers, components_of
from het_tf.ext.streams.python.pipeline import ids_of_samples
from het_tf.ext.streams.python.placement import Placement, mixed, words
from het_tf.python.hashing import GAMMA
from het_tf.python.session import native
from het_tf.python.session.native import tf

LOCATION = "location"
"""The `by` of a `Placement` by location."""

SLOTS = 1 << 22  # as Location::kSlots


def keys_of(table: int, ids: Any) -> Any:
    """Returns the keys of ids, uint64 of their shape: hashes of the table's number, from 0, and the id."""
    return mixed(words(ids) + np.uint64((table + 1) * int(GAMMA) % 2**64))


class ByLocation:
    """Places samples on the workers that used their rows last. Has the interface of `placed.ByField`.

    Args:
      placement: Workers and batch.
      spec: Spec of global batches.
      readers: The layers that will look the ids up.

    Raises:
      ValueError: The plan is missing or invalid, or the ids are not found in the features.
    """

    def __init__(self, placement: Placement, spec: Any, readers: Readers) -> None:
        if readers.layer is None:
            raise ValueError(
                "by is 'location', but lookahead is None; give lookahead=LAYER, the layer or model that "
                "looks the ids up, so that each rank knows which features are ids"
            )
        self._placement, self._readers = placement, readers
        self.begin = np.zeros(SLOTS, np.uint32)
        self.kind = ""
        tf.function(self._keys).get_concrete_function(spec)  # errors are raised here, on all ranks

    def _keys(self, element: Any) -> Any:
        found = ids_of_samples(self._readers.layer, self._readers.inputs, components_of(element))
        names = list(dict.fromkeys(feature.table.name for feature, _ in found))
        self.kind = f"{len(found)} features of {len(names)} tables"  # whose names may differ
        keys = []
        for feature, ids in found:
            ragged, table = isinstance(ids, tf.RaggedTensor), names.index(feature.table.name)
            of_ids = keys_of(table, ids.values if ragged else ids)
            # Shorter lists of ids are padded with 0, which is not a key.
            keys.append(ids.with_values(of_ids).to_tensor(np.uint64(0)) if ragged else of_ids)
        return tf.concat(keys, 1)

    def owners(self, state: Any, batches: Any, element: Any) -> tuple[Any, Any, Any]:
        """See `placed.ByField.owners`; owners depend on all earlier batches of the pass."""
        of, keys = self._placement, self._keys(element)
        with tf.device("/device:CPU:0"):
            owners, state = native.ops.het_place_samples(
                keys, slots=state, number=batches, workers=of.workers, batch=of.batch
            )
        owners.set_shape([of.samples])
        state.set_shape([SLOTS])
        return state, mixed(tf.reduce_sum(keys, 1)), owners
