"""The configuration of a layer's cache (public as `het_tf.Cache`), and such a cache in use."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from het_tf.python import extensions
from het_tf.python.quoting import quoted
from het_tf.python.session import native
from het_tf.python.session.native import plain
from het_tf.python.table.config import TableConfig

BOUNDS = ("staleness", "pull_bound", "push_bound")  # names in the core


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds on staleness for rows of every age, as in HET: `Cache(staleness=Bounds(...))`.

    Args:
      pull: Updates of a row that a read may miss, 0 to 2**62; math.inf: unbounded.
      push: Own updates of a row that the store may lack, 0 to 2**62; math.inf: unbounded.
    """

    pull: float
    push: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None:
                raise ValueError(
                    f"Bounds({name}=...) is None; give a number of updates, or math.inf for no bound"
                )
            object.__setattr__(self, name, plain(value))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cache:
    """Configures how a worker caches the rows of a layer's tables, and how stale they may be.

        cache = het_tf.Cache(bytes=1 << 30, staleness=10)
        embed = het_tf.keras.EmbeddingCollection(features, cache=cache)

    Every table of the layer has its own cache with this configuration; a table that an earlier layer has made
    keeps its cache. None means an argument's default, which the core fills in
    (`het_tf.Table(NAME).options` has the result).

    Args:
      rows: Rows of each table that this worker caches, 0 to 2**32 - 2; 0: rows stay only for one
        step. Or a dict from the name of each table to its rows. Default: 262,144
        at a parameter server and on a GPU; elsewhere tables are read directly, and the other arguments
        have no effect. Equal numbers of rows for unequal tables waste memory: prefer bytes.
      bytes: In place of rows: memory of all tables of the layer together, 1 to 2**62. Tables grow as needed
        while the sum fits; then the least used rows of all tables leave
        (`het_tf.Table(NAME).stats()` has its present "capacity"). Rows and their metadata count; an
        unsent update takes as much again as its row. On a GPU each table has a fixed, equal share.
      staleness: The most updates that a copy of a row may miss, HET's `s`, 0 to 2**62; default 30. Below that
        the bound follows the row's age, its number of updates: a read may miss one update for each
        10 of them, so young rows are read fresh. With AdaGrad (`decay_steps=1`) and FTRL the workers
        together hold back about as many as a read may miss. With SGD, Adam and RMSprop a read may miss at
        most 3, and no update is held back; with tables' default optimizer that holds until a row's steps
        are small, for reads up to an age of 480, for updates up to 960 (docs/concepts.md). 0: every read is
        checked and every update is applied at once, so N workers equal one process.
        "synchronous": 0, with rows rounded on the wire (`wire`):
        about a quarter of the bytes. math.inf: unbounded.
        `Bounds(pull, push)`: fixed bounds for reads and for own updates, in place of the age.
      push_max_age: Seconds after which an update is sent, whatever the bound on own updates, also while
        training waits for data; 0.01 to 1e9. math.inf and the default: no limit. Steps do not wait for these
        pushes. Only for tables at a parameter server: in this process it has no effect. Not on a GPU
        (docs/protocol.md).
      policy: The row that leaves a full cache: "lfu" (default), the row with the fewest uses; "lru",
        the least recently used row (docs/concepts.md).
      device: The place of the cache and of the lookups: "cpu" (default), host memory; "gpu",
        the memory of TensorFlow's first GPU; "auto", the GPU if possible, else a log line and the CPU
        (docs/gpu.md).
      wire: Format of rows and updates between cache and store: "float32"; "float16", half the bytes;
        "int8", a quarter; "int4", a sixth for rows and an eighth or less for updates. The rounding error
        of an update is sent with the row's next one; tables and caches always hold float32
        (docs/concepts.md). Default: int4 if the table is at a parameter server and cached rows may be
        stale, or staleness is "synchronous"; float32 at staleness 0, without a cache (rows=0), in this
        process, and on a GPU, which supports only float32.
      checks: How cached rows stay within the bound of reads. "asked": every lookup sends their clocks
        to the store. "notified": the worker subscribes to the rows that it holds, and the store notifies it
        of rows past the bound: fewer bytes, and lookups of cached rows do not wait; a row is within the bound
        as of the store's answer to the previous lookup (docs/protocol.md). Default: notified if copies may
        miss 3 updates or more, else asked.

    Raises:
      ValueError: An argument is out of range or unknown, or two exclude each other; the message
        gives the legal values. The layer raises further errors that depend on the GPU, the
        workers, and tables that `rows` lacks.
    """

    rows: int | Mapping[str, int] | None = None
    bytes: int | None = None
    staleness: float | Literal["synchronous"] | Bounds | None = None
    push_max_age: float | None = None
    policy: Literal["lfu", "lru"] | None = None
    device: Literal["cpu", "gpu", "auto"] | None = None
    wire: Literal["float32", "float16", "int8", "int4"] | None = None
    checks: Literal["asked", "notified"] | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _plain(field.name, getattr(self, field.name)))
        place = "gpu" if extensions.of("device").check_place(self.device) == "auto" else self.device
        by_table: Mapping[str, Any] = self.rows if isinstance(self.rows, Mapping) else {"": self.rows}
        for table, rows in by_table.items():
            try:
                holds = native.call("HetCheckCache", self._to_json(place, rows))
            except ValueError as error:
                text = re.sub(r"\bcache\.(pull|push)_bound\b", r"cache.staleness.\1", str(error))
                raise ValueError(f"table {quoted(table)}: {text}" if table else text) from None
        object.__setattr__(self, "_holds", json.loads(holds)["cache"])

    def __hash__(self) -> int:
        return hash(json.dumps(self.get_config(), sort_keys=True))

    def _to_json(self, place: str | None, rows: int | None, **more: Any) -> str:
        """Returns the arguments in the core's form (engine/table_options.h), for a table with `rows`."""
        given = {**vars(self), "device": place, "rows": rows, "_holds": None, **more}
        if isinstance(self.staleness, Bounds):
            bounds = {f"{name}_bound": value for name, value in vars(self.staleness).items()}
            given = {**given, "staleness": None, **bounds}
        given = {name: value for name, value in given.items() if value is not None}
        for name in (*BOUNDS, "push_max_age"):
            if given.get(name) == math.inf:
                given[name] = None
        return json.dumps(given, default=repr)  # the core refuses such a value by its name

    @property
    def _may_be_stale(self) -> bool:
        """Whether a read may miss a finished update of another worker."""
        return any(self._holds.get(name, 0) != 0 for name in BOUNDS)  # type: ignore[attr-defined]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as JSON, the input of `from_config`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Cache":
        """The inverse of `get_config`."""
        staleness = config.get("staleness")
        if isinstance(staleness, Mapping):
            config = {**config, "staleness": Bounds(**staleness)}
        return cls(**config)


