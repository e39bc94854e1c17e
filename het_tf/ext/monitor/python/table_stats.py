"""`het_tf.callbacks.TableStats`: figures of tables and caches, by epochs and as lines in TensorBoard."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.ext.monitor.python import log_dir as directory
from het_tf.python.backend import keras
from het_tf.python.checks import whole
from het_tf.python.session import collective, settings
from het_tf.python.table.layer_state import layers_of
from het_tf.python.table.table import Table

# Gauges of a cache; its other numbers are counters, which only grow.
_LEVELS = ("rows", "bytes", "unsent_rows")
# Growth over the steps since the last point: tag -> counters to add up (core/cache/counters.h).
_PER_STEP = {
    "traffic/bytes_in": ("row_bytes_in", "metadata_bytes_in"),
    "traffic/bytes_out": ("row_bytes_out", "metadata_bytes_out"),
    "traffic/row_bytes_in": ("row_bytes_in",),
    "traffic/row_bytes_out": ("row_bytes_out",),
    "traffic/requests": ("requests",),
    "pulled_rows/missing": ("miss_pull",),
    "pulled_rows/stale": ("update_pull",),
    "pushed_rows/bound": ("bound_push",),
    "pushed_rows/age": ("age_push",),
    "pushed_rows/evicted": ("evict_push",),
    "reads": ("reads",),
    "ticks": ("ticks",),
}


class TableStats(keras.callbacks.Callback):
    """Collects figures of every table of the model: of each epoch, and in TensorBoard every `every` steps.

        model.fit(..., callbacks=[het_tf.callbacks.TableStats()])                   # of each epoch
        model.fit(..., callbacks=[het_tf.callbacks.TableStats("logs", every=200)])  # and in TensorBoard

    Figures of an epoch are in `epochs`, those named in `log` also in Keras' logs (the History and the
    progress bar) as `TABLE/FIGURE`:

    * `rows`, `bytes`: size of the table in the store at the end of the epoch; `cache_rows`, `cache_bytes`,
      `cache_unsent_rows`: contents of the cache.
    * growth in the epoch: `updates` (of the table), `unapplied_gradients` (taken and dropped, since nobody
      applied them) and, with a cache, every counter of
      `Table.stats()["cache"]`: hits, miss_pull (rows fetched because they were not cached), update_pull
      (because they were stale), bound_push, age_push and evict_push (rows sent), bytes each way, and more.
    * `hit_rate`: hits / reads of the epoch.

    With a `log_dir`, `tensorboard --logdir logs` shows lines. Tags begin with the name of the table:

    * `rows`, `bytes`, `updates`: of the store. With a shared server only rank 0 writes them.
    * `cache/rows`, `bytes`, `unsent_rows`: contents of the cache at that moment.
    * `cache/hit_rate`: hits / reads since the last point.
    * `traffic/*` (bytes, requests), `pulled_rows/*`, `pushed_rows/*`, `reads`, `ticks`: per step, since the
      last point.
    * `lag/mean`: ticks that the rows checked since the last point lacked; `lag/p99_so_far` and
      `lag/max_so_far`: since the cache was made, because the cache keeps only these. All
      are upper bounds within a factor of two, as in `Table.stats()`.
    * `norm/mean`, `median`, `p99`, `max`: L2 norms of the rows that `norms` names. Only rank 0 writes those
      of rows drawn from the store.

    A table without a cache has only the first and the last group. Under Horovod each rank writes its own run,
    `tables-rank-R`, since each has its own caches; TensorBoard shows them as lines of one figure. Without
    `all_ranks` nothing is exchanged, so a single rank may have the callback. One process writes `tables`.

    Args:
      log_dir: TensorBoard's directory; made if it is missing. None: write nothing.
      every: Steps from one point in TensorBoard to the next, >= 1; or "epoch".
      norms: Table -> rows whose norms are read at every point: a number of rows, drawn from the store by
        `Table.sample`, or ids, whose rows are read as by the model. None: no norms.
      log: Figures of an epoch for Keras' logs; figures that a table lacks are left out. "all": every one.
      all_ranks: Under Horovod, adds up the figures of all ranks' caches and updates in an epoch; then every
        rank must have the callback. False: figures of this rank.

    Attributes:
      epochs: For each epoch of the last `fit`: table -> figure -> value.

    Raises:
      ValueError: An argument is out of range, or log_dir cannot be written. When training begins:
        `norms` names a table that the model lacks.
    """

    def __init__(
        self,
        log_dir: Any = None,
        every: int | str = 100,
        norms: Mapping[str, int | npt.ArrayLike] | None = None,
        *,
        log: Sequence[str] | str = ("rows", "hit_rate"),
        all_ranks: bool = False,
    ) -> None:
        super().__init__()
        if every != "epoch":
            every = whole("every", every, what="a number of steps", otherwise="'epoch'")
        if isinstance(log, str) and log != "all":
            raise ValueError(f"log is {log!r}; give a list of figures, or 'all'")
        if norms and log_dir is None:
            raise ValueError("norms are written to TensorBoard, but log_dir is None; give a directory")
        self.every = every
        self.log = log if isinstance(log, str) else tuple(log)
        self.all_ranks = all_ranks
        self.epochs: list[dict[str, dict[str, float]]] = []
        self._log_dir = None if log_dir is None else directory.made(log_dir, "TableStats")
        self.async_safe = log_dir is None  # Keras need not wait for a step's logs: they are not read here
        self._norms = {name: np.asarray(rows) for name, rows in (norms or {}).items()}
        for name, rows in self._norms.items():
            if not rows.size or rows.dtype.kind not in "iu" or (rows.ndim == 0 and rows < 1):
                raise ValueError(
                    f"norms[{name!r}] is {rows!r}; give a number of rows, an integer of 1 or more, or "
                    "integers, the ids of some rows"
                )
        self._batch = -1  # the last one of the epoch
        self._step = 0  # over all fits: points of a second one come after those of the first
        self._point = 0  # the step of the last point
        self._before: dict[tuple[str, str], dict[str, float]] = {}  # at the last point
        self._epoch: dict[tuple[str, str], dict[str, float]] = {}  # at the last epoch's end
        self._scalars: directory.Scalars | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Records the counters."""
        workers = settings.workers()
        run = "tables" if workers.size == 1 else f"tables-rank-{workers.rank}"
        self._first = workers.rank == 0
        self._tables = {
            (layer.namespace, table.name): Table(table.name, layer.namespace)
            for layer in layers_of(self.model)
            for table in layer.tables
        }
        unknown = sorted(set(self._norms) - {name for _, name in self._tables})
        if unknown:
            known = ", ".join(repr(name) for _, name in self._tables) or "none"
            raise ValueError(f"norms names {unknown}, but the tables of the model are {known}")
        self._before = {key: _flat(table.stats()) for key, table in self._tables.items()}
        self._epoch = dict(self._before)
        self.epochs = []
        self._point = self._step
        if self._log_dir is not None:
            self._scalars = directory.Scalars(f"{self._log_dir.rstrip('/')}/{run}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the step, and writes at every point."""
        # Keras counts from 0 in every epoch; with steps_per_execution it skips numbers.
        self._step += batch - self._batch
        self._batch = batch
        if self.every != "epoch" and self._step - self._point >= self.every:  # type: ignore[operator]
            self._write()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Resets the count of batches."""
        self._batch = -1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch's figures to `epochs` and `logs`, and writes if `every` is "epoch"."""
        figures = self._of_epoch()
        self.epochs.append(figures)
        if logs is not None:
            logs.update(
                (f"{table}/{name}", value)
                for table, of_table in figures.items()
                for name, value in of_table.items()
                if self.log == "all" or name in self.log
            )
        if self.every == "epoch":
            self._write()

    def on_train_end(self, logs: Any = None) -> None:
        """Writes the steps after the last point, and closes the file."""
        if self._step > self._point:
            self._write()
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None

    def _of_epoch(self) -> dict[str, dict[str, float]]:
        figures: dict[str, dict[str, float]] = {}
        for key, table in self._tables.items():
            now, before = _flat(table.stats()), self._epoch[key]
            self._epoch[key] = now
            figures[table.name] = {
                **{f"cache_{name}": now[name] for name in _LEVELS if name in now},
                **{
                    name: value - before.get(name, 0)
                    for name, value in now.items()
                    if name not in _LEVELS and not name.startswith("lag/")
                },
            }
        if self.all_ranks:
            of_ranks = collective.gather(figures, "table_stats")
            figures = {
                table: {name: sum(one[table][name] for one in of_ranks) for name in of_table}
                for table, of_table in figures.items()
            }
        for table in self._tables.values():
            stats, of_table = table.stats(), figures[table.name]
            of_table |= {"rows": stats["rows"], "bytes": stats["bytes"]}
            if of_table.get("reads"):
                of_table["hit_rate"] = of_table["hits"] / of_table["reads"]
        return figures

    def _write(self) -> None:
        if self._scalars is None:
            return
        figures: dict[str, float] = {}
        steps = max(self._step - self._point, 1)
        for key, table in self._tables.items():
            stats = table.stats()
            now, before = _flat(stats), self._before[key]
            found = {"rows": stats["rows"], "bytes": stats["bytes"], "updates": stats["updates"]}
            found = found if self._first else {}
            if "cache" in stats:
                found |= _of_cache(now, before, steps)
            if table.name in self._norms:
                found |= _norms(self._rows(table, self._norms[table.name]))
                # The traffic of this lookup is not part of the training's.
                read, now = now, _flat(table.stats())
                self._epoch[key] = {
                    name: value + now[name] - read[name] for name, value in self._epoch[key].items()
                }
            prefix = f"{key[0]}/{table.name}" if key[0] else table.name
            figures |= {f"{prefix}/{tag}": float(value) for tag, value in found.items()}
            self._before[key] = now
        self._scalars.write(self._step, figures)
        self._point = self._step

    def _rows(self, table: Table, wanted: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if wanted.ndim:
            return table.lookup(wanted.ravel())
        # Draw from the same places at each point, so that a line follows the rows, not the draw.
        return table.sample(int(wanted))[1] if self._first else np.zeros((0, table.dim), np.float32)


def _flat(stats: dict[str, Any]) -> dict[str, float]:
    """Returns updates and the numbers of a cache; lags as lag/..., with the sum of the observed ones."""
    found: dict[str, float] = {name: stats[name] for name in ("updates", "unapplied_gradients")}
    for name, value in stats.get("cache", {}).items():
        if name == "staleness":
            found["lag/observed"] = value["observed"]
            found["lag/sum"] = value["observed"] * value["mean_at_most"]
            found["lag/p99_so_far"] = value["p99_at_most"]
            found["lag/max_so_far"] = value["max_at_most"]
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def _of_cache(now: dict[str, float], before: dict[str, float], steps: int) -> dict[str, float]:
    def grown(name: str) -> float:
        return now[name] - before.get(name, 0)

    found = {f"cache/{name}": now[name] for name in _LEVELS if name in now}
    if grown("reads"):
        found["cache/hit_rate"] = grown("hits") / grown("reads")
    for tag, names in _PER_STEP.items():
        found[tag] = sum(grown(name) for name in names) / steps
    if grown("lag/observed"):
        found["lag/mean"] = grown("lag/sum") / grown("lag/observed")
    if now["lag/observed"]:
        found |= {name: now[name] for name in ("lag/p99_so_far", "lag/max_so_far")}
    return found


def _norms(rows: npt.NDArray[np.float32]) -> dict[str, float]:
    norms = np.linalg.norm(rows.astype(np.float64), axis=-1)
    if not norms.size:
        return {}
    return {
        "norm/mean": norms.mean(),
        "norm/median": np.median(norms),
        "norm/p99": np.quantile(norms, 0.99),
        "norm/max": norms.max(),
    }
