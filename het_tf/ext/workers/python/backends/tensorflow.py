"""Several workers on TensorFlow: collectives are ops, and steps are graphs."""

from collections.abc import Iterable
from typing import Any

from het_tf.ext.streams.python import agreement, on_demand
from het_tf.ext.workers.python import shortest
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


def reduce(gradients: list[Any]) -> list[Any]:
    """Averages gradients, tensors and IndexedSlices, over all ranks."""
    values = [one.values if isinstance(one, tf.IndexedSlices) else one for one in gradients]
    shortest.compare(values)
    with tf.control_dependencies(agreement.compare(values)):
        return settings.workers().mean(gradients, "het_tf.gradient")


def settle() -> None:
    """Flushes on all ranks, if a pass of a stream has begun in which one holds back rows (on_demand.py)."""
    if (passes := on_demand.passes()) is not None and any(collective.gather(passes, "passes")):
        flush(all_ranks=True)


end_passes = on_demand.end_passes
