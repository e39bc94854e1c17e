"""Configurations of tables and features (public as `het_tf.TableConfig`, `het_tf.FeatureConfig`)."""

import copy
import json
from typing import Any, Literal, get_args

from het_tf.python.checks import one_of, whole, whole_or_none
from het_tf.python.session import native
from het_tf.python.table import initializers, optimizers
from het_tf.python.table.spec import check_number

Combiner = Literal["sum", "mean", "sqrtn"]
Stored = Literal["float32", "bfloat16", "int8"]


class TableConfig:
    """Configures a table of embeddings, which the layer that uses it makes.

    A table is identified by its name within a namespace: two layers with equal configurations share one.
    Ids are int64 and any value is legal, so a table has no size. A row takes memory from its first
    training on.

    Args:
      name: Any non-empty string.
      dim: Floats of a row, 1 to 65536.
      optimizer: One of `het_tf.optimizers`, or its name. Default: `RowWiseAdagrad()`.
      initializer: One of `het_tf.initializers`, or its name. Default: `RandomUniform(-0.05, 0.05)`.
      seed: Seed of the initial rows, 0 to 2**64 - 1. Tables of different names differ even with one seed.
      l2: Adds the gradient of `l2 * sum(row ** 2)` for the rows of each step (`keras.regularizers.L2` on the
        rows).
      max_norm: Rows longer than this (Euclidean) after an update are scaled back to it; None: no limit.
      stored: How the store, at a server or in this process, keeps rows: "float32", "bfloat16" (half of the
        values' memory) or "int8" (a quarter; slots of `dim` floats take 16 bits). Arithmetic is float32;
        updates are rounded at random, so that small ones add up (docs/concepts.md, "Rows in 16 and 8 bits").
        `Ftrl` needs "float32"; "int8" needs a dim of at least 2.
      ttl: Seconds since a row's last update after which it is removed; None: never.
      max_rows: Approximate limit of rows; beyond it the least recently updated of a few sampled rows
        is removed. None: no limit.
      min_count: Rows with fewer updates than this, 0 to 65535, are removed `min_count_ttl` seconds after
        their last one.
      min_count_ttl: Seconds; less than `ttl`.

    The last four limit the growth of the table. They are not part of its identity: declaring it with
    other limits changes them for all users.

    Attributes:
      base: The name in files and configurations: without the number of a layer's own table.
      unnamed: Whether the user has not named it: a layer that declares it makes its own table.
      is_own: Whether a layer has made it for itself (registry.py).

    Raises:
      ValueError: An argument is out of range or unknown; the message gives the legal values.
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
        stored: Stored = "float32",
        ttl: int | None = None,
        max_rows: int | None = None,
        min_count: int = 0,
        min_count_ttl: int = 86400,
    ) -> None:
        if not isinstance(name, str) or not name or "\0" in name:
            raise ValueError(f"name is {name!r}; a table's name is a non-empty string")
        self.name = self.base = name
        self.unnamed = self.is_own = False
        self.dim = whole("dim", dim, 1, 65536)
        self.seed = whole("seed", seed, 0, 2**64 - 1)
        self.optimizer = optimizers.get(optimizer)
        self.initializer = initializers.get(initializer)
        for argument, value in {"l2": l2, "max_norm": max_norm or 0.0}.items():
            check_number(value, f"table {name!r}: {argument}")
        self.l2 = float(l2)
        self.max_norm = None if max_norm is None else float(max_norm)
        if self.max_norm is not None and self.max_norm <= 0:
            raise ValueError(f"table {name!r}: max_norm is {max_norm}; it must be > 0, or None for no limit")
        one_of("stored", stored, get_args(Stored))
        self.stored = stored
        self.ttl = whole_or_none("ttl", ttl, 1, 2**32 - 1, otherwise="None for no limit")
        self.max_rows = whole_or_none("max_rows", max_rows, 1, 2**62, otherwise="None for no limit")
        self.min_count = whole("min_count", min_count, 0, 65535)
        self.min_count_ttl = whole("min_count_ttl", min_count_ttl, 1, 2**32 - 1)
        # The core checks the rest, and its canonical form makes equal tables equal text.
        spec = {**self._spec(), "limits": self._limits}
        self.spec: dict[str, Any] = json.loads(native.call("HetCheckSpec", json.dumps(spec)))

    @property
    def _limits(self) -> dict[str, int]:
        """Returns the limits in the core's form; 0: none."""
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
            "optimizer": self.optimizer._to_spec(),
            "initializer": self.initializer._to_spec(),
            "seed": self.seed,
            "l2": self.l2,
            "max_norm": self.max_norm or 0.0,
            "stored": self.stored,
        }

    def _own(self, name: str) -> "TableConfig":
        """Returns a copy for a layer's own table `name`, with the initial rows of this table."""
        made = copy.copy(self)
        made.name, made.is_own = name, True
        made.spec = {**self.spec, "name": name}
        if name != self.base:
            made.spec["drawn_as"] = self.base
        return made

    def get_config(self) -> dict[str, Any]:
        """Returns JSON, the input of `from_config`."""
        config = {
            "name": self.base,
            "dim": self.dim,
            "optimizer": self.optimizer.get_config(),
            "initializer": self.initializer.get_config(),
            "seed": self.seed,
            "l2": self.l2,
            "max_norm": self.max_norm,
            "stored": self.stored,
            "ttl": self.ttl,
            "max_rows": self.max_rows,
            "min_count": self.min_count,
            "min_count_ttl": self.min_count_ttl,
        }
        return {**config, "unnamed": True} if self.unnamed else config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TableConfig":
        """The inverse of `get_config`."""
        made = cls(**{name: value for name, value in config.items() if name != "unnamed"})
        made.unnamed = config.get("unnamed", False)
        return made

    def __repr__(self) -> str:
        return f"TableConfig({self.name!r}, dim={self.dim}, optimizer={self.optimizer!r})"


