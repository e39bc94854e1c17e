"""The layers of this process that use each table, and its learning rate.

The core holds rows; this module holds state of Python. The gradient of HetLookup uses it.

A table is shared by all layers that name it, or owned by layers: by one without a name, or by a copy of a
living layer. An owned table is removed with its last layer, so a model that
is made again, under a name of Keras' own, does not go on with the rows of the one before.
"""

import gc
import itertools
import json
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from het_tf.python import callers, extensions
from het_tf.python.backend import keras
from het_tf.python.quoting import quoted
from het_tf.python.session import connection, native, settings
from het_tf.python.table import optimizers
from het_tf.python.table.cache import LayerCache
from het_tf.python.table.config import TableConfig
from het_tf.python.table.notes import HetWarning


@dataclass
class Entry:
    """One table of this process.

    Attributes:
      config: Its configuration by the first of its layers.
      users: The layers that read it, each with its cache.
      state: Its state in checkpoints of TensorFlow (saving/bundle.py).
      variable: A weak reference to the variable that stands for it (layer/variable.py), once it has one.
      old_rows: Number of rows when a layer was made that did not ask for them; 0: none.
    """

    config: TableConfig
    users: weakref.WeakKeyDictionary[Any, LayerCache] = field(default_factory=weakref.WeakKeyDictionary)
    state: Any = None
    variable: Any = None
    old_rows: int = 0

    def layers(self) -> list[Any]:
        """The living layers of `users`."""
        return list(self.users)


class OldRowsWarning(HetWarning):
    """A layer trains rows of earlier layers without being told to."""


_entries: dict[tuple[str, str], Entry] = {}
_left: set[tuple[str, str]] = set()  # own tables that stay at a parameter server: do not reuse names


def _is_from_config() -> bool:
    """Whether a layer is being made from a configuration, its own or an outer model's."""
    return any(
        isinstance(made, type) and issubclass(made, keras.layers.Layer) for made in callers.of("from_config")
    )


def table_of(namespace: str, config: TableConfig, user: Any) -> TableConfig:
    """Returns the table for a layer to declare: `config`, or the layer's own table.

    Args:
      namespace: Namespace of the table.
      config: The layer's argument.
      user: The layer, which is being made.
    """
    is_copy = _is_from_config()
    entry = _entries.get((namespace, config.name))
    if config.is_own and entry is not None and entry.config is config:
        return config  # of a layer that shares it
    if not config.unnamed and not (is_copy and entry is not None and entry.layers()):
        return config
    if is_copy:
        for of_copy in reversed(_own_tables(namespace, config.base)):
            names = [layer.name for layer in of_copy.layers()]
            if user.name not in names and _is_untrained(namespace, of_copy.config.name):
                return of_copy.config
        if not config.unnamed:
            gc.collect()  # a dropped model may still wait for collection
            if entry is not None and not entry.layers():
                return config
    return config._own(_free_name(namespace, config.base))


