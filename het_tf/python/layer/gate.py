"""The gate of the bulk-synchronous mode: no rank writes before every rank has read."""

from typing import Any

from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf


def gated(scale: Any, token: Any, gradients: list[Any]) -> Any:
    """Returns `scale` after every rank has reached this point.

    With staleness 0 all ranks' reads of a step must come before all ranks' writes of it, or a late
    rank reads updates of its own step. The all-reduce of the anchor's
    gradient at the end of a step keeps the next step's reads after this step's writes; the gate keeps
    the writes after the reads.

    Args:
      scale: float32 scalar, an input of the write.
      token: int64 scalar >= 0, an output of the read.
      gradients: Gradients of the rows: they come after all of this rank's reads, also in other layers.

    Returns:
      `scale`.
    """
    hvd = settings.horovod()
    if hvd is None or not settings.several_workers():
        return scale
    with tf.control_dependencies(gradients):
        # A zero that Grappler cannot recognise: it would run an all-reduce of a constant once, when it
        # folds constants, and it drops control edges to constants.
        zero = tf.cast(tf.minimum(token, 0), tf.float32)
        arrived = hvd.allreduce(zero, op=hvd.Sum, name=collective.name("gate"), ignore_name_scope=True)
    return scale + arrived
