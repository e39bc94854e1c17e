"""get_weights() and set_weights(): what carries a model's weights as arrays carries its tables along.

Keras reads the value of every weight, and a layer of tables has one, its anchor, whose value nobody uses: it
is always 0. So reading it takes the rows of the layer's tables into a temporary directory and gives a number
that stands for them; assigning this number puts the rows back. EarlyStopping(restore_best_weights=True) and
`clone.set_weights(model.get_weights())` keep tables and dense weights together by it.

The rows are kept as long as the array is (or one made from it). A number says nothing in another process.
"""

import os
import secrets
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from het_tf.python.checkpoint.keras import moment, notes, workers
from het_tf.python.session import settings
from het_tf.python.table import layer_state

# Whole numbers that float32 holds exactly, and that are hardly anyone's weights.
_LOWEST, _HIGHEST = 2**22, 2**24 - 1


class Taken:
    """The rows of a layer's tables as they were when its weights were read. The directory goes with it."""

    def __init__(self, layer: Any) -> None:
        self.layer: str = layer.name
        self.keys: list[str] = []
        self.directory = Path(tempfile.mkdtemp(prefix="het_tf-weights-"))
        self._end = weakref.finalize(self, _remove, self.directory, os.getpid())
        for number, (key, table) in enumerate(layer_state.of(layer).file_keys.items()):
            self.keys.append(key)
            moment.take(self.directory / str(number), layer.namespace, table)
        self.number = _new_number()
        _taken[self.number] = self

    def put_back(self, layer: Any) -> None:
        """Restores the tables of a layer that has as many, of the same specs."""
        tables = layer_state.of(layer).file_keys
        if list(tables) != self.keys:
            raise ValueError(
                f"layer {layer.name!r} has the tables {list(tables)}, and the weights are of the layer "
                f"{self.layer!r} with {self.keys}"
            )
        for number, table in enumerate(tables.values()):
            moment.put_back(self.directory / str(number), layer.namespace, table)


def _remove(directory: Path, process: int) -> None:
    """A process that was forked has the objects too, and lets the directory be."""
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


_taken: weakref.WeakValueDictionary[int, Taken] = weakref.WeakValueDictionary()
_given: set[int] = set()  # also those whose rows are gone: a number never stands for others


def _new_number() -> int:
    while True:
        number = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        if number not in _given:
            _given.add(number)
            return number


class Weight(np.ndarray[Any, Any]):
    """The anchor's value: a number, and the rows that it stands for, which live as long as this."""

    taken: Taken | None = None

    def __array_finalize__(self, of: Any) -> None:
        """Copies and views keep the rows too."""
        self.taken = getattr(of, "taken", None)

    def __deepcopy__(self, memo: Any) -> Any:
        """As copy()."""
        return self.copy()

    def __reduce__(self) -> Any:
        """What leaves the process is the number alone."""
        return np.asarray(self).__reduce__()


def watch(anchor: Any, layer: Any) -> None:
    """Makes the value of the layer's anchor stand for its tables."""
    owner = weakref.ref(layer)
    read, assign = anchor.numpy, anchor.assign

    def numpy() -> Any:
        layer = owner()
        return read() if layer is None else _read(layer, read)

    def assign_value(value: Any, *args: Any, **kwargs: Any) -> Any:
        layer = owner()
        if layer is not None and isinstance(value, (np.ndarray, np.generic)):
            value = _assigned(layer, value)
        return assign(value, *args, **kwargs)

    anchor.numpy, anchor.assign = numpy, assign_value


def _read(layer: Any, read: Any) -> Any:
    if _in_old_file():
        notes.without_rows(layer, "saved", "Files named .h5 do not hold them: save as .weights.h5 or .keras")
        return read()
    if settings.several_workers():
        notes.without_rows(
            layer,
            "taken as arrays",
            "Each worker would keep all rows of all; save with het_tf.callbacks.Checkpoint or "
            "het_tf.checkpoint.save",
        )
        return read()
    taken = Taken(layer)
    value = np.array(taken.number, np.float32).view(Weight)
    value.taken = taken
    return value


def _assigned(layer: Any, value: Any) -> Any:
    """Restores what the value stands for. Returns what the anchor is to be."""
    taken = getattr(value, "taken", None)
    number = float(np.asarray(value).reshape(-1)[0]) if np.size(value) == 1 else np.nan
    if taken is None or taken.number != number:
        taken = _taken.get(int(number)) if number.is_integer() else None
    if taken is not None:
        if workers.restores(layer):
            taken.put_back(layer)
    elif number == 0:
        notes.without_rows(
            layer,
            "set from arrays",
            "They were taken where tables are left out, and the table keeps its rows",
        )
    else:
        raise ValueError(
            f"layer {layer.name!r}: the weight {number:g} stands for no rows that this process has kept. "
            "Those of get_weights() are kept as long as the array that it gave for this layer, in the same "
            "process, and unchanged; use save_weights, model.save or het_tf.checkpoint.save to take tables "
            "elsewhere"
        )
    return np.zeros((), np.float32)


def _in_old_file() -> bool:
    """Whether Keras is writing its old .h5 format, which knows arrays of weights alone."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").rpartition(".")[2] in ("hdf5_format", "legacy_h5_format"):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
