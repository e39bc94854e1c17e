"""The loss scale that the gradients of rows are divided by, and no other factor of a loss.

A LossScaleOptimizer multiplies the loss, and divides the gradients that it is given. Tables take theirs on
the way, so they divide by the same number:

    lookup ─► ... ─► loss ─► / replicas, / steps, ... ─► optimizer.scale_loss(loss)
    update ◄─ ... ◄─ gradient ◄─────────────────────────── notes the scale, when a gradient passes

All other factors belong to the loss that the user has asked to minimise. The note is of the thread, and lasts
until its next training lookup.

A loss that is scaled by hand passes no optimizer. There the probe of the lookup tells: a zero that the layer
adds to the model's losses, whose gradient is whatever the loss was multiplied by.
"""

import functools
import threading
from typing import Any

from het_tf.python.layer import owner
from het_tf.python.session.native import KERAS_3, tf


class _Note(threading.local):
    scale: Any = None


_note = _Note()


def forget() -> None:
    """Before a training lookup: the loss that it is for has not been scaled yet."""
    _note.scale = None


def needed(layer: Any) -> bool:
    """Whether the gradients of a layer take a loss scale."""
    return bool(layer.compute_dtype == "float16")


def takes_probe(layer: Any) -> bool:
    """Whether the probe of a training lookup goes into the model's losses.

    Not where Keras' own step shows the scale: it has losses that no other one can be added to, such as those
    of a batch without samples.
    """
    return needed(layer) or owner.scales_loss(layer) or not owner.in_own_step(layer)


def of_gradient(layer: Any, float16: bool, probe: Any) -> Any:
    """What the loss was multiplied by, whose gradient is being taken.

    Args:
      layer: Of the lookup; None: it is gone.
      float16: Whether it computes, or has computed, in float16.
      probe: The gradient of the lookup's probe; None: it is no part of the loss.

    Returns:
      float32 scalar; 0 where there is no loss scale.
    """
    if _note.scale is not None:
        return _note.scale
    # In a tf.function inside of the one that scales the loss, the probe is all there is.
    if probe is not None and (float16 or owner.scales_loss(layer)):
        return probe
    return tf.zeros([], tf.float32)


def _watch(optimizer: Any, method: str) -> None:
    """Has the gradient of what a method of an optimizer returns note by how much it scales."""
    original = getattr(optimizer, method)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(original)
    def scaled(self: Any, loss: Any) -> Any:
        if callable(loss):
            return lambda: scaled(self, loss())
        result = original(self, loss)
        if result is loss:  # it scales nothing
            return loss
        scale = tf.convert_to_tensor(original(self, tf.ones([], tf.float32)))

        @tf.custom_gradient
        def noted(value: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                _note.scale = scale
                return upstream

            return tf.identity(value), gradient

        return noted(result)

    scaled.__dict__.pop("__wrapped__", None)  # tf.function would take it in the place of a method
    setattr(optimizer, method, scaled)


if KERAS_3:
    _watch(tf.keras.optimizers.Optimizer, "scale_loss")  # by loss_scale_factor
    _watch(tf.keras.optimizers.LossScaleOptimizer, "scale_loss")
else:
    for _optimizer in tf.keras.mixed_precision.LossScaleOptimizer.__subclasses__():
        _watch(_optimizer, "get_scaled_loss")
