"""How the tables of a layer are cached (public as `het_tf.Cache`), and such a cache in use."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from het_tf.python.session import native
from het_tf.python.table import device
from het_tf.python.table.spec import integer

AUTO = "auto"
POLICIES = ("lru", "lfu", "light_lfu")
WIRES = (AUTO, "float32", "float16", "int8", "int4")
CHECKS = ("auto", "asked", "told")

SERVER_CACHE_ROWS = 1 << 18
"""Of a cache without a size, whose tables are at a parameter server or which is on a GPU."""

BY_AGE = "by age"  # pull_bound and push_bound: they follow `staleness` and the age of a row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cache:
    """How a worker caches the rows of a layer's tables, and how stale they may be.

        cache = het_tf.Cache(rows=100_000, staleness=10, policy="lru")
        item = het_tf.keras.Embedding(16, name="item", cache=cache)

    Every table of the layer has a cache of its own, of this kind. A cache without a size is one of
    262,144 rows where there must be one: at a parameter server, and on a GPU. Tables in this
    process are then read directly, and the bounds, the policy and the rest are without effect.

    Args:
      rows: Rows of each table that this worker caches, 0 to 2**32 - 2; 0: none stays longer than a
        step. None, the default: see above.
      bytes: In place of rows: memory of each table's cache, 1 to 2**62. As many rows as fit.
      staleness: How stale a copy of a row may be at most, HET's `s`, 0 to 2**62; default 30. Below that the
        bound follows the row's age, which is its number of updates: a read may miss one update for each
        10 of them, and the workers together hold back about as many, so young rows are read and written
        fresh. With an optimizer other than Adagrad's family updates are not held back, and a read may miss
        10 (docs/concepts.md). 0: every read is checked and every update is applied at once, which makes
        N workers equal one process. None: unbounded.
      pull_bound: In place of the age: HET's bound, one number for all rows. A read may miss so many updates
        that the store has, 0 to 2**62; None: unbounded. If only push_bound is given: `staleness`.
      push_bound: The same for own updates of a row that the store may not have yet. If only pull_bound is
        given: `staleness`.
      policy: What leaves a full cache: "lfu" (default), the row with the fewest uses; "light_lfu", the same
        with counts up to 8; "lru", the row that was not used for the longest time (docs/concepts.md).
      admit_after: Steps in which an id must have occurred before its row may stay in the cache, 1
        (default) to 255.
      device: Where the cache is, and the lookups run: "cpu" (default), in host memory; "gpu", in
        the memory of TensorFlow's first GPU; "auto", there if it can be, which is logged where it cannot
        (docs/gpu-cache.md).
      wire: How rows and updates travel between cache and store: "float32"; "float16", half the bytes;
        "int8", about a quarter; "int4", that for rows and about an eighth for updates. What rounding takes
        away from an update is sent with the row's next one; tables and caches hold float32 always
        (docs/concepts.md). "auto" (default): int4 where the table is at a parameter server
        and cached rows may be stale; float32 at staleness 0, without a cache (rows=0), in this process, and
        on a GPU, which can do no other.
      checks: How cached rows stay within pull_bound. "asked": at every lookup their clocks are sent to
        the store. "told": the store remembers what this worker holds and names what has moved past the
        bound: fewer bytes, and lookups of cached rows that do not wait; a row is within the bound as of
        the store's answer to the lookup before (docs/concepts.md). Not on a GPU. "auto" (default): told
        where copies may miss 3 updates or more, as long as that takes fewer bytes; else asked.

    Raises:
      ValueError: An argument is out of range or unknown, or two exclude each other; the message
        says what is legal. The layer raises further ones, for what only it can know: the GPU, and
        the workers.
    """

    rows: int | None = None
    bytes: int | None = None
    staleness: int | None = 30
    pull_bound: int | str | None = BY_AGE
    push_bound: int | str | None = BY_AGE
    policy: str = "lfu"
    admit_after: int = 1
    device: str = "cpu"
    wire: str = AUTO
    checks: str = "auto"

    def __post_init__(self) -> None:
        self._check_bounds()
        self._check_size()
        self._set("admit_after", integer("cache.admit_after", self.admit_after, 1, 255))
        for name, known in (("policy", POLICIES), ("wire", WIRES), ("checks", CHECKS)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"cache.{name} is {value!r}; give one of {known}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_bounds(self) -> None:
        self._set("staleness", _bound("staleness", self.staleness))
        for name in ("pull_bound", "push_bound"):
            value = getattr(self, name)
            self._set(name, value if value == BY_AGE else _bound(name, value))

    def bounds(self) -> dict[str, int | None]:
        """The options of the bounds as the core reads them, without the number of workers."""
        if self.pull_bound == BY_AGE and self.push_bound == BY_AGE:
            return {"staleness": self.staleness}
        given = {"pull_bound": self.pull_bound, "push_bound": self.push_bound}
        return {name: self.staleness if value == BY_AGE else value for name, value in given.items()}  # type: ignore[misc]

    @property
    def may_be_stale(self) -> bool:
        """Whether a read may miss an update that another worker has finished."""
        return any(bound != 0 for bound in self.bounds().values())

    def _check_size(self) -> None:
        if self.rows is not None:
            self._set("rows", integer("cache.rows", self.rows, 0, 2**32 - 2))
        if self.bytes is not None:
            self._set("bytes", integer("cache.bytes", self.bytes, 1, 2**62))
            if self.rows is not None:
                raise ValueError(
                    f"cache.bytes is {self.bytes}, and cache.rows is {self.rows}; each says how large the "
                    "cache is, so give one of the two"
                )
        device.check_place(self.device)
        if self.rows == 0 and self.device != "cpu":
            raise ValueError(
                f"cache.rows is 0 with device={self.device!r}; a cache on a GPU holds at least one row: give "
                'rows or bytes, or device="cpu"'
            )

    def get_config(self) -> dict[str, Any]:
        """JSON from which `from_config` makes an equal one: the arguments."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Cache":
        """The inverse of `get_config`."""
        return cls(**config)


