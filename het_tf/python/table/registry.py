"""Which layers of this process use which table, and with what learning rate.

The core knows rows; this knows what only Python can know. The gradient of HetLookup looks here.

A table is everyone's who names it, or its layers' own: of a layer without a name, and of a copy of a layer
that still lives. One of the second kind goes with its last layer (docs/adr/0020-whose-table.md).
"""

import gc
import itertools
import json
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from het_tf.python.quoting import quoted
from het_tf.python.session import connection, native, settings
from het_tf.python.table import device, optimizers
from het_tf.python.table.cache import LayerCache
from het_tf.python.table.config import TableConfig


@dataclass
class Entry:
    """One table of this process.

    Attributes:
      config: As the first of its layers has declared it.
      users: The layers that read it, and how each caches it.
      state: What checkpoints of TensorFlow know of it (saving/bundle.py).
      old_rows: How many rows the table had when a layer was made that did not ask for them; 0: none.
    """

    config: TableConfig
    users: weakref.WeakKeyDictionary[Any, LayerCache] = field(default_factory=weakref.WeakKeyDictionary)
    state: Any = None
    old_rows: int = 0

    def layers(self) -> list[Any]:
        """Those of `users` that live."""
        return list(self.users)


class OldRowsWarning(UserWarning):
    """A layer trains rows that earlier layers have trained, and nobody has said that it should."""


_entries: dict[tuple[str, str], Entry] = {}
_left: set[tuple[str, str]] = set()  # own tables that stay at a parameter server: no other is called so
_layers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def register_layer(layer: Any) -> int:
    """Gives a layer the number by which the gradient of its lookups finds it."""
    number = next(_numbers)
    _layers[number] = layer
    return number


def find_layer(number: int | None) -> Any:
    """The layer of that number if it still lives."""
    return None if number is None else _layers.get(int(number))


def table_of(namespace: str, config: TableConfig, user: Any, is_copy: bool) -> TableConfig:
    """What a layer is to declare for `config`: itself, or a table of its own.

    Args:
      namespace: Where.
      config: What the layer was given.
      user: The layer.
      is_copy: Whether it is made from the configuration of another layer.
    """
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
            gc.collect()  # a model that was let go may still be waiting to be collected
            if entry is not None and not entry.layers():
                return config
    return config.own(_free_name(namespace, config.base))


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
    """As far as this process knows: all ranks are to decide the same."""
    return native.call_int("HetApplies", namespace, table) == 0


def declare(namespace: str, config: TableConfig, cache: LayerCache, user: Any, reuse: bool = False) -> Entry:
    """Makes the table if it is not there yet; sets its limits in any case.

    Args:
      namespace: Where.
      config: What `table_of` gives.
      cache: How the layer caches it.
      user: The layer.
      reuse: Whether the layer is meant to go on with rows that are there.

    Raises:
      ValueError: A table of the name exists with another spec, other options, or, while another layer uses
        it, another learning rate; `bytes` of the cache are too few for the smallest cache.
      MemoryError: The cache does not fit into the GPU.
    """
    connection.update_threads()
    connection.connect()
    spec = json.dumps({**config.spec, "limits": config.limits})
    try:
        native.call("HetCreateTable", namespace, spec, cache.to_json(config))
    except ValueError as error:
        if "exists with another spec" not in str(error):
            raise
        raise ValueError(
            f"{error}. A layer without a name has a table of its own, which goes with the layer: "
            "leave the name out where a search builds a model for each trial"
        ) from None
    except MemoryError as error:
        if cache.place == "cpu":
            raise
        raise MemoryError(f"{error}. {device.WHO_HAS_THE_MEMORY}") from None
    key = (namespace, config.name)
    is_new = key not in _entries
    entry = _entries.setdefault(key, Entry(config))
    if not _same_rate(entry.config.optimizer, config.optimizer):
        if entry.users:
            gc.collect()  # a model that was let go may still be waiting to be collected
        if entry.users:
            raise ValueError(
                f"table {quoted(config.name)} is in use with learning_rate "
                f"{entry.config.optimizer.learning_rate!r}, and is declared again with "
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
    """Whether somebody has to say that rows which the table has already are meant for its new layer."""
    if not settings.parameter_server():
        return not is_new
    # There the namespace says it, but for a layer that names nothing; of ranks the first one speaks.
    return config.unnamed and is_new and settings.is_first_worker()


def _leave(key: tuple[str, str], entry: Entry) -> None:
    """A layer has gone: with the last one of an own table that goes as well."""
    if _entries.get(key) is not entry or entry.layers():
        return
    try:
        native.call("HetLeaveTable", *key)
    except Exception as error:  # nobody is there who could catch it
        warnings.warn(f"het_tf: table {key[1]!r}, whose layers are gone, stays: {error}", stacklevel=2)
        return
    if settings.parameter_server():
        _left.add(key)
    del _entries[key]


def accept_rows(namespace: str, tables: Iterable[str]) -> None:
    """Somebody has said which rows these tables are to have."""
    for table in tables:
        if (namespace, table) in _entries:
            _entries[namespace, table].old_rows = 0


def warn_of_old_rows(entry: Entry, layer: Any) -> None:
    """Gives an OldRowsWarning, once."""
    name = entry.config.name
    where = "the parameter server" if settings.parameter_server() else "this process"
    warnings.warn(
        f"layer {layer.name!r} trains table {name!r} of {where}, which had {entry.old_rows} rows of earlier "
        f"layers when the layer was made: the model goes on with what another one has learnt. To begin anew "
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


def follow_workers() -> None:
    """Tells caches the number of workers that there are now; their bounds follow it."""
    for (namespace, name), entry in list(_entries.items()):
        for cache in list(entry.users.values()):
            cache.workers = settings.workers()
            native.call("HetSetWorkers", namespace, name, cache.workers)


def find(namespace: str, table: str) -> Entry | None:
    """What is known of a table, or None if no layer of this process has declared it."""
    return _entries.get((namespace, table))


def keys() -> list[tuple[str, str]]:
    """Namespace and name of all tables of this process."""
    return list(_entries)


def namespaces() -> list[str]:
    """Where layers of this process have tables."""
    return list(dict.fromkeys(namespace for namespace, _ in list(_entries)))


def forget(namespace: str, table: str | None = None) -> None:
    """Forgets a table, or all tables of a namespace."""
    for key in {*_entries, *_left}:
        if key[0] == namespace and table in (None, key[1]):
            _entries.pop(key, None)
            _left.discard(key)
