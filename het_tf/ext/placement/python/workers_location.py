"""`het_tf.workers.shard(data, by="location", batch=B, lookahead=layer)`: places samples where rows were used.

The rule is core/plan/location.h, run by the op het_place_samples. Its state, 16 MB, passes
from batch to batch: a pass that is left, restarted or restored does not affect others, and a restored one
continues unchanged, so that ranks agree wherever their pipelines were.
"""

from typing import Any

import numpy as np

from het_tf.ext.placement.python.location import SLOTS, keys_of
from het_tf.ext.placement.python.placement import Placement, mixed
from het_tf.ext.window.python.pipeline import ids_of_samples
from het_tf.ext.window.python.planned import Planned, components_of
from het_tf.ext.workers.python.tensors import Tensors
from het_tf.python.session import native
from het_tf.python.session.native import tf


class ByLocation:
    """Places samples on the workers that used their rows last. Has the interface of `placed.ByField`.

    Args:
      placement: Workers and batch.
      spec: Spec of global batches.
      planned: The layers that will look the ids up.

    Raises:
      ValueError: The plan is missing or invalid, or the ids are not found in the features.
    """

    def __init__(self, placement: Placement, spec: Any, planned: Planned) -> None:
        if planned.layer is None:
            raise ValueError(
                "by is 'location', but lookahead is None; give lookahead=LAYER, the layer or model that "
                "looks the ids up, so that shard knows which features are ids"
            )
        self._placement, self._planned = placement, planned
        self.begin = np.zeros(SLOTS, np.uint32)
        self.kind = ""
        tf.function(self._keys).get_concrete_function(spec)  # errors are raised here, on all ranks

    def _keys(self, element: Any) -> Any:
        found = ids_of_samples(self._planned.layer, self._planned.inputs, components_of(element))
        names = list(dict.fromkeys(feature.table.name for feature, _ in found))
        self.kind = f"{len(found)} features of {len(names)} tables"  # whose names may differ
        keys = []
        for feature, ids in found:
            ragged = isinstance(ids, tf.RaggedTensor)
            values = ids.values[:, None] if ragged else ids
            of_ids = keys_of([(names.index(feature.table.name), values)], Tensors)
            # Shorter lists of ids are padded with 0, which is not a key.
            keys.append(ids.with_values(of_ids[:, 0]).to_tensor(np.uint64(0)) if ragged else of_ids)
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
        return state, mixed(tf.reduce_sum(keys, 1), Tensors), owners
