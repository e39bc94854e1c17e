"""What a table is and how a feature uses it (public as `het_tf.TableConfig`, `het_tf.FeatureConfig`)."""

from __future__ import annotations

import json
from typing import Any

from het_tf.python.layer import device, initializers, optimizers
from het_tf.python.layer.spec import check_number
from het_tf.python.session import native

COMBINERS = ("sum", "mean", "sqrtn")
POLICIES = ("lru", "lfu", "light_lfu")
WIRES = ("float32", "float16", "int8")
CHECKS = ("asked", "told")


class TableConfig:
    """A table of embeddings. Makes no table by itself: the layer that uses it does.

    Tables are known by name within a namespace: two layers with equal configurations share one table. Ids are
    int64 and any value is legal, so there is no size to give. A row takes memory when it is trained for the
    first time.

    Args:
      name: Any non-empty string.
      dim: Floats of a row, 1 to 65536.
      optimizer: One of `het_tf.optimizers`, or its name. Default: `RowWiseAdagrad(0.05)`.
      initializer: One of `het_tf.initializers`, or its name. Default: `Uniform(-0.05, 0.05)`.
      seed: Of the initial rows, 0 to 2**64 - 1. Tables of different names differ also with one seed.
      l2: Adds the gradient of `l2 * sum(row ** 2)` for the rows of each step (`keras.regularizers.L2` on the
        rows).
      max_norm: Rows longer than this (Euclidean) after an update are scaled back to it; None: no limit.
      ttl: Seconds since a row's last update after which it is removed; None: never.
      max_rows: About how many rows the table may hold; beyond it the least recently updated of a few rows
        goes. None: no limit.
      min_count: Rows with fewer updates than this, 0 to 65535, are removed `min_count_ttl` seconds after
        their last one.
      min_count_ttl: Seconds; less than `ttl`.

    The last four bound how far the table grows. They are no part of what the table is: declaring it with
    others changes them, also for those who use it already.

    Raises:
      ValueError: Something is out of range or unknown; the message says what is legal.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        optimizer: str | dict[str, Any] | optimizers.Optimizer | None = None,
        initializer: str | dict[str, Any] | initializers.Initializer | None = None,
        seed: int = 0,
        l2: float = 0.0,
        max_norm: float | None = None,
        ttl: int | None = None,
        max_rows: int | None = None,
        min_count: int = 0,
        min_count_ttl: int = 86400,
    ) -> None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise ValueError(f"name is {name!r}; a table's name is a non-empty string")
        self.name = name
        self.dim = _integer("dim", dim, 1, 65536)
        self.seed = _integer("seed", seed, 0, 2**64 - 1)
        self.optimizer = optimizers.get(optimizer)
        self.initializer = initializers.get(initializer)
        for argument, value in {"l2": l2, "max_norm": max_norm or 0.0}.items():
            check_number(value, f"table {name!r}: {argument}")
        self.l2 = float(l2)
        self.max_norm = None if max_norm is None else float(max_norm)
        if self.max_norm is not None and self.max_norm <= 0:
            raise ValueError(f"table {name!r}: max_norm is {max_norm}; it must be > 0, or None for no limit")
        self.ttl = _optional("ttl", ttl, 2**32 - 1)
        self.max_rows = _optional("max_rows", max_rows, 2**62)
        self.min_count = _integer("min_count", min_count, 0, 65535)
        self.min_count_ttl = _integer("min_count_ttl", min_count_ttl, 1, 2**32 - 1)
        # The core checks the rest, and its canonical form makes equal tables equal text.
        spec = {**self._spec(), "limits": self.limits}
        self.spec: dict[str, Any] = json.loads(native.call("HetCheckSpec", json.dumps(spec)))

    @property
    def limits(self) -> dict[str, int]:
        """The limits as the core reads them; 0: none."""
        return {
            "ttl": self.ttl or 0,
            "max_rows": self.max_rows or 0,
            "min_count": self.min_count,
            "min_count_ttl": self.min_count_ttl,
        }

    def _spec(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dim": self.dim,
            "optimizer": self.optimizer.to_spec(),
            "initializer": self.initializer.to_spec(),
            "seed": self.seed,
            "l2": self.l2,
            "max_norm": self.max_norm or 0.0,
        }

    def get_config(self) -> dict[str, Any]:
        """JSON from which `from_config` makes an equal one."""
        return {
            "name": self.name,
            "dim": self.dim,
            "optimizer": self.optimizer.get_config(),
            "initializer": self.initializer.get_config(),
            "seed": self.seed,
            "l2": self.l2,
            "max_norm": self.max_norm,
            "ttl": self.ttl,
            "max_rows": self.max_rows,
            "min_count": self.min_count,
            "min_count_ttl": self.min_count_ttl,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TableConfig:
        """The inverse of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        return f"TableConfig({self.name!r}, dim={self.dim}, optimizer={self.optimizer!r})"


