"""The dense optimizer of a model with layers of tables: building it, and its variables."""

from typing import Any

from het_tf.python.table import layer_state


def before_build(layer: Any, optimizer: Any) -> None:
    """Prepares `layer` before an optimizer is built for its model."""
    own = inner(optimizer)
    if own is not None and not own.built:
        # Keras' TensorFlow optimizer fails at moving averages of variables that are overwritten with their
        # gradients (it finds None in their place); the anchor is then an ordinary variable with
        # gradient 0.
        layer.anchor.overwrite_with_gradient = not own.use_ema


def optimizer_variables(model: Any) -> list[Any]:
    """Returns the variables of a model's optimizer, built if needed; [] without an optimizer."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        for layer in layer_state.layers_of(model):
            before_build(layer, optimizer)
        optimizer.build(model.trainable_variables)
        optimizer.built = True
    return variables_of(optimizer)


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer; [] for None."""
    return list(getattr(optimizer, "variables", []))


def inner(optimizer: Any) -> Any:
    """The optimizer inside a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)
