"""All-reduce of dense gradients."""

from typing import Any

from het_tf.ext.workers.python import agreement, shortest
from het_tf.python.layer import variable as variable_lib
from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf


def reduce_gradients(gradients: Any, variables: Any) -> Any:
    """Averages gradients over all ranks: for custom loops, between `tape.gradient` and the optimizer.

        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = het_tf.workers.reduce_gradients(gradients, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    Every rank must call it for the same variables in the same order, including those of het_tf's layers:
    their gradients stay this rank's, but with staleness 0 they keep the ranks in step, and all ranks learn
    of a NaN of one. A graph runs it even if the result is unused, or used only by a control edge.

    Args:
      gradients: A nest of tensors, IndexedSlices and None, from a tape.
      variables: The variables that they are of, in the same nest.

    Returns:
      The same nest; None stays None. With one rank the gradients unchanged.

    Raises:
      ValueError: There are more gradients than variables, or fewer.
      tf.errors.InvalidArgumentError: In the step: the ranks read a placed stream (`shard(by=)`) in different
        orders.
      RuntimeError: In an elastic job: the stream was placed for another number of workers.
    """
    if not settings.several_workers():
        return gradients
    flat, of = tf.nest.flatten(gradients), tf.nest.flatten(variables)
    if len(flat) != len(of):
        raise ValueError(
            f"there are {len(flat)} gradients and {len(of)} variables; give the variables that the tape was "
            "asked for, such as model.trainable_variables"
        )
    tickets = [variable_lib.is_ticket_of(one) for one in of]
    prefix, values = collective.name("gradient"), _values(flat)
    shortest.compare(values)
    with tf.control_dependencies(agreement.compare(values)):
        means = iter(
            settings.workers().mean(
                [
                    # Of a ticket only whether it is finite: 0 or NaN.
                    tf.reduce_sum(0.0 * gradient) if ticket else gradient
                    for gradient, ticket in zip(flat, tickets, strict=True)
                    if gradient is not None
                ],
                prefix,
            )
        )
    reduced = [None if gradient is None else next(means) for gradient in flat]
    # A table's update comes after all ranks' lookups, which are before their gradients. The order of a
    # ticket's numbers tells that it has been here.
    with tf.control_dependencies([one for one in reduced if one is not None]):
        reduced = [
            tf.reverse(gradient, [1]) + one if ticket and gradient is not None else one
            for gradient, ticket, one in zip(flat, tickets, reduced, strict=True)
        ]
    return tf.nest.pack_sequence_as(gradients, reduced)


def _values(gradients: list[Any]) -> list[Any]:
    """Their tensors."""
    return [one.values if isinstance(one, tf.IndexedSlices) else one for one in gradients if one is not None]