def of_argument(cache: Any) -> Cache:
    """What the argument `cache` of a layer or model means. ValueError: it is no Cache."""
    if cache is None:
        return Cache()
    if not isinstance(cache, Cache):
        raise ValueError(
            f"cache is {cache!r}; give a het_tf.Cache, such as het_tf.Cache(rows=100_000), or "
            "None for its defaults"
        )
    return cache


class LayerCache:
    """The cache of a layer in use: where it is, and what the core is told of it.

    Args:
      given: What the user has asked for.
      workers: The number of workers now.

    Attributes:
      given: As the argument.
      place: "cpu" or "gpu"; for "gpu" everything is loaded.
      workers: As the argument.

    Raises:
      ValueError: A GPU's cache with what it cannot do.
      ImportError: device="gpu", and a library that it takes is not built, or for another
        TensorFlow.
      RuntimeError: device="gpu", and there is no GPU, or its driver is too old.
    """

    def __init__(self, given: Cache, workers: int = 1) -> None:
        self.given = given
        self.workers = workers
        self.place = device.choose(given.device)
        if self.place == "cpu":
            return
        if given.wire not in (AUTO, "float32"):
            raise ValueError(
                f"cache.wire is {given.wire!r} with device={given.device!r}; rows of a cache on a GPU travel "
                'as float32: give wire="auto" or "float32", or device="cpu"'
            )
        if given.checks == "told":
            raise ValueError(
                f"cache.checks is {given.checks!r} with device={given.device!r}; rows in GPU memory are "
                'asked about: give checks="asked" or "auto", or device="cpu"'
            )

    def wire(self, remote: bool) -> str:
        """How rows travel, never "auto".

        Args:
          remote: Whether the table is at a parameter server.
        """
        if self.given.wire != AUTO:
            return self.given.wire
        rounds = remote and self.place == "cpu" and self.given.rows != 0 and self.given.may_be_stale
        return "int4" if rounds else "float32"

    def to_json(self, spec: str, remote: bool = False) -> str:
        """The table options as the core reads them.

        Args:
          spec: Of the table, as the core reads it.
          remote: Whether the table is at a parameter server.

        Raises:
          ValueError: `bytes` are too few for the smallest cache.
        """
        given = self.given
        rows = given.rows
        if rows is None and (remote or self.place == "gpu"):
            rows = SERVER_CACHE_ROWS
        cache: dict[str, Any] = {"policy": given.policy, "admit_after": given.admit_after, **given.bounds()}
        if "staleness" in cache:
            cache["workers"] = self.workers
        if (wire := self.wire(remote)) != "float32":
            cache["wire"] = wire
        if given.checks != "asked" and self.place == "cpu":
            cache["checks"] = given.checks
        if self.place == "gpu":
            cache["device"] = "gpu"
        if given.bytes is not None:
            try:
                rows = native.call_int("HetCacheRows", spec, json.dumps(cache), given.bytes)
            except ValueError as error:
                raise ValueError(f"cache.bytes is {given.bytes}; {error}") from None
        if rows is None:
            return "{}"
        return json.dumps({"cache": {"capacity": rows, **cache}})


def _bound(argument: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        whole = isinstance(value, float) and value.is_integer()  # a bound may have been computed
        return integer(argument, int(value) if whole else value, 0, 2**62)
    except ValueError:
        raise ValueError(
            f"cache.{argument} is {value!r}; give a number of updates >= 0 (0: every read is checked and "
            "every update sent at once), or None for unbounded"
        ) from None
