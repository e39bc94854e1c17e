"""Mesh on TensorFlow: its collectives are ops, in graphs too (kernels/collective_kernels.cc)."""

import functools
from typing import Any

from het_tf.ext.workers.python.mesh import Mesh
from het_tf.python.session import native
from het_tf.python.session.native import tf


@functools.cache
def _order() -> Any:
    """The variable whose handle chains the collectives of a graph."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(0.0, trainable=False)


class TensorMesh(Mesh):
    """`Mesh` on tensors."""

    def mean(self, gradients: list[Any], label: str) -> list[Any]:
        """As Workers.mean."""
        dense = [one for one in gradients if not isinstance(one, tf.IndexedSlices)]
        reduced = iter(_reduce(dense, label, mean=True))
        return [
            self._mean_of_slices(one, f"{label}.{number}")
            if isinstance(one, tf.IndexedSlices)
            else next(reduced)
            for number, one in enumerate(gradients)
        ]

    def _mean_of_slices(self, slices: Any, label: str) -> Any:
        values = self.gather(slices.values / self.size, f"{label}.values")
        return tf.IndexedSlices(values, self.gather(slices.indices, f"{label}.indices"), slices.dense_shape)

    def sum(self, value: Any, label: str) -> Any:
        """As Workers.sum."""
        return _reduce([value], label, mean=False)[0]

    def gather(self, value: Any, label: str) -> Any:
        """As Workers.gather."""
        value = tf.convert_to_tensor(value)
        with tf.device("CPU:0"):
            all_of_it = native.ops.het_gather(value=value, order=_order().handle, label=label, name=label)
        all_of_it.set_shape([None, *value.shape[1:]])
        return all_of_it

    def accumulate(self, arguments: dict[str, Any]) -> Any:
        """Updates rows by the sums of all ranks' gradients; all must call it for the same variable.

        Args:
          arguments: Of HetApplyGrad.
        """
        label = "het_tf.accumulate"
        with tf.device("CPU:0"):
            return native.ops.het_accumulate(**arguments, order=_order().handle, label=label, name=label)

    def broadcast(self, value: Any, label: str) -> Any:
        """As Workers.broadcast."""
        return super().broadcast(value.numpy() if tf.is_tensor(value) else value, label)


def _reduce(values: list[Any], label: str, mean: bool) -> list[Any]:
    """Sums tensors over all ranks; smaller floats travel as float32."""
    if not values:
        return []
    values = [tf.convert_to_tensor(one) for one in values]
    wide = [tf.cast(one, tf.float32) if one.dtype in (tf.float16, tf.bfloat16) else one for one in values]
    with tf.device("CPU:0"):
        sums = native.ops.het_reduce(values=wide, order=_order().handle, label=label, mean=mean, name=label)
    return [tf.cast(total, one.dtype) for total, one in zip(sums, values, strict=True)]
