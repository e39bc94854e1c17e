"""The dense optimizer of a model with layers of tables: building it, and its variables."""

from typing import Any


def optimizer_variables(model: Any) -> list[Any]:
    """Returns the variables of a model's optimizer, built if needed; [] without an optimizer."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        optimizer.build(model.trainable_variables)
        optimizer.built = True
    return variables_of(optimizer)


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the variables of an optimizer; [] for None."""
    return list(getattr(optimizer, "variables", []))


def inner(optimizer: Any) -> Any:
    """The optimizer inside a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)
