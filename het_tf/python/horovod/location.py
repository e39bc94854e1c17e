"""`het_tf.horovod.shard(data, by="location", batch=B, plan=layer)`: samples go where their rows were used.

The rule is core/plan/location.h, which the op het_place_samples runs. What it remembers, 16 MB, is handed
from batch to batch: a pass that is left, begun again or restored changes no other one, and a restored one
goes on as it would have, so that ranks agree wherever their pipelines were.
"""

from typing import Any

import numpy as np

from het_tf.python.horovod.planned import Planned, components_of
from het_tf.python.horovod.tensors import Tensors
from het_tf.python.layer.plan import ids_of_samples
from het_tf.python.placement.location import SLOTS, keys_of
from het_tf.python.placement.placement import Placement, mixed
from het_tf.python.session import native
from het_tf.python.session.native import tf


class ByLocation:
    """Samples go to the workers that used their rows last. Has what `placed.ByField` has.

    Args:
      placement: Workers and batch.
      spec: Of global batches.
      planned: What will look the ids up.

    Raises:
      ValueError: There is no plan, it is none, or the ids are not found in the features.
    """

    def __init__(self, placement: Placement, spec: Any, planned: Planned) -> None:
        if planned.layer is None:
            raise ValueError(
                "by is 'location', and plan is None; give plan=LAYER, the layer or model that looks the ids "
                "up, so that shard knows which features are ids"
            )
        self._placement, self._planned = placement, planned
        self.begin = np.zeros(SLOTS, np.uint32)
        self.kind = ""
        tf.function(self._keys).get_concrete_function(spec)  # what is wrong is told here, to all ranks

    def _keys(self, element: Any) -> Any:
        found = ids_of_samples(self._planned.layer, self._planned.inputs, components_of(element))
        names = list(dict.fromkeys(name for name, _ in found))
        self.kind = f"{len(found)} features of {len(names)} tables"  # of which names may differ
        keys = []
        for name, ids in found:
            ragged = isinstance(ids, tf.RaggedTensor)
            values = ids.values[:, None] if ragged else ids
            of_ids = keys_of([(names.index(name), values)], Tensors)
            # Shorter lists of ids are filled up with 0, which is no key.
            keys.append(ids.with_values(of_ids[:, 0]).to_tensor(np.uint64(0)) if ragged else of_ids)
        return tf.concat(keys, 1)

    def owners(self, state: Any, batches: Any, element: Any) -> tuple[Any, Any, Any]:
        """See `placed.ByField.owners`; owners follow from all batches of the pass before this one."""
        of, keys = self._placement, self._keys(element)
        with tf.device("/device:CPU:0"):
            owners, state = native.ops.het_place_samples(
                keys, slots=state, number=batches, workers=of.workers, batch=of.batch
            )
        owners.set_shape([of.samples])
        state.set_shape([SLOTS])
        return state, mixed(tf.reduce_sum(keys, 1), Tensors), owners