class FeatureConfig:
    """How one input reads a table.

    Args:
      table: The table; features may share one (the same object, or an equal configuration).
      combiner: How the rows of one sample become one: "sum", "mean" (divided by the sum of weights), "sqrtn"
        (divided by the root of the sum of their squares); None keeps them apart. A sample without ids gives
        zeros.
      padding_id: This id reads zeros, learns nothing, counts for nothing in a combiner, and is masked. None:
        every id is a real one.
      max_sequence_length: With combiner None, cuts or pads (with zeros) the last axis of the ids to this
        length, so that ragged and sparse inputs give dense rows. None: as long as the input.
      name: For messages; the collection sets it.

    Raises:
      ValueError: Unknown combiner, padding_id outside of int64, length < 1.
    """

    def __init__(
        self,
        table: TableConfig,
        combiner: str | None = None,
        padding_id: int | None = None,
        max_sequence_length: int | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(table, TableConfig):
            raise ValueError(f"table is {table!r}; give a het_tf.TableConfig")
        if combiner is not None and combiner not in COMBINERS:
            raise ValueError(f"combiner is {combiner!r}; give one of {COMBINERS}, or None to keep rows apart")
        self.table = table
        self.combiner = combiner
        self.padding_id = (
            None if padding_id is None else _integer("padding_id", padding_id, -(2**63), 2**63 - 1)
        )
        self.max_sequence_length = None
        if max_sequence_length is not None:
            self.max_sequence_length = _integer("max_sequence_length", max_sequence_length, 1, 2**31 - 1)
            if combiner is not None:
                raise ValueError(
                    f"max_sequence_length is {max_sequence_length} with combiner {combiner!r}; a combiner "
                    "takes rows of any length, leave one of the two out"
                )
        self.name = name

    def get_config(self) -> dict[str, Any]:
        """JSON, with the table's name in place of the table."""
        return {
            "table": self.table.name,
            "combiner": self.combiner,
            "padding_id": self.padding_id,
            "max_sequence_length": self.max_sequence_length,
        }

    def __repr__(self) -> str:
        return (
            f"FeatureConfig({self.table.name!r}, combiner={self.combiner!r}, padding_id={self.padding_id!r})"
        )


class CacheOptions:
    """How a layer's tables are cached, and how stale their rows may be.

    Args: as those of `het_tf.keras.EmbeddingCollection`.
    """

    def __init__(
        self,
        staleness: int | None,
        pull_bound: int | str | None,
        push_bound: int | str | None,
        cache_rows: int | None,
        policy: str,
        admit_after: int,
        total_staleness: int | None = None,
        workers: int = 1,
        cache_bytes: int | None = None,
        cache_device: str = "cpu",
        wire: str = "float32",
        checks: str = "asked",
    ) -> None:
        self.staleness = _bound("staleness", staleness)
        self.total_staleness = None
        if total_staleness is not None:
            self.total_staleness = _integer("total_staleness", total_staleness, 0, 2**62)
            if (pull_bound, push_bound) != ("staleness", "staleness"):
                raise ValueError(
                    f"total_staleness is {total_staleness}, and pull_bound {pull_bound!r} and push_bound "
                    f"{push_bound!r} are given too; it derives both, so leave them out"
                )
            self.pull_bound, self.push_bound = derive_bounds(self.total_staleness, workers)
        else:
            self.pull_bound = (
                self.staleness if pull_bound == "staleness" else _bound("pull_bound", pull_bound)
            )
            self.push_bound = (
                self.staleness if push_bound == "staleness" else _bound("push_bound", push_bound)
            )
        self.cache_rows = None if cache_rows is None else _integer("cache_rows", cache_rows, 0, 2**32 - 2)
        self.cache_bytes = None
        if cache_bytes is not None:
            self.cache_bytes = _integer("cache_bytes", cache_bytes, 1, 2**62)
            if cache_rows is not None:
                raise ValueError(
                    f"cache_bytes is {cache_bytes}, and cache_rows is {cache_rows}; each says how large the "
                    "cache is, so give one of the two"
                )
        self.cache_device = cache_device
        if self.cache_rows == 0 and cache_device != "cpu":
            raise ValueError(
                f"cache_rows is 0 with cache_device={cache_device!r}; a cache on a GPU holds at least one "
                'row: give cache_rows or cache_bytes, or cache_device="cpu"'
            )
        self._place = device.choose(cache_device)
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}; give one of {POLICIES}")
        self.policy = policy
        self.admit_after = _integer("admit_after", admit_after, 1, 255)
        if wire not in WIRES:
            raise ValueError(f"wire is {wire!r}; give one of {WIRES}")
        self.wire = wire
        if wire != "float32" and self._place != "cpu":
            raise ValueError(
                f"wire is {wire!r} with cache_device={cache_device!r}; rows of a cache on a GPU travel as "
                'float32: give wire="float32", or cache_device="cpu"'
            )
        if checks not in CHECKS:
            raise ValueError(f"checks is {checks!r}; give one of {CHECKS}")
        if checks != "asked" and self._place != "cpu":
            raise ValueError(
                f"checks is {checks!r} with cache_device={cache_device!r}; rows in GPU memory are asked "
                'about: give checks="asked", or cache_device="cpu"'
            )
        self.checks = checks

    @property
    def place(self) -> str:
        """Where the cache is: "cpu" or "gpu"."""
        return self._place

    def to_json(self, spec: str, default_rows: int | None = None) -> str:
        """The table options as the core reads them.

        Args:
          spec: Of the table, as the core reads it.
          default_rows: In place of `cache_rows=None`.

        Raises:
          ValueError: cache_bytes are too few for the smallest cache.
        """
        rows = default_rows if self.cache_rows is None else self.cache_rows
        cache: dict[str, Any] = {
            "policy": self.policy,
            "admit_after": self.admit_after,
            "pull_bound": self.pull_bound,
            "push_bound": self.push_bound,
        }
        if self.wire != "float32":
            cache["wire"] = self.wire
        if self.checks != "asked":
            cache["checks"] = self.checks
        if self.place == "gpu":
            cache["device"] = "gpu"
        if self.cache_bytes is not None:
            try:
                rows = native.call_int("HetCacheRows", spec, json.dumps(cache), self.cache_bytes)
            except ValueError as error:
                raise ValueError(f"cache_bytes is {self.cache_bytes}; {error}") from None
        if rows is None:
            return "{}"
        return json.dumps({"cache": {"capacity": rows, **cache}})

    def follow(self, workers: int) -> bool:
        """Derives the bounds anew for another number of workers. Returns whether they have changed."""
        if self.total_staleness is None:
            return False
        before = self.pull_bound, self.push_bound
        self.pull_bound, self.push_bound = derive_bounds(self.total_staleness, workers)
        return (self.pull_bound, self.push_bound) != before

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, but for the number of workers."""
        config = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        if self.total_staleness is not None:
            config["pull_bound"] = config["push_bound"] = "staleness"
        return config


def derive_bounds(total_staleness: int, workers: int) -> tuple[int | None, int | None]:
    """The bounds with which a read misses at most `total_staleness` updates of all other workers together.

    A read misses at most `pull_bound + (N - 1) * (push_bound + 1)` of them: what the store had and the copy
    may lack, what each of the others holds back, and its step in progress. Half of what is left beside these
    steps goes to `push_bound`.

    Args:
      total_staleness: S, updates of one row.
      workers: N.

    Returns:
      pull_bound and push_bound; None, None (unbounded) for one worker, whose reads miss nothing.

    Raises:
      ValueError: S < N - 1: the steps in progress alone are more.
    """
    others = workers - 1
    if others == 0:
        return None, None
    if total_staleness < others:
        raise ValueError(
            f"total_staleness is {total_staleness} with {workers} workers; a read may always miss the step "
            f"in progress of each of the other {others}, so give at least {others}, or staleness=0 for steps "
            "that all workers begin together"
        )
    push = (total_staleness - others) // (2 * others)
    return total_staleness - others * (push + 1), push


def _bound(argument: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        return _integer(argument, value, 0, 2**62)
    except ValueError:
        raise ValueError(
            f"{argument} is {value!r}; give a number of updates >= 0 (0: every read is checked and every "
            "update sent at once), or None for unbounded"
        ) from None


def _optional(argument: str, value: Any, high: int) -> int | None:
    if value is None:
        return None
    try:
        return _integer(argument, value, 1, high)
    except ValueError:
        raise ValueError(
            f"{argument} is {value!r}; give an integer from 1 to {high}, or None for no limit"
        ) from None


def _integer(argument: str, value: Any, low: int, high: int) -> int:
    try:
        number = int(value)
        if number == value and not isinstance(value, bool) and low <= number <= high:
            return number
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{argument} is {value!r}; give an integer from {low} to {high}")
