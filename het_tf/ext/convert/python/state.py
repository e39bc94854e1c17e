"""Copies the compiled optimizer of a model, with the state of the weights that stay.

Optimizers of Keras keep slots as lists with a variable for each weight that they were built for, and numbers
such as `iterations` as separate variables; the LossScaleOptimizer wraps another optimizer.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from het_tf.python.backend import keras
from het_tf.python.layer.backends import ops
from het_tf.python.session.native import FloatArray
from het_tf.python.table import dense_optimizer, optimizers

_OF_THE_CLASS = ("_variables", "_trainable_variables")


def index_of(optimizer: Any, variable: Any) -> int | None:
    """Index of a variable among those that an optimizer was built for; None: it is not among them."""
    found: int | None = optimizer._trainable_variables_indices.get(optimizer._var_key(variable))
    return found


def has_trained(optimizer: Any) -> bool:
    """Whether an optimizer (without a LossScaleOptimizer around it) has slots."""
    return bool(optimizer.built)


def knows(optimizer: Any, variable: Any) -> bool:
    """Whether an optimizer has trained a variable; it must have trained."""
    return index_of(optimizer, variable) is not None


def slot(optimizer: Any, variable: Any, name: str) -> FloatArray:
    """Returns a slot of a variable that the optimizer knows.

    Args:
      optimizer: Without a LossScaleOptimizer around it.
      variable: One that it has trained.
      name: Such as `momentums`; some classes of Keras call it `_momentums`.
    """
    slots = getattr(optimizer, name) if hasattr(optimizer, name) else getattr(optimizer, f"_{name}")
    return np.asarray(slots[index_of(optimizer, variable)], np.float32)


def last_rate(optimizer: Any) -> float:
    """The learning rate of the last step."""
    step = max(0, int(np.asarray(optimizer.iterations)) - 1)
    rate: Any = optimizer._learning_rate
    if optimizers.is_schedule(rate):
        return float(rate(step))
    return float(np.asarray(optimizer.learning_rate))


def compile_like(model: Any, old: Any) -> bool:
    """Compiles a model like another one, with a new optimizer and new metrics.

    Returns:
      Whether it did: False for a class that overrides `compile`.
    """
    config = getattr(getattr(old, "_compile_config", None), "config", None)
    if not old.compiled or config is None:
        return False
    if type(old).compile is not keras.Model.compile and not isinstance(old, keras.Sequential):
        return False
    arguments = {name: _own(value) for name, value in dict(config).items()}
    optimizer = arguments.get("optimizer")
    if isinstance(old.optimizer, type(optimizer)) or isinstance(optimizer, str):
        arguments["optimizer"] = _copy(old.optimizer)
    if arguments.get("jit_compile") is True and not ops.JIT:
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
    source, target = map(dense_optimizer.inner, (old.optimizer, model.optimizer))
    if not has_trained(source):
        return
    dense_optimizer.optimizer_variables(model)
    numbers = [(index_of(source, a), index_of(target, b)) for a, b in pairs]
    places = [(a, b) for a, b in numbers if a is not None and b is not None]
    _carry(old.optimizer, model.optimizer, places)


def _carry(source: Any, target: Any, places: list[tuple[int, int]]) -> None:
    for name, value in list(vars(source).items()):
        there = vars(target).get(name)
        if name == "inner_optimizer":
            _carry(value, there, places)
        elif optimizers.is_variable(value) and optimizers.is_variable(there):
            there.assign(np.asarray(value))
        elif isinstance(value, list) and isinstance(there, list) and name not in _OF_THE_CLASS:
            for a, b in places:
                if a < len(value) and b < len(there) and optimizers.is_variable(value[a]):
                    there[b].assign(np.asarray(value[a]))
