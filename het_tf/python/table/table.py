"""A table as an object (public as `het_tf.Table`)."""

import atexit
import ctypes
import json
import re
import sys
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import ids as ids_lib
from het_tf.python.checks import whole
from het_tf.python.quoting import quoted
from het_tf.python.session import collective, native, scopes, settings
from het_tf.python.table import registry
from het_tf.python.table.notes import HetWarning


class Table:
    """One table of this process, outside any model: reads, sets and removes rows.

    Reads include all training of this process so far, even pending updates in its cache. They do not create
    rows.

    Args:
      name: Name of a table that a layer has made.
      namespace: Its namespace; None: the current one.

    Raises:
      LookupError: The table does not exist; the message lists the existing ones.
      ValueError: `name` is not a string.
    """

    def __init__(self, name: str, namespace: str | None = None) -> None:
        if not isinstance(name, str):
            known = ", ".join(map(repr, tables())) or "none"
            raise ValueError(
                f"name is {name!r}; give the name of a table, as a string: this process has declared {known}"
            )
        self.name = name
        self.namespace = scopes.current_namespace() if namespace is None else namespace
        found = json.loads(native.call("HetFindTable", self.namespace, name))
        self.spec: dict[str, Any] = found["spec"]
        self.options: dict[str, Any] = found["options"]

    hash_ids = staticmethod(ids_lib.hash_ids)

    @property
    def dim(self) -> int:
        """Floats of a row."""
        return int(self.spec["dim"])

    @property
    def size(self) -> int:
        """Number of rows that were ever written; rows that were only read do not count."""
        return native.call_int("HetSize", self.namespace, self.name)

    @property
    def bytes(self) -> int:
        """Memory of rows, slots and index in the store, in bytes."""
        return native.call_int("HetBytes", self.namespace, self.name)

    @property
    def updates(self) -> int:
        """Number of updates so far: the step of a learning-rate schedule."""
        return native.call_int("HetApplies", self.namespace, self.name)

    @property
    def row_floats(self) -> int:
        """Floats of a row including the slots of its optimizer."""
        return native.call_int("HetRowFloats", self.namespace, self.name)

    def lookup(self, ids: Any, stored: bool = False) -> native.FloatArray:
        """Returns the values of rows; an unwritten id has its initial row.

        Args:
          ids: Integers, or strings (`Table.hash_ids`), of any shape.
          stored: False: the values that the model reads now: through the cache of this process, with its own
            updates, others' updates within the cache's bound, and the rounding of its `wire`. True: the
            store's values, as in `to_numpy`; sends pending updates of this process's caches first. Without
            a cache both are the same.

        Returns:
          float32 of shape `ids.shape + [dim]`.
        """
        keys = _ids(ids, self.name)
        unique, places = np.unique(keys, return_inverse=True) if stored else (keys, ...)
        values = np.empty((*unique.shape, self.dim), np.float32)
        native.call("HetRead", self.namespace, self.name, unique, unique.size, int(stored), values)
        return values[places].reshape(*keys.shape, self.dim)

    def assign(
        self, ids: Any, values: npt.ArrayLike, with_slots: bool = False, clocks: npt.ArrayLike | None = None
    ) -> None:
        """Sets rows, for example pretrained ones. They train on as new rows: slots and clocks begin anew.

        With slots and clocks a row trains on as it did where they are from:
        `rows = one.scan(); other.assign(rows["ids"], rows["rows"], True, rows["clocks"])`.

        Args:
          ids: Integers or strings of shape [N]; the last of equal ones counts.
          values: Floats of shape [N, dim], or [N, row_floats] with slots.
          with_slots: Whether values contain slots.
          clocks: Integers >= 0 of shape [N]: the updates that each row has had, with its slots. Optimizers
            with `decay_steps` other than 1 need them.

        Raises:
          ValueError: The shapes do not fit, a value is NaN or Inf, a clock is negative, clocks come without
            slots, or slots without clocks that the optimizer needs.
        """
        keys = _ids(ids, self.name)
        rows = np.ascontiguousarray(values, np.float32)
        width = self.row_floats if with_slots else self.dim
        if keys.ndim != 1 or rows.shape != (keys.size, width):
            raise ValueError(
                f"table {self.name!r}: ids have shape {keys.shape} and values {rows.shape}; they must be [N] "
                f"and [N, {width}]"
            )
        if not np.isfinite(rows).all():
            raise ValueError(f"table {self.name!r}: values hold NaN or Inf; no row was changed")
        ages = None if clocks is None else self._ages(clocks, keys, with_slots)
        native.call("HetAssign", self.namespace, self.name, keys, keys.size, rows, int(with_slots), ages)
        registry.accept_rows(self.namespace, [self.name])

    def _ages(self, clocks: npt.ArrayLike, keys: native.Int64Array, with_slots: bool) -> native.Int64Array:
        given = np.asarray(clocks)
        if given.shape != keys.shape or not np.issubdtype(given.dtype, np.integer) or (given < 0).any():
            raise ValueError(
                f"table {self.name!r}: clocks are {given.dtype} of shape {given.shape}; they must be "
                f"integers >= 0 of shape {keys.shape}"
            )
        if not with_slots:
            raise ValueError(
                f"table {self.name!r}: clocks belong to slots; give rows with slots and with_slots=True"
            )
        return np.ascontiguousarray(given, np.int64)

    def remove(self, ids: Any) -> int:
        """Removes rows, which get their initial values again. Returns their number.

        Args:
          ids: Integers or strings of any shape: `het_tf.Table("user").remove(["u-17"])`.
        """
        keys = _ids(ids, self.name)
        return native.call_int("HetRemove", self.namespace, self.name, keys, keys.size)

    def clear(self) -> None:
        """Removes all rows."""
        native.call("HetClear", self.namespace, self.name)
        registry.accept_rows(self.namespace, [self.name])

    def to_numpy(self) -> tuple[native.Int64Array, native.FloatArray]:
        """Returns all rows that were ever written, ordered by id: int64 ids [N], and float32 rows [N, dim].

        `scan` also returns the optimizer's slots and the clocks.
        """
        rows = self.scan()
        return rows["ids"], rows["rows"][:, : self.dim].copy()

    def sample(self, count: int, seed: int = 0) -> tuple[native.Int64Array, native.FloatArray]:
        """Samples rows of the store without a pass over all of it; returns all rows of a small table.

        Rows come in runs of 64, from random places in the store's order. So rows that were made one after
        another come together, and a row may come twice.

        Args:
          count: Number of rows, >= 1.
          seed: Seed of the places.

        Returns:
          int64 ids [n], and float32 values [n, dim], with n <= count: n = count for a table with more rows,
          or a few less if rows were removed meanwhile. Pending updates of caches are not included: `flush`.

        Raises:
          ValueError: count is not an integer of 1 or more.
        """
        count = whole("count", count, what="a number of rows")
        count = int(min(count, max(self.stats()["rows"], 1)))
        ids, values = np.empty(count, np.int64), np.empty((count, self.dim), np.float32)
        found = native.call_int("HetSample", self.namespace, self.name, count, int(seed), ids, values)
        return ids[:found], values[:found]

    def scan(self) -> dict[str, npt.NDArray[Any]]:
        """Returns all data of all rows, ordered by id.

        Returns:
          ids int64 [N], clocks int64 [N] (updates of the row, counted from a common floor after removals),
          last_used uint32 [N] (time of the last update, in seconds since 1970 by the store's clock),
          counts uint16 [N] (updates, saturating), rows float32 [N, row_floats].
        """
        handle, count, width = ctypes.c_void_p(), ctypes.c_int64(), ctypes.c_int64()
        native.call(
            "HetScan", self.namespace, self.name, *(ctypes.byref(out) for out in (handle, count, width))
        )
        try:
            number = count.value
            columns: dict[str, npt.NDArray[Any]] = {
                "ids": np.empty(number, np.int64),
                "clocks": np.empty(number, np.int64),
                "last_used": np.empty(number, np.uint32),
                "counts": np.empty(number, np.uint16),
                "rows": np.empty((number, width.value), np.float32),
            }
            native.call("HetScanCopy", handle, *columns.values())
        finally:
            native.library.HetScanFree(handle)
        order = np.argsort(columns["ids"], kind="stable")
        return {name: column[order] for name, column in columns.items()}

    def stats(self) -> dict[str, Any]:
        """Returns figures of the table.

        Returns:
          "table", "dim", "mode" ("direct" or "cached"), "updates", "unapplied_gradients" (taken and dropped,
          since nobody applied them), "rows" and "bytes" of the store. With a cache also "cache": its "rows"
          and "bytes", "capacity" in rows (with one budget of bytes for a layer: at present), "unsent_rows"
          whose updates the store lacks (so "rows" of the store may be behind: `flush` first), the
          "staleness" that reads have observed, and counters of traffic (explained in
          het_tf/core/cache/counters.h).
        """
        return dict(json.loads(native.call("HetStats", self.namespace, self.name)))

    def flush(self) -> None:
        """Sends pending updates of the namespace's caches, and waits until they are applied."""
        native.call("HetFlush", self.namespace)

    def drop(self) -> None:
        """Removes the table. Layers that use it fail from then on."""
        native.call("HetDropTable", self.namespace, self.name)
        registry.forget(self.namespace, self.name)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        place = f", namespace={self.namespace!r}" if self.namespace else ""
        return f"Table({self.name!r}, dim={self.dim}, size={self.size}{place})"


