"""What makes staleness 0 bulk-synchronous: nobody updates a row of a step before everybody has read it.

The all-reduced gradient of the anchor keeps the next step's reads behind this step's updates. That alone does
not keep this step's updates behind the reads of a slower worker, which would then see half of the step.
"""

from __future__ import annotations

from typing import Any

from het_tf.python import runtime
from het_tf.python.native import tf


def is_needed(layer: Any) -> bool:
    """Whether the layer is bulk-synchronous and has other workers beside it."""
    if layer is None or not (runtime.elastic() or runtime.workers() > 1):
        return False
    return layer._het_cache.pull_bound == 0 and layer._het_cache.push_bound == 0


def wait_for_readers(scale: Any, token: Any, gradients: list[Any], name: str | None) -> Any:
    """Returns `scale`, once all workers have got so far as to have what is `done`.

    Args:
      scale: float32 scalar that the update depends on.
      done: Tensors that exist when the worker's lookups of the step are over: the token, and the gradients of
        the rows (which alone may be constants).
      name: Of the all-reduce; the same at all workers, unlike any other of the graph. None in eager mode.
    """
    hvd = runtime.horovod()
    with tf.control_dependencies(gradients):
        here = tf.cast(token, tf.float32)
    workers = hvd.allreduce(here, op=hvd.Sum, name=name)
    return scale * tf.minimum(workers, 1.0)