class FeatureConfig:
    """Configures how one input reads a table.

    Args:
      table: The table; features may share one (the same object, or an equal configuration).
      combiner: Combines the rows of one sample: "sum", "mean" (divided by the sum of weights), "sqrtn"
        (divided by the root of the sum of their squares); None keeps them apart. A sample without ids gives
        zeros.
      padding_id: This id reads zeros, is not trained, not counted by a combiner, and is masked. None:
        no padding.
      max_sequence_length: With combiner None, cuts or pads (with zeros) the last axis of the ids to this
        length, so that ragged and sparse inputs give dense rows. None: as long as the input.
      name: For messages; the collection sets it.

    Raises:
      ValueError: Unknown combiner, padding_id outside int64, length < 1.
    """

    def __init__(
        self,
        table: TableConfig,
        combiner: Combiner | None = None,
        padding_id: int | None = None,
        max_sequence_length: int | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(table, TableConfig):
            raise ValueError(f"table is {table!r}; give a het_tf.TableConfig")
        if combiner is not None:
            one_of("combiner", combiner, get_args(Combiner), "None to keep rows apart")
        self.table = table
        self.combiner = combiner
        self.padding_id = whole_or_none("padding_id", padding_id, -(2**63), 2**63 - 1)
        self.max_sequence_length = None
        if max_sequence_length is not None:
            self.max_sequence_length = whole("max_sequence_length", max_sequence_length, 1, 2**31 - 1)
            if combiner is not None:
                raise ValueError(
                    f"max_sequence_length is {max_sequence_length} with combiner {combiner!r}; a combiner "
                    "takes rows of any length, leave one of the two out"
                )
        self.name = name

    def get_config(self) -> dict[str, Any]:
        """Returns JSON, with the table's name in place of the table."""
        return {
            "table": self.table.base,
            "combiner": self.combiner,
            "padding_id": self.padding_id,
            "max_sequence_length": self.max_sequence_length,
        }

    def __repr__(self) -> str:
        return (
            f"FeatureConfig({self.table.name!r}, combiner={self.combiner!r}, padding_id={self.padding_id!r})"
        )