def _free_name(namespace: str, base: str) -> str:
    taken = {*_entries, *_left}
    numbered = (f"{base}@{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([base], numbered) if (namespace, name) not in taken)


def _own_tables(namespace: str, base: str) -> list[Entry]:
    return [
        entry
        for key, entry in list(_entries.items())
        if key[0] == namespace and entry.config.is_own and entry.config.base == base and entry.layers()
    ]


def _is_untrained(namespace: str, table: str) -> bool:
    """Uses only this process's knowledge, so that all ranks decide the same."""
    return native.call_int("HetApplies", namespace, table) == 0


def declare(namespace: str, config: TableConfig, cache: LayerCache, user: Any, reuse: bool = False) -> Entry:
    """Makes the table if it does not exist; sets its limits in any case.

    Args:
      namespace: Namespace of the table.
      config: The result of `table_of`.
      cache: The layer's cache.
      user: The layer.
      reuse: Whether the layer should continue with existing rows.

    Raises:
      ValueError: A table of the name exists with another spec, other options, or, while another layer uses
        it, another learning rate; `bytes` of the cache are too few for the smallest cache.
      MemoryError: The cache does not fit into the GPU.
    """
    connection.update_threads()
    connection.connect()
    spec = json.dumps({**config.spec, "limits": config._limits})
    try:
        native.call("HetCreateTable", namespace, spec, cache.to_json(config))
    except ValueError as error:
        if "exists with another spec" not in str(error):
            raise
        raise ValueError(
            f"{error}. A layer without a name has its own table, which is removed with the layer: "
            "leave the name out if a search builds a model for each trial"
        ) from None
    except MemoryError as error:
        if cache.place == "cpu":
            raise
        raise MemoryError(f"{error}. {extensions.of('device').WHO_HAS_THE_MEMORY}") from None
    key = (namespace, config.name)
    is_new = key not in _entries
    entry = _entries.setdefault(key, Entry(config))
    if not _same_rate(entry.config.optimizer, config.optimizer):
        if entry.users:
            gc.collect()  # a dropped model may still wait for collection
        if entry.users:
            raise ValueError(
                f"table {quoted(config.name)} is in use with learning_rate "
                f"{entry.config.optimizer.learning_rate!r}, but is declared again with "
                f"{config.optimizer.learning_rate!r}; use one TableConfig for both, give the tables "
                "different names, or call het_tf.reset() first"
            )
    if not entry.users:
        entry.config = config
    entry.users[user] = cache
    if config.is_own:
        weakref.finalize(user, _leave, key, entry).atexit = False
    if reuse:
        entry.old_rows = 0
    elif _needs_a_word(config, is_new):
        entry.old_rows = native.call_int("HetSize", *key)
    return entry


def _needs_a_word(config: TableConfig, is_new: bool) -> bool:
    """Whether a new layer needs the user's consent to continue with existing rows of the table."""
    if not settings.parameter_server():
        return not is_new
    # At a server the namespace implies it, except for an unnamed layer; only the first rank warns.
    return config.unnamed and is_new and settings.is_first_worker()


def _leave(key: tuple[str, str], entry: Entry) -> None:
    """Handles the end of a layer: removes an own table with its last layer."""
    if _entries.get(key) is not entry or entry.layers():
        return
    try:
        native.call("HetLeaveTable", *key)
    except Exception as error:  # no caller could catch it
        warnings.warn(
            f"het_tf: table {key[1]!r}, whose layers are gone, stays: {error}", HetWarning, stacklevel=2
        )
        return
    if settings.parameter_server():
        _left.add(key)
    del _entries[key]


def accept_rows(namespace: str, tables: Iterable[str]) -> None:
    """Records that the user has chosen the rows of these tables."""
    for table in tables:
        if (namespace, table) in _entries:
            _entries[namespace, table].old_rows = 0


def warn_of_old_rows(entry: Entry, layer: Any) -> None:
    """Issues an OldRowsWarning, once."""
    name = entry.config.name
    where = "the parameter server" if settings.parameter_server() else "this process"
    warnings.warn(
        f"layer {layer.name!r} trains table {name!r} of {where}, which had {entry.old_rows} rows of earlier "
        f"layers when the layer was made: the model continues with rows of another one. To start anew "
        f"call het_tf.Table({name!r}).clear(), or give the layer another name; to go on with the rows give "
        "it reuse=True and a name, or restore what was saved",
        OldRowsWarning,
        stacklevel=2,
    )
    entry.old_rows = 0


def _same_rate(a: optimizers.Optimizer, b: optimizers.Optimizer) -> bool:
    first, second = a.learning_rate, b.learning_rate
    if first is second:
        return True
    if optimizers.is_variable(first) or optimizers.is_variable(second):
        return False
    return bool(a.get_config()["learning_rate"] == b.get_config()["learning_rate"])


def find(namespace: str, table: str) -> Entry | None:
    """Returns the entry of a table, or None if no layer of this process has declared it."""
    return _entries.get((namespace, table))


def keys() -> list[tuple[str, str]]:
    """Namespace and name of all tables of this process."""
    return list(_entries)


def namespaces() -> list[str]:
    """Namespaces in which layers of this process have tables."""
    return list(dict.fromkeys(namespace for namespace, _ in list(_entries)))


def forget(namespace: str, table: str | None = None) -> None:
    """Forgets a table, or all tables of a namespace."""
    for key in {*_entries, *_left}:
        if key[0] == namespace and table in (None, key[1]):
            _entries.pop(key, None)
            _left.discard(key)
