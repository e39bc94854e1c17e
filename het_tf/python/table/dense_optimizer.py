"""The dense optimizer of a model that has layers of tables: how it is built, and its variables."""

from typing import Any

from het_tf.python.session.native import KERAS_3
from het_tf.python.table import layer_state


def before_build(layer: Any, optimizer: Any) -> None:
    """Before an optimizer is built for the weights of `layer`'s model."""
    own = inner(optimizer)
    if KERAS_3 and own is not None and not own.built:
        # Keras' TensorFlow optimizer fails at moving averages of variables that are overwritten with their
        # gradients (it meets a None in their place); the anchor then is a variable like others, whose
        # gradient is 0.
        layer.anchor.overwrite_with_gradient = not own.use_ema


def optimizer_variables(model: Any) -> list[Any]:
    """The variables of a model's optimizer, which is built if it is not; [] without one."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        for layer in layer_state.layers_of(model):
            before_build(layer, optimizer)
        optimizer.build(model.trainable_variables)
        optimizer.built = True
    return variables_of(optimizer)


def variables_of(optimizer: Any) -> list[Any]:
    """The variables of an optimizer, which Keras 2 gives by a function; [] of None."""
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def inner(optimizer: Any) -> Any:
    """The optimizer inside of a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)
