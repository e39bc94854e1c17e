"""Several workers on TensorFlow: collectives are ops, and steps are graphs."""

from collections.abc import Iterable
from typing import Any

from het_tf.ext.window.python import planned
from het_tf.ext.workers.python import agreement, shortest
from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf
from het_tf.python.table.table import flush

BEGINS_IN_STEP = True
NO_JIT = "XLA has no kernels of an all-reduce nor of het_tf's lookup"
outside_graphs = tf.init_scope
fits = shortest.fits
value = tf.convert_to_tensor


def have_values(weights: Iterable[Any]) -> bool:
    """Whether all weights are initialised; weights of a traced function are so only after the trace."""
    return all(bool(weight.value.is_initialized()) for weight in weights)


def reduce(gradients: list[Any], tickets: list[bool]) -> list[Any]:
    """Averages gradients over all ranks.

    Args:
      gradients: Tensors and IndexedSlices.
      tickets: For each whether it is a ticket, which stays this rank's.
    """
    prefix = collective.name("gradient")
    values = [one.values if isinstance(one, tf.IndexedSlices) else one for one in gradients]
    shortest.compare(values)
    with tf.control_dependencies(agreement.compare(values)):
        # Of a ticket only whether it is finite: 0 or NaN.
        means = settings.workers().mean(
            [
                tf.reduce_sum(0.0 * one) if ticket else one
                for one, ticket in zip(gradients, tickets, strict=True)
            ],
            prefix,
        )
    # A table's update comes after all ranks' lookups, which are before their gradients. The order of a
    # ticket's numbers tells that it has been here.
    with tf.control_dependencies(means):
        return [
            tf.reverse(gradient, [1]) + mean if ticket else mean
            for gradient, ticket, mean in zip(gradients, tickets, means, strict=True)
        ]


def settle() -> None:
    """Flushes on all ranks, if a pass of a stream has begun in which one holds back rows (planned.py)."""
    if (passes := planned.passes()) is not None and any(collective.gather(passes, "passes")):
        flush(all_ranks=True)


end_passes = planned.end_passes
