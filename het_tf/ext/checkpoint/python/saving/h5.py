"""Tables in Keras' own files, `.keras` and `.weights.h5`: rows beside the weights of their layer.

Keras gives each layer a store for named arrays. A layer writes, for each of its tables KEY, the arrays of
pack.py under `KEY/`. A table that several layers of the file share is written with the first of them; the
others write `KEY/shared_with`, the place of the first.

Keras builds a `.keras` file in memory, so tables must fit there. het_tf itself holds one
slice of a column at a time.
"""

import json
import urllib.parse
import weakref
from typing import Any

import h5py
import numpy as np

from het_tf.ext.checkpoint.python.saving import pack, workers
from het_tf.python.table import layer_state

_SHARED = "shared_with"
_ATTRIBUTE = "het_tf_tables"  # attribute of the file: place of each table in it


def save(layer: Any, store: Any) -> None:
    """Writes the rows of the layer's tables into Keras' store.

    Raises:
      ValueError: The store divides the weights into files that this Keras does not read back.
    """
    _refuse_parts(store)
    workers.before_saving(layer)
    try:
        _write(layer, store)
    except BaseException:
        if (file := _file(store)) is not None:  # Keras leaves it open, and could not write it again
            file.close()
        raise


def _write(layer: Any, store: Any) -> None:
    for key, table in _tables(layer):
        first = _claim(store, layer, table, key)
        if first is not None:
            store[f"{key}/{_SHARED}"] = np.frombuffer(first.encode(), np.uint8)
            continue
        with pack.taken(layer.namespace, table) as arrays:
            for name, array in arrays:
                store[f"{key}/{name}"] = array


def load(layer: Any, store: Any) -> None:
    """Reads the rows of the layer's tables from Keras' store.

    Raises:
      ValueError: The store lacks rows of a table, has those of another spec, or is one that `save` refuses.
    """
    _refuse_parts(store)
    restores = workers.restores(layer)
    loaded: set[tuple[str, str, str]] | None = None
    for key, table in _tables(layer):
        place = store
        if f"{key}/{_SHARED}" in store:
            place, key = _first(store, np.asarray(store[f"{key}/{_SHARED}"]).tobytes().decode())
        if f"{key}/manifest" not in place:
            raise ValueError(
                f"layer {layer.name!r}: the file has no rows of table {table!r}; it is of another model, or "
                "was written by a het_tf that did not save tables yet"
            )
        what = (f"{_group(place).name}/{key}", layer.namespace, table)
        loaded = _loaded_of(place, layer) if loaded is None else loaded
        if not restores or what in loaded:
            continue  # False: a layer that shares the table has loaded it

        def get(name: str, dtype: Any, place: Any = place, key: str = key) -> Any:
            return np.asarray(place[f"{key}/{name}"])

        pack.put_back(get, layer.namespace, table)
        loaded.add(what)


def _refuse_parts(store: Any) -> None:
    if hasattr(store, "sharding_config") and not hasattr(store, "has_path"):
        raise ValueError(
            "Keras before 3.15 loses rows of tables that are in several files; save without max_shard_size, "
            "or run: pip install 'keras>=3.15'"
        )


def _tables(layer: Any) -> list[tuple[str, str]]:
    """Names for paths, and the tables' names."""
    keys = layer_state.of(layer).file_keys
    return [(urllib.parse.quote(key, safe=""), table) for key, table in keys.items()]


def _file(store: Any) -> Any:
    """The file of a store, or of a group of it (`_first`).

    None if Keras divides the weights into several files (max_shard_size).
    """
    if hasattr(store, "sharding_config"):
        return None
    return getattr(store, "h5_file", None) or store.file


def _group(store: Any) -> Any:
    """The group that the store writes or reads, or the store itself (`_first`)."""
    return getattr(store, "_h5_entry_group", store)


def _claim(store: Any, layer: Any, table: str, key: str) -> str | None:
    """Place of the table in the file if it was written already; None: claims it for this layer."""
    file = _file(store)
    if file is None:
        return None
    name = json.dumps([layer.namespace, table])
    places = json.loads(file.attrs.get(_ATTRIBUTE, "{}"))
    if name in places:
        return str(places[name])
    store[f"{key}/of"] = np.frombuffer(name.encode(), np.uint8)  # now Keras has made the group, too
    file.attrs[_ATTRIBUTE] = json.dumps({**places, name: f"{_group(store).name}/{key}"})
    return None


def _first(store: Any, path: str) -> tuple[Any, str]:
    """The group and the key of a table that another layer has written."""
    group, _, key = path.rpartition("/")
    return _file(store)[group], key


class _Load:
    """One load of a file: its layers so far, and the tables loaded with the place of their rows."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.layers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.tables: set[tuple[str, str, str]] = set()


_load = _Load(-1)


def _loaded_of(store: Any, layer: Any) -> set[tuple[str, str, str]]:
    """Tables loaded so far in the layer's load; a layer that repeats begins another load.

    The number of a file is not enough: a file that is open elsewhere keeps it.
    """
    global _load
    if _file(store) is None:
        return set()
    number = h5py.h5o.get_info(_group(store).id).fileno  # changes each time a file is opened
    if _load.file != number or layer in _load.layers:
        _load = _Load(number)
    _load.layers.add(layer)
    return _load.tables
