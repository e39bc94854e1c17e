"""Warns once of what a compiled model says of all its weights, and what does not reach its tables.

Tables are updated by their own optimizers. Keras' optimizer hands them their gradients before it clips, decays
or averages the others.
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


def warn_of_options(optimizer: Any, variable: Any) -> None:
    """Warns of options of an optimizer that applies to tables, at the first step."""
    given = {} if optimizer in _warned else options(optimizer)
    if given:
        _warned.add(optimizer)
        what = f"{type(optimizer).__name__} has {', '.join(given.values())}"
        _warn(what, variable.tables, [INSTEAD[name] for name in given])


def _warn(what: str, tables: list[Any], instead: list[str]) -> None:
    if not settings.is_first_worker():
        return
    names = ", ".join(sorted({repr(table.name) for table in tables}))
    warnings.warn(
        f"{what}, which does not reach tables ({names}): they have their own "
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
            _warn(f"model {self.model.name!r} is trained with {callback.__name__}", tables, [_RATE])
        begin(self, logs)

    callback.on_train_begin = on_train_begin


_watch(tf.keras.callbacks.LearningRateScheduler)
_watch(tf.keras.callbacks.ReduceLROnPlateau)
