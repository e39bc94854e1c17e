"""All-reduce of dense gradients, and the gate of the bulk-synchronous mode."""

from __future__ import annotations

from typing import Any

from het_tf.python.horovod import collective
from het_tf.python.session import runtime
from het_tf.python.session.native import tf


def reduce_gradients(gradients: Any) -> Any:
    """Averages gradients over all ranks: for custom loops, between `tape.gradient` and the optimizer.

        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = het_tf.horovod.reduce_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    Every rank must call it for the same variables in the same order, those of het_tf's layers (the anchors)
    included: with staleness 0 their reduction is what keeps the ranks in step.

    Args:
      gradients: A nest of tensors, IndexedSlices and None, as a tape gives it.

    Returns:
      The same nest; None stays None. Without Horovod, or with one rank, the gradients as they are.
    """
    hvd = runtime.horovod()
    if hvd is None or not runtime.several_workers():
        return gradients
    flat = tf.nest.flatten(gradients)
    prefix = collective.name("gradient")
    reduced = [
        None
        if gradient is None
        else hvd.allreduce(gradient, op=hvd.Average, name=f"{prefix}.{number}", ignore_name_scope=True)
        for number, gradient in enumerate(flat)
    ]
    return tf.nest.pack_sequence_as(gradients, reduced)


def gated(scale: Any, token: Any, gradients: list[Any]) -> Any:
    """`scale`, but not before every rank has come this far.

    With staleness 0 all ranks' reads of a step must come before all ranks' writes of it, or a rank that is
    late reads rows that its step should not contain yet. The all-reduce of the anchor's gradient at the end
    of a step keeps the next step's reads after this step's writes; this keeps the writes after the reads.

    Args:
      scale: float32 scalar, an input of the write.
      token: int64 scalar >= 0, an output of the read.
      gradients: Of the rows: they come after all of this rank's reads, those of other layers too.

    Returns:
      `scale`.
    """
    hvd = runtime.horovod()
    if hvd is None or not runtime.several_workers():
        return scale
    with tf.control_dependencies(gradients):
        # A zero that Grappler cannot know to be one: an all-reduce of a constant it would run once, when it
        # folds constants, and control edges to constants it drops.
        zero = tf.cast(tf.minimum(token, 0), tf.float32)
        arrived = hvd.allreduce(zero, op=hvd.Sum, name=collective.name("gate"), ignore_name_scope=True)
    return scale + arrived
