"""The mode `accumulate`: sums a step's gradients over all workers; one of them updates each row.

Without it N workers that share a row make N successive updates of it in a step, and an optimizer
with state sees N small gradients in place of one. Here every key has an owner, a worker by the key's hash:

    each worker   HetSumGrads    sums its gradients per key, one part for every owner
    all           hvd.alltoall   one exchange a layer and step
    each owner    HetApplySums   adds the parts in the order of the workers, one update a key

The parts also carry the result of the step: all workers get an error or an overflow of one.
"""

from typing import Any

from het_tf.python.session import collective, native, settings
from het_tf.python.session.native import tf


def apply_gradients(
    ids: list[Any],
    grads: list[Any],
    token: Any,
    learning_rates: Any,
    scale: Any,
    loss_scale: Any,
    tables: list[str],
    specs: Any,
) -> Any:
    """Updates the tables once with the gradients of all workers.

    All workers call it for the same layer at the same step, also those whose batch is empty.

    Args:
      ids: As in HetApplyGrad, like all that follow.
      grads: Gradients of the rows.
      token: Token of the lookup.
      learning_rates: float32 [tables].
      scale: float32 scalar.
      loss_scale: float32 scalar.
      tables: Table of each feature.
      specs: core/engine/call_spec.h.

    Returns:
      The anchor's gradient, float32 scalar: 0, or NaN if a worker skipped the step for its loss scale.
    """
    hvd = settings.horovod()
    with tf.device("CPU:0"):
        parts = native.ops.het_sum_grads(
            ids=ids,
            grads=grads,
            token=token,
            scale=scale,
            loss_scale=loss_scale,
            workers=hvd.size_op(),
            tables=tables,
            specs=specs,
        )
        received, lengths = hvd.alltoall(
            parts.payload, parts.splits, name=collective.name("accumulate"), ignore_name_scope=True
        )
        return native.ops.het_apply_sums(
            received=received,
            lengths=lengths,
            learning_rates=learning_rates,
            tie=parts.tie,
            tables=tables,
            specs=specs,
        )
