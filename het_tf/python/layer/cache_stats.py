"""`het_tf.callbacks.CacheStats`: what tables and caches have done, every epoch."""

from collections.abc import Sequence
from typing import Any

from het_tf.python.session import collective
from het_tf.python.session.native import tf
from het_tf.python.table.layer_state import layers_of
from het_tf.python.table.table import Table

# What a cache counts that does not grow: it is logged as it stands.
_LEVELS = ("rows", "unsent_rows", "bytes")


class CacheStats(tf.keras.callbacks.Callback):
    """Logs, every epoch and for each table of the model: rows, memory, updates, and the cache's traffic.

    Figures of a table, all of them in `epochs`, those named in `log` also in Keras' logs (and so in the
    History and the progress bar) as `TABLE/FIGURE`:

    * `rows`, `bytes`: what the store holds at the end of the epoch; `cache_rows`, `cache_unsent_rows`,
      `cache_bytes`: what the cache holds.
    * what the epoch has added: `applies` (updates of the table) and, with a cache, every counter of
      `Table.stats()["cache"]`: hits, miss_pull (rows fetched since they were not cached), update_pull (since
      they were stale), bound_push and evict_push (rows sent), bytes each way, and more.
    * `hit_rate`: hits / reads of the epoch.

    Args:
      log: Figures to log; those that a table has not are left out. "all": every one.
      all_ranks: Under Horovod, adds the figures of all ranks' caches and updates; then every rank must have
        the callback. False: figures of this rank alone, so that it may be on one rank.

    Attributes:
      epochs: For each epoch so far: table -> figure -> value.
    """

    def __init__(self, log: Sequence[str] | str = ("rows", "hit_rate"), all_ranks: bool = False) -> None:
        super().__init__()
        self.all_ranks = all_ranks
        if isinstance(log, str) and log != "all":
            raise ValueError(f"log={log!r}; give a list of figures, or 'all'")
        self.log = log if isinstance(log, str) else tuple(log)
        self.epochs: list[dict[str, dict[str, float]]] = []
        self._before: dict[tuple[str, str], dict[str, float]] = {}

    def _tables(self) -> list[tuple[str, str]]:
        found: dict[tuple[str, str], None] = {}
        for layer in layers_of(self.model):
            found.update({(layer.namespace, table.name): None for table in layer.tables})
        return list(found)

    def on_train_begin(self, logs: Any = None) -> None:
        """Remembers where the counters stand."""
        self.epochs = []
        for key in self._tables():
            self._before[key] = _totals(Table(key[1], key[0]).stats())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch's figures to `epochs` and `logs`."""
        figures: dict[str, dict[str, float]] = {}
        for key in self._tables():
            stats = Table(key[1], key[0]).stats()
            totals = _totals(stats)
            before = self._before.get(key, {})
            self._before[key] = totals
            of_rank = {
                f"cache_{name}": stats["cache"][name] for name in _LEVELS if name in stats.get("cache", {})
            }
            of_rank |= {name: total - before.get(name, 0) for name, total in totals.items()}
            figures[key[1]] = of_rank
        if self.all_ranks:
            of_ranks = collective.gather(figures, "cache_stats")
            figures = {
                table: {name: sum(one[table][name] for one in of_ranks) for name in figures[table]}
                for table in figures
            }
        for key in self._tables():
            stats = Table(key[1], key[0]).stats()
            of_table = figures[key[1]]
            of_table |= {"rows": stats["rows"], "bytes": stats["bytes"]}
            if of_table.get("reads"):
                of_table["hit_rate"] = of_table["hits"] / of_table["reads"]
        self.epochs.append(figures)
        if logs is not None:
            logs.update(
                (f"{table}/{name}", value)
                for table, of_table in figures.items()
                for name, value in of_table.items()
                if self.log == "all" or name in self.log
            )


def _totals(stats: dict[str, Any]) -> dict[str, float]:
    """The counters that only grow."""
    counters = {
        name: value
        for name, value in stats.get("cache", {}).items()
        if isinstance(value, int) and name not in _LEVELS
    }
    return {"applies": stats["applies"], **counters}
