"""Refuses get_weights() and set_weights() of layers with tables: arrays of weights would lack the rows.

Keras reads and assigns the value of every weight. A layer with tables has one weight, its anchor, which is
always 0 and useless as an array.
"""

import functools
from typing import Any

import numpy as np

from het_tf.python.session.native import tf
from het_tf.python.table import layer_state, notes

_REMEDY = (
    "To keep and restore rows, use het_tf.callbacks.RestoreBest (in place of "
    "EarlyStopping(restore_best_weights=True)), het_tf.checkpoint, save_weights or model.save; "
    "het_tf.Table(name) reads and assigns them; get_weights and set_weights of other layers work"
)


def text_of(layer: Any) -> str:
    """Returns what to do in place of reading or setting the weights of a layer."""
    return f"layer {layer.name!r} has table {notes.names(layer)}, which is not an array. {_REMEDY}"


def of_anchor(anchor: Any, layer: Any) -> None:
    """Makes it a RuntimeError to read the value of the layer's anchor, or assign an array to it."""
    text = text_of(layer)
    assign = anchor.assign

    def numpy() -> Any:
        raise RuntimeError(text)

    def assign_value(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            raise RuntimeError(text)
        return assign(value, *args, **kwargs)

    anchor.numpy, anchor.assign = numpy, assign_value
    one = type(anchor)  # whose __array__ Keras uses for weights of its old format, .h5
    anchor.__class__ = type(one.__name__, (one,), {"__array__": lambda self, *args, **kwargs: numpy()})


def of_early_stopping() -> None:
    """Makes EarlyStopping(restore_best_weights=True) fail at the begin of training, not an epoch later."""
    cls = tf.keras.callbacks.EarlyStopping
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
