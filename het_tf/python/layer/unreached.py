"""Warns once of what a compiled model says of all its weights, and what does not reach its tables.

Tables are updated by their own optimizers, when gradients are computed: before the compiled optimizer clips
or decays anything.
"""

import functools
import warnings
import weakref
from typing import Any

from het_tf.python.session import settings
from het_tf.python.session.native import tf
from het_tf.python.table import dense_optimizer, layer_state, optimizers

_CLIPPED = "max_norm=, the longest that a row may be"
# Options of Keras' optimizers, and what to give a TableConfig in their place.
INSTEAD = {
    "clipnorm": _CLIPPED,
    "clipvalue": _CLIPPED,
    "global_clipnorm": _CLIPPED,
    "weight_decay": "l2=, a penalty of the rows of each step",
    "use_ema": "an optimizer with a learning-rate schedule that ends low",
}
_RATE = 'an optimizer with learning_rate="model", such as het_tf.optimizers.Adam("model")'

_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def options(optimizer: Any) -> dict[str, str]:
    """Returns the options of an optimizer that tables lack, each as it was given."""
    own = dense_optimizer.inner(optimizer)
    found = {name: getattr(own, name, None) for name in INSTEAD}
    return {name: f"{name}={value!r}" for name, value in found.items() if value}


def warn_of_options(model: Any, optimizer: Any) -> None:
    """Warns of options of the model's compiled optimizer, at the first step."""
    given = {} if optimizer is None or model in _warned else options(optimizer)
    if given:
        _warned.add(model)
        _warn(model, f"is compiled with {', '.join(given.values())}", [INSTEAD[name] for name in given])


def _warn(model: Any, what: str, instead: list[str]) -> None:
    if not settings.is_first_worker():
        return
    names = {repr(table.name) for layer in layer_state.layers_of(model) for table in layer.tables}
    tables = ", ".join(sorted(names))
    warnings.warn(
        f"model {model.name!r} {what}, which does not reach its tables ({tables}): they have their own "
        f"optimizers. Give each het_tf.TableConfig {'; '.join(dict.fromkeys(instead))}",
        stacklevel=2,
    )


def _watch(callback: Any) -> None:
    """Makes a callback that changes the rate of the compiled optimizer warn at the begin of training."""
    begin = callback.on_train_begin

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        tables = [table for layer in layer_state.layers_of(self.model) for table in layer.tables]
        rates = [table.optimizer.learning_rate for table in tables]
        if not all(isinstance(rate, str) and rate == optimizers.MODEL for rate in rates):
            _warn(self.model, f"is trained with {callback.__name__}", [_RATE])
        begin(self, logs)

    callback.on_train_begin = on_train_begin


_watch(tf.keras.callbacks.LearningRateScheduler)
_watch(tf.keras.callbacks.ReduceLROnPlateau)
