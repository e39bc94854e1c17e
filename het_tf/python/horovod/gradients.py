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

    Every rank must call it for the same variables in the same order, including the anchors of het_tf's
    layers: with staleness 0 their reduction keeps the ranks in step. A graph runs it even if
    the result is unused, or used only by a control edge.

    Args:
      gradients: A nest of tensors, IndexedSlices and None, from a tape.

    Returns:
      The same nest; None stays None. Without Horovod, or with one rank, the gradients unchanged.

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
    """Makes the graph run these all-reduces.

    Grappler removes an op without side effects if no op with side effects uses its data. An assertion
    has side effects: it takes the first number of each.
    """
    values = _values(reduced)
    if values:
        tf.raw_ops.Assert(condition=True, data=[tf.reshape(value, [-1])[:1] for value in values])
