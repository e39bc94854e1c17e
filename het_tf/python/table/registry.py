"""Which layers of this process use which table, and with what learning rate.

The core knows rows; this knows what only Python can know. The gradient of HetLookup looks here.
"""

import gc
import itertools
import json
import weakref
from dataclasses import dataclass, field
from typing import Any

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
      states: What checkpoints of TensorFlow know of it, of copies apart (checkpoint/keras/bundle.py).
    """

    config: TableConfig
    users: weakref.WeakKeyDictionary[Any, LayerCache] = field(default_factory=weakref.WeakKeyDictionary)
    states: dict[bool, Any] = field(default_factory=dict)


_entries: dict[tuple[str, str], Entry] = {}
_layers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def register_layer(layer: Any) -> int:
    """Gives a layer the number by which the gradient of its lookups finds it."""
    number = next(_numbers)
    _layers[number] = layer
    return number


def find_layer(number: int | None) -> Any:
    """The layer of that number if it still lives."""
    return _layers.get(number) if number is not None else None


def declare(namespace: str, config: TableConfig, cache: LayerCache, user: Any) -> None:
    """Makes the table if it is not there yet; sets its limits in any case.

    Raises:
      ValueError: A table of the name exists with another spec, other options, or, while another layer uses
        it, another learning rate; `bytes` of the cache are too few for the smallest cache.
      MemoryError: The cache does not fit into the GPU.
    """
    connection.update_threads()
    connection.connect()
    spec = json.dumps({**config.spec, "limits": config.limits})
    try:
        native.call(
            "HetCreateTable",
            namespace,
            spec,
            cache.to_json(spec, settings.default_cache_rows(cache.place)),
        )
    except MemoryError as error:
        if cache.place == "cpu":
            raise
        raise MemoryError(f"{error}. {device.WHO_HAS_THE_MEMORY}") from None
    key = (namespace, config.name)
    entry = _entries.setdefault(key, Entry(config))
    if not _same_rate(entry.config.optimizer, config.optimizer):
        if entry.users:
            gc.collect()  # a model that was let go may still be waiting to be collected
        if entry.users:
            raise ValueError(
                f"table {config.name!r} is in use with learning_rate "
                f"{entry.config.optimizer.learning_rate!r}, and is declared again with "
                f"{config.optimizer.learning_rate!r}; use one TableConfig for both, give the tables "
                "different names, or call het_tf.reset() first"
            )
    if not entry.users:
        entry.config = config
    entry.users[user] = cache


def _same_rate(a: optimizers.Optimizer, b: optimizers.Optimizer) -> bool:
    first, second = a.learning_rate, b.learning_rate
    if first is second:
        return True
    if optimizers.is_variable(first) or optimizers.is_variable(second):
        return False
    return bool(a.get_config()["learning_rate"] == b.get_config()["learning_rate"])


def follow_workers() -> None:
    """Derives the bounds of tables with a total staleness anew, for the number of workers that there is now.

    Raises:
      ValueError: There are too many workers for a layer's total_staleness.
    """
    for (namespace, name), entry in list(_entries.items()):
        for cache in list(entry.users.values()):
            cache.follow(settings.workers())
            if cache.given.total_staleness is not None:
                pull, push = cache.pull_bound, cache.push_bound
                native.call(
                    "HetSetBounds",
                    namespace,
                    name,
                    -1 if pull is None else pull,
                    -1 if push is None else push,
                )


def find(namespace: str, table: str) -> Entry | None:
    """What is known of a table, or None if no layer of this process has declared it."""
    return _entries.get((namespace, table))


def keys() -> list[tuple[str, str]]:
    """Namespace and name of all tables of this process."""
    return list(_entries)


def namespaces() -> list[str]:
    """Where layers of this process have tables."""
    return list(dict.fromkeys(namespace for namespace, _ in _entries))


def forget(namespace: str, table: str | None = None) -> None:
    """Forgets a table, or all tables of a namespace."""
    for key in [key for key in _entries if key[0] == namespace and table in (None, key[1])]:
        del _entries[key]
