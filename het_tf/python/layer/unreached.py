"""Warns once of what a compiled model says of all its weights, and what does not reach its tables.

Tables are updated by their own optimizers. Keras' optimizer hands them their gradients before it clips,
decays or averages the others.
"""

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.session import settings
from het_tf.python.table import dense_optimizer, layer_state, notes, optimizers
from het_tf.python.table.notes import HetWarning

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

_warned: weakref.WeakSet[Any] = weakref.WeakSet()  # of options
_told: weakref.WeakSet[Any] = weakref.WeakSet()  # of the rate


def options(optimizer: Any) -> dict[str, str]:
    """Returns the options of an optimizer that tables lack, each as it was given."""
    own = dense_optimizer.inner(optimizer)
    found = {name: getattr(own, name, None) for name in INSTEAD}
    return {name: f"{name}={value!r}" for name, value in found.items() if value}


def warn_of_options(optimizer: Any, variable: Any) -> None:
    """Warns of options of an optimizer that applies to tables, and of a schedule, at the first step."""
    rate = getattr(optimizer, "_learning_rate", None)
    if optimizers.is_schedule(rate):
        _warn_of_rate(
            optimizer, variable.tables, f"{_name(optimizer)} has learning_rate={type(rate).__name__}(...)"
        )
    given = {} if optimizer in _warned else options(optimizer)
    if given:
        _warned.add(optimizer)
        what = f"{_name(optimizer)} has {', '.join(given.values())}"
        _warn(what, variable.tables, [INSTEAD[name] for name in given])


def _warn(what: str, tables: list[Any], instead: list[str]) -> None:
    if not settings.is_first_worker():
        return
    names = ", ".join(sorted({repr(table.name) for table in tables}))
    warnings.warn(
        f"{what}, which does not reach its tables ({names}): they have their own "
        f"optimizers. Give each het_tf.TableConfig {'; '.join(dict.fromkeys(instead))}",
        HetWarning,
        stacklevel=2,
    )


def _name(optimizer: Any) -> str:
    return f"optimizer {type(optimizer).__name__}"


def _warn_of_rate(optimizer: Any, tables: list[Any], what: str) -> None:
    """Warns once of a rate that changes, if a table has a number for its own."""
    if optimizer not in _told and any(isinstance(table.optimizer.learning_rate, float) for table in tables):
        _told.add(optimizer)
        _warn(what, tables, [_RATE])


def _warn_of_model(model: Any, what: str) -> None:
    tables = [table for layer in layer_state.layers_of(model) for table in layer.tables]
    _warn_of_rate(dense_optimizer.inner(model.optimizer), tables, f"model {model.name!r} {what}")


def _note_rate(callbacks: Any) -> None:
    callbacks._het_rate = _rate_of(callbacks)


def _warn_if_moved(callbacks: Any) -> None:
    """Warns if the compiled rate is another one than at the begin of training."""
    before, now = getattr(callbacks, "_het_rate", None), _rate_of(callbacks)
    if before is not None and now is not None and before != now:
        _warn_of_model(callbacks.model, f"has another learning_rate, {now:g} in place of {before:g}")


def _rate_of(callbacks: Any) -> float | None:
    """The compiled rate of the model that is trained; None if it is not a variable."""
    optimizer = getattr(getattr(callbacks, "model", None), "optimizer", None)
    rate: Any = getattr(dense_optimizer.inner(optimizer), "_learning_rate", None)
    with backend.naming_lost_weights():
        return float(rate.numpy()) if optimizers.is_variable(rate) else None


def _before(cls: Any, name: str, note: Callable[[Any], None]) -> None:
    """Makes a method of Keras' callbacks call `note` first."""
    method = getattr(cls, name)

    @functools.wraps(method)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self)
        return method(self, *args, **kwargs)

    setattr(cls, name, noted)


def _refuse_best_weights(callback: Any) -> None:
    """Refuses, when training begins and no epoch later, an EarlyStopping that restores arrays, not rows."""
    layers = layer_state.layers_of(callback.model) if callback.restore_best_weights else []
    if layers:
        raise RuntimeError(
            "restore_best_weights is True, but EarlyStopping restores only arrays: layer "
            f"{layers[0].name!r} has table {notes.names(layers[0])}. Leave it out, and add "
            f"het_tf.callbacks.RestoreBest({callback.monitor!r}) to the callbacks"
        )


_before(keras.callbacks.EarlyStopping, "on_train_begin", _refuse_best_weights)
for _callback in (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau):
    _before(
        _callback,
        "on_train_begin",
        lambda self: _warn_of_model(self.model, f"is trained with {type(self).__name__}"),
    )
# A callback of the user's: seen when an epoch, or the training, ends.
_before(keras.callbacks.CallbackList, "on_train_begin", _note_rate)
_before(keras.callbacks.CallbackList, "on_epoch_end", _warn_if_moved)
_before(keras.callbacks.CallbackList, "on_train_end", _warn_if_moved)
