"""Copies the compiled optimizer of a model, with the state of the weights that stay.

Optimizers of Keras keep slots as lists with a variable for each weight that they were built for, and numbers
such as `iterations` as separate variables; the LossScaleOptimizer wraps another optimizer. Optimizers of
`keras.optimizers.legacy` (Keras 2) keep slots by weight and name.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from het_tf.python.session.native import KERAS_3, FloatArray, tf
from het_tf.python.table import dense_optimizer, optimizers

keras: Any = tf.keras
_OF_THE_CLASS = ("_variables", "_trainable_variables", "_non_trainable_variables", "_weights")
_INNER = ("inner_optimizer", "_optimizer", "_loss_scale")
_LEGACY_NAMES = {
    "SGD": {"momentums": "momentum"},
    "Adam": {"momentums": "m", "velocities": "v"},
    "Ftrl": {"linears": "linear", "accumulators": "accumulator"},
}


def is_legacy(optimizer: Any) -> bool:
    """Whether it is one of `tf.keras.optimizers.legacy`."""
    legacy = getattr(keras.optimizers, "legacy", None)
    return not KERAS_3 and legacy is not None and isinstance(optimizer, legacy.Optimizer)


def inner(optimizer: Any) -> Any:
    """The optimizer inside a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def index_of(optimizer: Any, variable: Any) -> int | None:
    """Index of a variable among those that an optimizer was built for; None: it is not among them."""
    numbers = getattr(optimizer, "_trainable_variables_indices", None)  # Keras 3
    if numbers is None:
        numbers = getattr(optimizer, "_index_dict", {})
    key = getattr(optimizer, "_var_key", None)
    return None if key is None else numbers.get(key(variable))


def has_trained(optimizer: Any) -> bool:
    """Whether an optimizer (without a LossScaleOptimizer around it) has slots."""
    if is_legacy(optimizer):
        return int(np.asarray(optimizer.iterations)) > 0
    return bool(getattr(optimizer, "built", False) or getattr(optimizer, "_built", False))


def knows(optimizer: Any, variable: Any) -> bool:
    """Whether an optimizer has trained a variable; it must have trained."""
    if is_legacy(optimizer):  # it creates slots when it trains a variable
        return not optimizer.get_slot_names() or variable._unique_id in optimizer._slots
    return index_of(optimizer, variable) is not None


def slot(optimizer: Any, variable: Any, name: str) -> FloatArray:
    """Returns a slot of a variable that the optimizer knows.

    Args:
      optimizer: Without a LossScaleOptimizer around it.
      variable: One that it has trained.
      name: As in Keras 3 (`momentums`; other classes and versions of Keras call it `_momentums`).
    """
    if is_legacy(optimizer):
        found = optimizer.get_slot(variable, _LEGACY_NAMES[type(optimizer).__name__][name])
    else:
        slots = getattr(optimizer, name) if hasattr(optimizer, name) else getattr(optimizer, f"_{name}")
        found = slots[index_of(optimizer, variable)]
    return np.asarray(found, np.float32)


def last_rate(optimizer: Any) -> float:
    """The learning rate of the last step."""
    step = max(0, int(np.asarray(optimizer.iterations)) - 1)
    rate: Any
    if is_legacy(optimizer):
        rate = optimizer._get_hyper("learning_rate")
        decay = 1.0 + float(optimizer.get_config().get("decay", 0.0)) * step
        return float(rate(step) if optimizers.is_schedule(rate) else rate) / decay
    rate = getattr(optimizer, "_learning_rate", None)
    if optimizers.is_schedule(rate):
        return float(rate(step))
    return float(np.asarray(optimizer.learning_rate))


def compile_like(model: Any, old: Any) -> bool:
    """Compiles a model like another one, with a new optimizer and new metrics.

    Returns:
      Whether it did: False for a class that overrides `compile`.
    """
    config = getattr(getattr(old, "_compile_config", None), "config", None)
    if not getattr(old, "compiled", getattr(old, "_is_compiled", False)) or config is None:
        return False
    if type(old).compile is not keras.Model.compile and not isinstance(old, keras.Sequential):
        return False
    arguments = {name: _own(value) for name, value in dict(config).items()}
    optimizer = arguments.get("optimizer")
    if isinstance(old.optimizer, type(optimizer)) or isinstance(optimizer, str):
        arguments["optimizer"] = _copy(old.optimizer)
    if arguments.get("jit_compile") is True:
        arguments["jit_compile"] = False
    model.compile(**arguments)
    return True


def _own(value: Any) -> Any:
    """Returns the value with copies of its metrics."""
    if isinstance(value, keras.metrics.Metric):
        return _copy(value)
    if isinstance(value, dict):
        return {name: _own(each) for name, each in value.items()}
    return [_own(each) for each in value] if isinstance(value, (list, tuple)) else value


def _copy(thing: Any) -> Any:
    return type(thing).from_config(thing.get_config())


def carry(model: Any, old: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Copies the state of an optimizer to another model's.

    Args:
      model: The new one, compiled.
      old: The old model.
      pairs: Each weight that stays, in the old model and in the new one.
    """
    source, target = inner(old.optimizer), inner(model.optimizer)
    if not has_trained(source):
        return
    if is_legacy(source):
        target._create_all_weights(model.trainable_variables)
        target.iterations.assign(source.iterations)
        for a, b in pairs:
            for name in source.get_slot_names() if a._unique_id in source._slots else ():
                target.get_slot(b, name).assign(source.get_slot(a, name))
        places = []
    else:
        dense_optimizer.optimizer_variables(model)
        numbers = [(index_of(source, a), index_of(target, b)) for a, b in pairs]
        places = [(a, b) for a, b in numbers if a is not None and b is not None]
    _carry(old.optimizer, model.optimizer, places)


def _carry(source: Any, target: Any, places: list[tuple[int, int]]) -> None:
    for name, value in list(vars(source).items()):
        there = vars(target).get(name)
        if name in _INNER and there is not None:
            _carry(value, there, places)
        elif optimizers.is_variable(value) and optimizers.is_variable(there):
            there.assign(np.asarray(value))
        elif isinstance(value, list) and isinstance(there, list) and name not in _OF_THE_CLASS:
            for a, b in places:
                if a < len(value) and b < len(there) and optimizers.is_variable(value[a]):
                    there[b].assign(np.asarray(value[a]))