def _plain(name: str, value: Any) -> Any:
    """Returns the value of an argument, which may be a dict by table."""
    if not isinstance(value, Mapping):
        return plain(value)
    if not value or None in value.values() or not all(isinstance(table, str) for table in value):
        raise ValueError(f"cache.{name} is {value!r}; give a dict from the name of each table to its number")
    return {table: plain(number) for table, number in value.items()}


def of_argument(cache: Any) -> Cache:
    """Returns the Cache of a layer's or model's argument `cache`. ValueError: it is not a Cache."""
    if cache is None:
        return Cache()
    if not isinstance(cache, Cache):
        raise ValueError(
            f"cache is {cache!r}; give a het_tf.Cache, such as het_tf.Cache(rows=100_000), or "
            "None for its defaults"
        )
    return cache


_layers = itertools.count(1)


class LayerCache:
    """The cache of a layer in use: its place, and its options in the core.

    Args:
      given: The user's argument.
      tables: Tables of the layer.
      workers: The present number of workers.

    Attributes:
      given: As the argument.
      place: "cpu" or "gpu"; for "gpu" all libraries are loaded.
      workers: As the argument.

    Raises:
      ValueError: `rows` names some, but not all tables of the layer.
      ImportError: device="gpu", but a library that it needs is not built, or built for another
        TensorFlow.
      RuntimeError: device="gpu", but the machine has no GPU, or its driver is too old.
    """

    def __init__(self, given: Cache, tables: Sequence[TableConfig], workers: int = 1) -> None:
        self.given = given
        self.workers = workers
        self._rows = {table.base: _rows_of(given, table) for table in tables}
        self._layer = {} if given.bytes is None else {"tables": len(tables), "layer": next(_layers)}
        self.place = extensions.of("device").choose(given.device)

    def to_json(self, table: TableConfig) -> str:
        """Returns the options of one of its tables in the core's form."""
        return self.given._to_json(self.place, self._rows[table.base], workers=self.workers, **self._layer)


def _rows_of(given: Cache, table: TableConfig) -> int | None:
    if not isinstance(given.rows, Mapping):
        return given.rows
    if table.base not in given.rows:
        what = f"cache.rows has no table {quoted(table.base)}, but {', '.join(map(quoted, given.rows))}"
        raise ValueError(f"{what}; give its rows")
    return given.rows[table.base]
