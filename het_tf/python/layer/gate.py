"""The gate of the bulk-synchronous mode: no rank writes before every rank has read."""

from typing import Any

from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf


def gated(scale: Any, token: Any, gradients: list[Any]) -> Any:
    """`scale`, but not before every rank has come this far.

    With staleness 0 all ranks' reads of a step must come before all ranks' writes of it, or a rank
    that is late reads rows that its step should not contain yet. The all-reduce of the anchor's
    gradient at the end of a step keeps the next step's reads after this step's writes; this keeps
    the writes after the reads.

    Args:
      scale: float32 scalar, an input of the write.
      token: int64 scalar >= 0, an output of the read.
      gradients: Of the rows: they come after all of this rank's reads, those of other layers too.

    Returns:
      `scale`.
    """
    hvd = settings.horovod()
    if hvd is None or not settings.several_workers():
        return scale
    with tf.control_dependencies(gradients):
        # A zero that Grappler cannot know to be one: an all-reduce of a constant it would run once, when it
        # folds constants, and control edges to constants it drops.
        zero = tf.cast(tf.minimum(token, 0), tf.float32)
        arrived = hvd.allreduce(zero, op=hvd.Sum, name=collective.name("gate"), ignore_name_scope=True)
    return scale + arrived
