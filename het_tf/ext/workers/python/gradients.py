"""All-reduce of dense gradients."""

from typing import Any

from het_tf.ext.workers.python.backends import ops
from het_tf.python.backend import keras
from het_tf.python.layer import variable as variable_lib
from het_tf.python.session import settings


def reduce_gradients(gradients: Any, variables: Any) -> Any:
    """Averages gradients over all ranks: for custom loops, between `tape.gradient` and the optimizer.

        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = het_tf.workers.reduce_gradients(gradients, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    Every rank must call it for the same variables in the same order, including those of het_tf's layers:
    their gradients stay this rank's, but with staleness 0 they keep the ranks in step, and all ranks learn
    of a NaN of one. A graph runs it even if the result is unused, or used only by a control edge.

    Args:
      gradients: A nest of tensors, IndexedSlices and None, from a tape or another backend's derivative.
      variables: The variables that they are of, in the same nest.

    Returns:
      The same nest; None stays None. With one rank the gradients unchanged.

    Raises:
      ValueError: There are more gradients than variables, or fewer.
      NotImplementedError: A gradient of PyTorch is sparse.
      tf.errors.InvalidArgumentError: In the step: the ranks read a placed stream (`shard_placed`) in
        different orders.
    """
    if not settings.several_workers():
        return gradients
    flat, of = keras.tree.flatten(gradients), keras.tree.flatten(variables)
    if len(flat) != len(of):
        raise ValueError(
            f"there are {len(flat)} gradients and {len(of)} variables; give the variables that the tape was "
            "asked for, such as model.trainable_variables"
        )
    flat = [variable_lib.bare(one) for one in flat]
    there = [number for number, gradient in enumerate(flat) if gradient is not None]
    # Of a ticket, which stays this rank's, only whether it is finite: 0 or NaN.
    reduced = ops.reduce(
        [
            keras.ops.sum(0.0 * flat[number]) if variable_lib.is_ticket_of(of[number]) else flat[number]
            for number in there
        ]
    )
    for number, mean in zip(there, reduced, strict=True):
        flat[number] = (
            variable_lib.marked(flat[number]) + mean if variable_lib.is_ticket_of(of[number]) else mean
        )
    return keras.tree.pack_sequence_as(gradients, flat)
