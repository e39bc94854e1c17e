"""Finds the loss scale by which the gradients of rows are divided; other factors of a loss stay.

A LossScaleOptimizer multiplies the loss, and divides the gradients that it gets. Tables take their gradients
earlier, so they divide by the same number:

    lookup ─► ... ─► loss ─► / replicas, / steps, ... ─► optimizer.scale_loss(loss)
    update ◄─ ... ◄─ gradient ◄─────────────────────────── notes the scale, when a gradient passes

All other factors belong to the loss that the user minimises. The note belongs to the thread, and lasts
until its next training lookup.

A loss scaled by hand does not pass an optimizer. Then the probe of the lookup finds the scale: a zero that
the layer adds to the model's losses, whose gradient is the factor of the loss.
"""

import functools
import threading
from typing import Any

from het_tf.python.layer import owner
from het_tf.python.session.native import tf


class _Note(threading.local):
    scale: Any = None


_note = _Note()


def forget() -> None:
    """Resets the note before a training lookup, whose loss is not scaled yet."""
    _note.scale = None


def needed(layer: Any) -> bool:
    """Whether the gradients of a layer take a loss scale."""
    return bool(layer.compute_dtype == "float16")


def takes_probe(layer: Any) -> bool:
    """Whether to add the probe of a training lookup to the model's losses.

    Not if Keras' own step reveals the scale: some of its losses allow no addition, such as the loss
    of a batch without samples.
    """
    return needed(layer) or owner.scales_loss(layer) or not owner.in_own_step(layer)


def of_gradient(layer: Any, float16: bool, probe: Any) -> Any:
    """Returns the factor of the loss whose gradient is being taken.

    Args:
      layer: Layer of the lookup; None: it is gone.
      float16: Whether it computes, or has computed, in float16.
      probe: The gradient of the lookup's probe; None: it is not part of the loss.

    Returns:
      float32 scalar; 0 without a loss scale.
    """
    if _note.scale is not None:
        return _note.scale
    # In a tf.function inside the one that scales the loss, only the probe is available.
    if probe is not None and (float16 or owner.scales_loss(layer)):
        return probe
    return tf.zeros([], tf.float32)


def _watch(optimizer: Any) -> None:
    """Makes the gradient of a class's `scale_loss` note the scale."""
    original = optimizer.scale_loss

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(original)
    def scaled(self: Any, loss: Any) -> Any:
        result = original(self, loss)
        if result is loss:  # it does not scale
            return loss
        scale = tf.convert_to_tensor(original(self, tf.ones([], tf.float32)))

        @tf.custom_gradient
        def noted(value: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                _note.scale = scale
                return upstream

            return tf.identity(value), gradient

        return noted(result)

    scaled.__dict__.pop("__wrapped__", None)  # tf.function would use it in place of the method
    optimizer.scale_loss = scaled


_watch(tf.keras.optimizers.Optimizer)  # by loss_scale_factor
_watch(tf.keras.optimizers.LossScaleOptimizer)
