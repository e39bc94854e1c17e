"""All-reduce of dense gradients."""

from typing import Any

from het_tf.python.horovod import agreement, shortest
from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf


def reduce_gradients(gradients: Any) -> Any:
    """Averages gradients over all ranks: for custom loops, between `tape.gradient` and the optimizer.

        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = het_tf.horovod.reduce_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    Every rank must call it for the same variables in the same order, those of het_tf's layers (the anchors)
    included: with staleness 0 their reduction is what keeps the ranks in step. A graph runs it also where
    nothing uses the result, or a control edge alone.

    Args:
      gradients: A nest of tensors, IndexedSlices and None, as a tape gives it.

    Returns:
      The same nest; None stays None. Without Horovod, or with one rank, the gradients as they are.

    Raises:
      tf.errors.InvalidArgumentError: In the step: the ranks read a placed stream (`shard(by=)`) in different
        orders.
      RuntimeError: In an elastic job: the stream was placed for another number of workers.
    """
    hvd = settings.horovod()
    if hvd is None or not settings.several_workers():
        return gradients
    flat = tf.nest.flatten(gradients)
    prefix, values = collective.name("gradient"), _values(flat)
    shortest.compare(values)
    with tf.control_dependencies(agreement.compare(values)):
        reduced = [
            None
            if gradient is None
            else hvd.allreduce(gradient, op=hvd.Average, name=f"{prefix}.{number}", ignore_name_scope=True)
            for number, gradient in enumerate(flat)
        ]
    if not tf.executing_eagerly():
        _keep(reduced)
    return tf.nest.pack_sequence_as(gradients, reduced)


def _values(gradients: list[Any]) -> list[Any]:
    """Their tensors."""
    return [one.values if isinstance(one, tf.IndexedSlices) else one for one in gradients if one is not None]


def _keep(reduced: list[Any]) -> None:
    """Has the graph run these all-reduces.

    Grappler takes an op without side effects away if no data goes from it to one that has some. An assertion
    has: it is given the first number of each.
    """
    values = _values(reduced)
    if values:
        tf.raw_ops.Assert(condition=True, data=[tf.reshape(value, [-1])[:1] for value in values])
