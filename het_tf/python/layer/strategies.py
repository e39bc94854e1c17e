"""The strategies of tf.distribute that tables support: the replicas of a MirroredStrategy share them."""

from het_tf.python.session import settings
from het_tf.python.session.native import tf

_REFUSED = ("MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy")


def check(layer: str) -> None:
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
            "for several hosts (docs/workers.md)"
        )
    devices = [tf.DeviceSpec.from_string(device) for device in strategy.extended.worker_devices]
    hosts = {(device.job, device.replica, device.task) for device in devices}
    if len(hosts) > 1:
        raise RuntimeError(
            f"layer {layer!r} is used under a MirroredStrategy with devices of {len(hosts)} hosts, but its "
            "rows are in this process; give MirroredStrategy devices of one host, and take Horovod for "
            "several (docs/workers.md)"
        )
    if strategy.num_replicas_in_sync > 1 and settings.several_workers():
        raise RuntimeError(
            f"layer {layer!r} is used under a MirroredStrategy with {strategy.num_replicas_in_sync} replicas "
            "in a job of several ranks; start one rank for each device (horovodrun -np), without a strategy"
        )
