"""Callbacks of Keras (public as `het_tf.callbacks`)."""

from __future__ import annotations

from typing import Any

from het_tf.python.layers import EmbeddingCollection
from het_tf.python.native import tf
from het_tf.python.table import Table


class CacheStats(tf.keras.callbacks.Callback):
    """Logs, every epoch and for each table of the model: rows, memory, updates, and the cache's traffic.

    `TABLE/rows` and `TABLE/bytes` are what the store holds at the end of the epoch; `TABLE/applies` and, for
    cached tables, `TABLE/COUNTER` are what the epoch has added: hits, miss_pull (rows fetched since they were
    not cached), update_pull (since they were stale), bound_push and evict_push (rows sent), bytes each way,
    and more. `TABLE/hit_rate` is hits / reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[tuple[str, str], dict[str, float]] = {}

    def _tables(self) -> list[tuple[str, str]]:
        found: dict[tuple[str, str], None] = {}
        for layer in _layers(self.model):
            if isinstance(layer, EmbeddingCollection):
                found.update({(layer.namespace, table.name): None for table in layer.tables})
        return list(found)

    def on_train_begin(self, logs: Any = None) -> None:
        """Remembers where the counters stand."""
        for key in self._tables():
            self._before[key] = _totals(Table(key[1], key[0]).stats())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes the epoch's figures into `logs`, and so into the History."""
        if logs is None:
            return
        for key in self._tables():
            stats = Table(key[1], key[0]).stats()
            totals = _totals(stats)
            before = self._before.get(key, {})
            added = {name: total - before.get(name, 0) for name, total in totals.items()}
            logs[f"{key[1]}/rows"] = stats["rows"]
            logs[f"{key[1]}/bytes"] = stats["bytes"]
            logs.update({f"{key[1]}/{name}": value for name, value in added.items()})
            if added.get("reads"):
                logs[f"{key[1]}/hit_rate"] = added["hits"] / added["reads"]
            self._before[key] = totals


def _totals(stats: dict[str, Any]) -> dict[str, float]:
    """The counters that only grow."""
    cache = {name: value for name, value in stats.get("cache", {}).items() if isinstance(value, int)}
    return {"applies": stats["applies"], **cache}


def _layers(model: Any) -> list[Any]:
    """The model and all layers in it."""
    if hasattr(model, "_flatten_layers"):
        return list(model._flatten_layers())
    return [model, *(layer for child in model.layers for layer in _layers(child))]