def _ids(ids: Any, table: str) -> native.Int64Array:
    keys = ids_lib.array_of(ids, f"table {quoted(table)}: ids")
    if lost := np.count_nonzero(keys == -(2**63)):  # as in a layer's call (core/engine/call_spec.h)
        raise ValueError(
            f"table {quoted(table)}: {lost} of {keys.size} ids are -2^63, which is what NaN becomes as an "
            "integer; leave them out"
        )
    return keys


def tables() -> list[str]:
    """Names of the tables of the current namespace."""
    return list(json.loads(native.call("HetTableNames", scopes.current_namespace())))


def flush(all_ranks: bool = False) -> None:
    """Sends pending updates of caches, and waits until they are applied.

    Args:
      all_ranks: False: caches of the current namespace in this process. True: caches of all namespaces and
        all ranks of the job; every rank must call it, and it returns when every rank has sent.

    Raises:
      ConnectionError, TimeoutError: The parameter server does not answer; with `all_ranks` on every rank, if
        it does not answer one of them.
    """
    if not all_ranks:
        native.call("HetFlush", scopes.current_namespace())
        return
    with collective.together("flush", "send what its caches held back"):
        for namespace in registry.namespaces():
            native.call("HetFlush", namespace)
    for namespace in registry.namespaces():
        native.call("HetSettle", namespace)


