"""Strategies of tf.distribute, which tables refuse but for one device."""

from het_tf.python.session.native import tf

_REFUSED = ("MultiWorkerMirroredStrategy", "MirroredStrategy", "ParameterServerStrategy", "TPUStrategy")


def check(layer: str) -> None:
    """Refuses a layer in the scope or a replica of a strategy, which would train its rows wrongly.

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
    known = (name for name in _REFUSED if isinstance(strategy, getattr(tf.distribute, name)))
    raise RuntimeError(
        f"layer {layer!r} is used under {next(known, type(strategy).__name__)}, which tables of "
        "het_tf do not support; start one rank a device, without a strategy: "
        "het run --nproc N (docs/workers.md)"
    )
