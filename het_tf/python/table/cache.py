"""How the tables of a layer are cached (public as `het_tf.Cache`), and such a cache in use."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from het_tf.python.session import native
from het_tf.python.table import device
from het_tf.python.table import hot as hot_rows
from het_tf.python.table.hot import AUTO, Hot
from het_tf.python.table.spec import integer

POLICIES = ("lru", "lfu", "light_lfu")
WIRES = (AUTO, "float32", "float16", "int8", "int4")
CHECKS = ("auto", "asked", "told")

SERVER_CACHE_ROWS = 1 << 18
"""Of a cache without a size, whose tables are at a parameter server or which is on a GPU."""

AS_STALENESS = "staleness"  # of pull_bound and push_bound: the bound that `staleness` gives


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
      staleness: How many updates by other workers a read may miss, and how many own updates of a
        row may be unsent (HET's `s`), 0 to 2**62; default 30, which `hot` tightens for the rows with the most
        updates. None: unbounded. 0: every read is checked and every update is sent at once.
      pull_bound: Sets the first of the two apart; "staleness", the default: as staleness.
      push_bound: Sets the second apart; "staleness", the default: as staleness, and with hot="auto" no
        more than goes with pull_bound and the number of workers.
      total_staleness: In place of staleness: how many updates by all other workers together a read
        may miss. Both bounds are derived from it and the number of workers N, which
        `het_tf.init(hvd=hvd)` has told before; at least N - 1. One worker: unbounded, since its
        reads miss nothing.
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
        the store's answer to the lookup before (docs/concepts.md). Neither on a GPU nor with
        total_staleness. "auto" (default): told from a pull bound of 3 on, as long as that takes fewer
        bytes; asked below, and where "told" may not be.
      hot: Tighter bounds for the rows with the most updates, a `het_tf.Hot`; neither with total_staleness
        nor with an unbounded pull_bound. "auto" (default): bounds that follow the table's learning rate
        and the number of workers, and for all other rows a push bound that follows the number of workers;
        without effect where a `het_tf.Hot` may not be, and at staleness 0 (docs/concepts.md). None: all
        rows have the bounds above.

    Raises:
      ValueError: An argument is out of range or unknown, or two exclude each other; the message
        says what is legal. The layer raises further ones, for what only it can know: the GPU, and
        the workers.
    """

    rows: int | None = None
    bytes: int | None = None
    staleness: int | None = 30
    pull_bound: int | str | None = AS_STALENESS
    push_bound: int | str | None = AS_STALENESS
    total_staleness: int | None = None
    policy: str = "lfu"
    admit_after: int = 1
    device: str = "cpu"
    wire: str = AUTO
    checks: str = "auto"
    hot: Hot | str | None = AUTO

    def __post_init__(self) -> None:
        self._check_bounds()
        self._check_hot()
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
            self._set(name, value if value == AS_STALENESS else _bound(name, value))
        if self.total_staleness is None:
            return
        self._set("total_staleness", integer("cache.total_staleness", self.total_staleness, 0, 2**62))
        if self.checks == "told":
            raise ValueError(
                f"cache.checks is 'told' with total_staleness={self.total_staleness}; rows of which the "
                'store tells may be older by one lookup: give checks="asked" or "auto", or staleness in '
                "place of total_staleness"
            )
        if (self.pull_bound, self.push_bound) != (AS_STALENESS, AS_STALENESS):
            raise ValueError(
                f"cache.total_staleness is {self.total_staleness}, and pull_bound {self.pull_bound!r} and "
                f"push_bound {self.push_bound!r} are given too; it derives both, so leave them out"
            )

    def _check_hot(self) -> None:
        if self.hot is None or self.hot == AUTO:
            return
        if not isinstance(self.hot, Hot):
            raise ValueError(
                f'cache.hot is {self.hot!r}; give a het_tf.Hot, such as het_tf.Hot(rows=4096), "auto" or None'
            )
        if self.total_staleness is not None:
            raise ValueError(
                f"cache.total_staleness is {self.total_staleness}, and cache.hot is given too; it derives "
                "the same bounds for all rows: give staleness in its place, or leave hot out"
            )
        self.hot.check_within(*self.bounds())

    def bounds(self) -> tuple[int | None, int | None]:
        """The bounds of pulls and of pushes that are given; None: unbounded. Not of total_staleness."""
        pull, push = (
            self.staleness if bound == AS_STALENESS else bound for bound in (self.pull_bound, self.push_bound)
        )
        assert not isinstance(pull, str) and not isinstance(push, str)  # _check_bounds
        return pull, push

    @property
    def may_be_stale(self) -> bool:
        """Whether a read may miss an update that another worker has finished."""
        return self.total_staleness is not None or self.bounds() != (0, 0)

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
        hot = config.get("hot")
        return cls(**{**config, "hot": Hot(**hot) if isinstance(hot, Mapping) else hot})


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
    """The cache of a layer in use: where it is, and its bounds for the workers that there are.

    Args:
      given: What the user has asked for.
      workers: The number of workers now.

    Attributes:
      given: As the argument.
      place: "cpu" or "gpu"; for "gpu" everything is loaded.
      pull_bound, push_bound: None: unbounded.
      workers: As the argument.

    Raises:
      ValueError: total_staleness is less than so many workers need; a GPU's cache with what it
        cannot do.
      ImportError: device="gpu", and a library that it takes is not built, or for another
        TensorFlow.
      RuntimeError: device="gpu", and there is no GPU, or its driver is too old.
    """

    def __init__(self, given: Cache, workers: int = 1) -> None:
        self.given = given
        self.workers = workers
        self.pull_bound, self.push_bound = self._bounds(workers)
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

    def _bounds(self, workers: int) -> tuple[int | None, int | None]:
        if self.given.total_staleness is not None:
            return derive_bounds(self.given.total_staleness, workers)
        pull, push = self.given.bounds()
        if self.hot_follows and self.given.push_bound == AS_STALENESS:
            assert pull is not None
            push = hot_rows.push_of_others(pull, push, workers)
        return pull, push

    @property
    def hot_follows(self) -> bool:
        """Whether bounds are those of hot="auto"."""
        if self.given.hot != AUTO or self.given.total_staleness is not None:
            return False
        return self.given.bounds()[0] is not None and self.given.may_be_stale

    def follow(self, workers: int) -> bool:
        """Derives the bounds anew for another number of workers. Returns whether they have changed."""
        before = self.pull_bound, self.push_bound
        self.workers = workers
        self.pull_bound, self.push_bound = self._bounds(workers)
        return (self.pull_bound, self.push_bound) != before

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
        cache: dict[str, Any] = {
            "policy": given.policy,
            "admit_after": given.admit_after,
            "pull_bound": self.pull_bound,
            "push_bound": self.push_bound,
        }
        if (wire := self.wire(remote)) != "float32":
            cache["wire"] = wire
        if given.checks != "asked" and self.place == "cpu" and given.total_staleness is None:
            cache["checks"] = given.checks
        if isinstance(given.hot, Hot):
            cache["hot"] = given.hot.to_json()
        elif self.hot_follows:
            assert self.pull_bound is not None
            cache["hot"] = hot_rows.auto_to_json(self.pull_bound, self.push_bound, self.workers)
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


def derive_bounds(total_staleness: int, workers: int) -> tuple[int | None, int | None]:
    """The bounds with which a read misses at most `total_staleness` updates of all others together.

    A read misses at most `pull_bound + (N - 1) * (push_bound + 1)` of them: what the store had and
    the copy may lack, what each of the others holds back, and its step in progress. Half of what is
    left beside these steps goes to `push_bound`.

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
            f"cache.total_staleness is {total_staleness} with {workers} workers; a read may always miss the "
            f"step in progress of each of the other {others}, so give at least {others}, or staleness=0 for "
            "steps that all workers begin together"
        )
    push = (total_staleness - others) // (2 * others)
    return total_staleness - others * (push + 1), push


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