def reset(namespace: str | None = None) -> None:
    """Forgets all tables of a namespace, with their rows. Layers that use them must be built again.

    Tables at a parameter server stay there, with the caches' pending updates; `Table.drop` removes one.

    Args:
      namespace: None: the current one.
    """
    name = scopes.current_namespace() if namespace is None else namespace
    _flush_or_warn(name)
    native.call("HetReset", name)
    registry.forget(name)


def _flush_or_warn(namespace: str, interrupted: bool = False) -> None:
    """Sends pending updates of a namespace to the parameter server before it is forgotten.

    `interrupted`: Ctrl-C ends the program, so the wait for a server that stands still ends, too.
    """
    try:
        native.call("HetFlushRemote", namespace, int(interrupted))
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and not interrupted:
            raise
        why = re.sub(";? updates that were made are kept and will be sent", "", str(error))  # these are lost
        warnings.warn(
            f"het_tf: updates of the namespace {namespace!r} that were not sent yet are lost: {why}",
            HetWarning,
            stacklevel=3,
        )


def _reset_all() -> None:
    for name in registry.namespaces():
        reset(name)


settings.at_leaving(_reset_all)


@atexit.register
def _flush_at_exit() -> None:
    ends_by = getattr(sys, "last_type", None) or Exception  # of an exception that nobody caught
    for namespace in registry.namespaces():
        _flush_or_warn(namespace, issubclass(ends_by, KeyboardInterrupt))
