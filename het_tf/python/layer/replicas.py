"""The replicas of a tf.distribute.MirroredStrategy: threads of one process that share its tables.

Keras sums the replicas' gradients of a variable and updates it once. Rows do the same, with the two halves of
an update that workers use, too (accumulate.py):

    each replica   HetSumGrads    sums its gradients per key
    all            merge_call     one thread collects the parts
    once           HetApplySums   adds them in the order of the replicas, one update a key
"""

from typing import Any

from het_tf.python.session import native, settings
from het_tf.python.session.native import tf

_REFUSED = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy")


def refuse_strategy(layer: str) -> None:
    """Refuses a layer in the scope or a replica of a strategy that would train its rows wrongly.

    Args:
      layer: Its name, for the message.

    Raises:
      RuntimeError: The strategy is not supported.
    """
    if not tf.distribute.has_strategy():
        return
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return
    if not isinstance(strategy, tf.distribute.MirroredStrategy):
        known = (name for name in _REFUSED if isinstance(strategy, getattr(tf.distribute, name)))
        kind = next(known, type(strategy).__name__)
        raise RuntimeError(
            f"layer {layer!r} is used under {kind}, which tables of het_tf do not support; take "
            "tf.distribute.MirroredStrategy for the devices of one host (docs/tf-distribute.md), and Horovod "
            "for several hosts (docs/horovod.md)"
        )
    devices = [tf.DeviceSpec.from_string(device) for device in strategy.extended.worker_devices]
    hosts = {(device.job, device.replica, device.task) for device in devices}
    if len(hosts) > 1:
        raise RuntimeError(
            f"layer {layer!r} is used under a MirroredStrategy with devices of {len(hosts)} hosts, but its "
            "rows are in this process; give MirroredStrategy devices of one host, and take Horovod for "
            "several (docs/horovod.md)"
        )
    if strategy.num_replicas_in_sync > 1 and settings.several_workers():
        raise RuntimeError(
            f"layer {layer!r} is used under a MirroredStrategy with {strategy.num_replicas_in_sync} replicas "
            "in a job of several ranks; start one rank for each device (horovodrun -np), without a strategy"
        )


def several() -> bool:
    """Whether the caller is one of several replicas."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def apply_gradients(learning_rates: Any, tables: list[str], specs: Any, **gradients: Any) -> Any:
    """Updates the tables once with the gradients of all replicas. Each replica must call it.

    Args:
      learning_rates: float32 [tables].
      tables: Table of each feature.
      specs: core/engine/call_spec.h.
      **gradients: This replica's inputs of HetApplyGrad, except learning_rates.

    Returns:
      The anchor's gradient, float32 scalar: 0, or NaN if a replica skipped the step for its loss scale.
    """
    names = {"tables": tables, "specs": specs}
    with tf.device("CPU:0"):
        part = native.ops.het_sum_grads(workers=1, **gradients, **names)

    def apply(strategy: Any, *of_replicas: Any) -> Any:
        payloads, ties, rates = map(strategy.experimental_local_results, of_replicas)
        with tf.device("CPU:0"):
            return native.ops.het_apply_sums(
                received=tf.concat(payloads, 0),
                lengths=[tf.size(payload) for payload in payloads],
                learning_rates=rates[0],
                tie=tf.add_n(ties),
                **names,
            )

    context = tf.distribute.get_replica_context()
    anchor_gradient = context.merge_call(apply, args=(part.payload, part.tie, learning_rates))
    return tf.identity(anchor_gradient)  # Keras would take one tensor for all replicas as mirrored
