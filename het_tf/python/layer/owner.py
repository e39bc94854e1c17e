"""Finds the model that trains a layer, for values of its compiled optimizer."""

import sys
import weakref
from typing import Any

from het_tf.python.layer import reduction, unreached
from het_tf.python.session import settings
from het_tf.python.session.native import tf
from het_tf.python.table import dense_optimizer, layer_state

SCRATCH = "scratch_graph"  # begins or ends the name of a temporary graph of Keras


def note(layer: Any) -> None:
    """Records the outermost model around the present call of `layer`."""
    model = layer._get_call_context().entry_layer
    layer_state.of(layer).model = None if model is None or model is layer else weakref.ref(model)
    if model is not None and settings.workers() > 1 and reduction.in_train_step(model):
        reduction.require_reduction(model)
    optimizer = _optimizer(layer)
    _refuse_accumulation(model, optimizer)
    unreached.warn_of_options(model, optimizer)
    dense_optimizer.before_build(layer, optimizer)


def is_from_config() -> bool:
    """Whether a layer is being made from a configuration, its own or an outer model's."""
    frame = sys._getframe(1)
    while frame is not None:
        made = frame.f_locals.get("cls") if frame.f_code.co_name == "from_config" else None
        if isinstance(made, type) and issubclass(made, tf.keras.layers.Layer):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def infers_shapes() -> bool:
    """Whether Keras calls the layer in a temporary graph, to learn its output shapes or to build it."""
    return SCRATCH in str(getattr(tf.compat.v1.get_default_graph(), "name", ""))


def _optimizer(layer: Any) -> Any:
    return getattr(_model(layer), "optimizer", None)


def _model(layer: Any) -> Any:
    reference = None if layer is None else layer_state.of(layer).model
    return None if reference is None else reference()


def in_own_step(layer: Any) -> bool:
    """Whether Keras' own train_step of the layer's model is running."""
    model = _model(layer)
    return model is not None and reduction.in_train_step(model)


def scales_loss(layer: Any) -> bool:
    """Whether the optimizer of the layer's model multiplies losses."""
    optimizer = _optimizer(layer)
    factor = getattr(optimizer, "loss_scale_factor", None)
    return factor is not None or dense_optimizer.inner(optimizer) is not optimizer


def _refuse_accumulation(model: Any, optimizer: Any) -> None:
    """Raises ValueError for an optimizer that accumulates gradients over steps, unlike tables."""
    steps = getattr(dense_optimizer.inner(optimizer), "gradient_accumulation_steps", None)
    if steps:
        raise ValueError(
            f"the optimizer of model {model.name!r} has gradient_accumulation_steps={steps}, but its tables "
            "are updated in every step: rows would move while the rest of the model stays. Leave it out, and "
            f"give batches {steps} times as large"
        )


def learning_rate(layer: Any, table: str) -> Any:
    """Returns the learning rate of the optimizer of the layer's model, as a tensor.

    Raises:
      RuntimeError: The model was not compiled.
    """
    optimizer = _optimizer(layer)
    if optimizer is None:
        raise RuntimeError(
            f"het_tf: the optimizer of table {table!r} has learning_rate='model', but the layer is not "
            "trained by a compiled model; call model.compile(optimizer=...), or give a number, a schedule or "
            "a tf.Variable"
        )
    inner = dense_optimizer.inner(optimizer)
    return tf.convert_to_tensor(inner.learning_rate)
