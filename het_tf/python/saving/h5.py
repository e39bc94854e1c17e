"""Tables in Keras' own files, `.keras` and `.weights.h5`: rows beside the weights of their layer.

Keras gives each layer a store, which takes arrays under names. A layer writes, for each of its tables KEY,
the arrays of pack.py under `KEY/`. A table that several layers of the file share is written with the first of
them; the others have `KEY/shared_with`, the place of the first.

Keras 3 may build the file in memory, and both versions hold a `.keras` file in memory while they write it: these
files are not for tables that are larger than memory. What het_tf adds is one slice of a column at a time.
"""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import numpy as np

from het_tf.python import registry
from het_tf.python.saving import copies, moment, pack, workers

_SHARED = "shared_with"
_ATTRIBUTE = "het_tf_tables"  # of the file: which table is where in it


def save(layer: Any, store: Any) -> None:
    """Writes the rows of the layer's tables into Keras' store."""
    workers.before_saving(layer)
    for key, table in _tables(layer):
        first = _claim(store, layer, table, key)
        if first is not None:
            store[f"{key}/{_SHARED}"] = np.frombuffer(first.encode(), np.uint8)
            continue
        with moment.workspace() as place:
            for name, array in pack.arrays(moment.take(place / "rows", layer.namespace, table)):
                store[f"{key}/{name}"] = array


def load(layer: Any, store: Any) -> None:
    """Reads them back.

    Raises:
      ValueError: The store has no rows of a table, or of one with another spec.
      RuntimeError: The layer is a copy, and may not change the table (copies.put_back).
    """
    restores = workers.restores(layer)
    for key, table in _tables(layer):
        place = store
        if f"{key}/{_SHARED}" in store:
            entry = registry.find(layer.namespace, table)
            if entry is not None and len(entry.users) > 1:
                continue  # comes with the layer that shares it
            place, key = _follow(store, np.asarray(store[f"{key}/{_SHARED}"]).tobytes().decode())
        if f"{key}/manifest" not in place:
            raise ValueError(
                f"layer {layer.name!r}: the file has no rows of table {table!r}; it was written by a het_tf that "
                "did not save tables yet, or it is of another model"
            )
        if not restores:
            continue

        def get(name: str, dtype: Any, place: Any = place, key: str = key) -> Any:
            return np.asarray(place[f"{key}/{name}"])

        with moment.workspace() as place:
            copies.put_back(layer, pack.directory(get, place / "rows"), table)


def _tables(layer: Any) -> list[tuple[str, str]]:
    """Names that paths can have, and the tables' names."""
    keys = layer._het_table_keys()
    return [(urllib.parse.quote(key, safe=""), table) for key, table in keys.items()]


def _root(store: Any) -> Any:
    """The file that the store writes to, or None: Keras 2 gives a group of it, Keras 3 an object around it."""
    return getattr(store, "h5_file", None) or getattr(store, "file", None)


def _claim(store: Any, layer: Any, table: str, key: str) -> str | None:
    """Where in the file the table is already; None: nowhere yet, and it is noted to be here."""
    root = _root(store)
    if root is None:
        return None
    name = json.dumps([layer.namespace, table, layer._het_copy])
    places = json.loads(root.attrs.get(_ATTRIBUTE, "{}"))
    if name in places:
        return str(places[name])
    store[f"{key}/of"] = np.frombuffer(name.encode(), np.uint8)  # makes the group, whose name Keras 3 hides
    group = getattr(store, "_h5_entry_group", store)
    root.attrs[_ATTRIBUTE] = json.dumps({**places, name: f"{group.name}/{key}"})
    return None


def _follow(store: Any, path: str) -> tuple[Any, str]:
    group, _, key = path.rpartition("/")
    return _root(store)[group], key
