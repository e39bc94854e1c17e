"""The compiled optimizer of a model: another one of the same kind, with the state of the weights that stay.

Optimizers of Keras keep their slots as lists with a variable for each weight that they were built for, and
numbers such as `iterations` as variables of their own; the LossScaleOptimizer keeps one inside of it.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from het_tf.python.layer import owner
from het_tf.python.session.native import KERAS_3, tf
from het_tf.python.table import optimizers

keras: Any = tf.keras
_OF_THE_CLASS = ("_variables", "_trainable_variables", "_non_trainable_variables", "_weights")
_INNER = ("inner_optimizer", "_optimizer", "_loss_scale")


def is_legacy(optimizer: Any) -> bool:
    """Whether it is one of `tf.keras.optimizers.legacy`, whose formulas have epsilon elsewhere."""
    legacy = getattr(keras.optimizers, "legacy", None)
    return not KERAS_3 and legacy is not None and isinstance(optimizer, legacy.Optimizer)


def inner(optimizer: Any) -> Any:
    """The optimizer inside of a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def index_of(optimizer: Any, variable: Any) -> int | None:
    """Which of the variables that an optimizer was built for a variable is; None: it is none of them."""
    numbers = getattr(optimizer, "_trainable_variables_indices", None)  # Keras 3
    if numbers is None:
        numbers = getattr(optimizer, "_index_dict", {})
    key = getattr(optimizer, "_var_key", None)
    return None if key is None else numbers.get(key(variable))


def last_rate(optimizer: Any) -> float:
    """The learning rate of the last step."""
    rate: Any = getattr(optimizer, "_learning_rate", None)
    if optimizers.is_schedule(rate):
        return float(rate(max(0, int(np.asarray(optimizer.iterations)) - 1)))
    return float(np.asarray(optimizer.learning_rate))


def compile_like(model: Any, old: Any) -> bool:
    """Compiles a model as another one was, with an optimizer and metrics of its own.

    Returns:
      Whether it was; a class with a `compile` of its own does that by itself.
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
    """The value with metrics of its own, which count."""
    if isinstance(value, keras.metrics.Metric):
        return _copy(value)
    if isinstance(value, dict):
        return {name: _own(each) for name, each in value.items()}
    return [_own(each) for each in value] if isinstance(value, (list, tuple)) else value


def _copy(thing: Any) -> Any:
    return type(thing).from_config(thing.get_config())


def carry(model: Any, old: Any, pairs: Iterable[tuple[Any, Any]]) -> bool:
    """Gives the optimizer of a model the state of another model's.

    Args:
      model: The new one, compiled.
      old: The other one.
      pairs: Each weight that stays, in the old model and in the new one.

    Returns:
      Whether there was a state to carry over.
    """
    source = inner(old.optimizer)
    if is_legacy(source) or not (getattr(source, "built", False) or getattr(source, "_built", False)):
        return False
    owner.optimizer_variables(model)
    target = inner(model.optimizer)
    numbers = [(index_of(source, a), index_of(target, b)) for a, b in pairs]
    places = [(a, b) for a, b in numbers if a is not None and b is not None]
    _carry(old.optimizer, model.optimizer, places)
    return True


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
