"""Refuses what would restore the arrays of weights without the rows of tables."""

import functools
from typing import Any

from het_tf.python.backend import keras
from het_tf.python.table import layer_state, notes


def of_early_stopping() -> None:
    """Makes EarlyStopping(restore_best_weights=True) fail at the begin of training, not an epoch later."""
    cls = keras.callbacks.EarlyStopping
    begin = cls.on_train_begin

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        layers = layer_state.layers_of(self.model) if self.restore_best_weights else []
        if layers:
            raise RuntimeError(
                "restore_best_weights is True, but EarlyStopping restores only arrays: layer "
                f"{layers[0].name!r} has table {notes.names(layers[0])}. Leave it out, and add "
                f"het_tf.callbacks.RestoreBest({self.monitor!r}) to the callbacks"
            )
        begin(self, logs)

    cls.on_train_begin = on_train_begin
