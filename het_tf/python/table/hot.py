"""The rows of a table that need to be fresher than the others (public as `het_tf.Hot`)."""

import dataclasses

from het_tf.python.table.spec import integer

_EARLY_PUSH = 4  # SyncPolicy::kEarlyPush
AUTO = "auto"
"""As `Cache.hot`: bounds that follow the learning rate and the number of workers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hot:
    """Tighter bounds for the rows of a table that get most of the updates.

        cache = het_tf.Cache(staleness=30, hot=het_tf.Hot(rows=4096, push=4, pull=16))

    What stale rows cost in accuracy comes from the few thousand most frequent ones; all others may be
    staler for the same result. The store finds them by their updates, one in 32 steps of the job or
    more, and tells each worker with the rows that it sends. A row that is too new to be judged has
    the tighter bounds, too (docs/concepts.md).

    Args:
      rows: Of each table, of all its partitions together, so many rows may be hot, 1 to 2**32 - 1;
        default 4096. Those with the most updates are, if there are more.
      push: Of a hot row, how many own updates may be unsent, 0 to 2**62; default 4. At most
        `push_bound` of the cache.
      pull: Of a hot row, how many updates that the store has a read may miss, 0 to 2**62; default 16.
        At most `pull_bound` of the cache.

    Raises:
      ValueError: An argument is out of range, or no integer.
    """

    rows: int = 4096
    push: int = 4
    pull: int = 16

    def __post_init__(self) -> None:
        for name, low, high in (("rows", 1, 2**32 - 1), ("push", 0, 2**62), ("pull", 0, 2**62)):
            object.__setattr__(self, name, integer(f"hot.{name}", getattr(self, name), low, high))

    def check_within(self, pull_bound: int | None, push_bound: int | None) -> None:
        """ValueError: a bound here is above the cache's; None: unbounded."""
        if pull_bound is None:
            raise ValueError(
                "cache.hot is given, and cache.pull_bound is None; copies are then never checked, so no "
                "worker would hear that a row is hot: give staleness or pull_bound, or leave hot out"
            )
        for name, tight, loose in (("pull", self.pull, pull_bound), ("push", self.push, push_bound)):
            if loose is not None and tight > loose:
                raise ValueError(
                    f"cache.hot.{name} is {tight}, and cache.{name}_bound is {loose}; hot rows have the "
                    f"tighter bounds: give het_tf.Hot({name}=...) of at most {loose}, or a larger staleness"
                )

    def to_json(self) -> dict[str, int]:
        """The cache option `hot`, as the core reads it."""
        return {"rows": self.rows, "pull_bound": self.pull, "push_bound": self.push}


def push_of_others(pull_bound: int, push_bound: int | None, workers: int) -> int | None:
    """The push bound of the rows that are not hot, for "auto"; at most `push_bound`.

    A seldom row comes to its push bound late: what N workers hold back of it is missed for long. Of a row
    that every worker updates at every step, a worker pushes one in push + 1 steps and pulls one in
    pull / (N - 1); at equal lag both together are fewest where pull is 0.775 (N - 1) (push + 1). A
    small bound is given as one more: rows then go out at it, as often, and no step waits for them.

    Args:
      pull_bound: Of the table.
      push_bound: What `staleness` gives; None: unbounded.
      workers: N.
    """
    if workers == 1:
        return push_bound
    push = max(1, int(pull_bound / (0.775 * (workers - 1))))
    push += push < _EARLY_PUSH
    return push if push_bound is None else min(push, push_bound)


def auto_to_json(pull_bound: int, push_bound: int | None, workers: int) -> dict[str, int]:
    """The cache option `hot` for "auto": at first `Hot()`, as far as the table's bounds allow.

    Args:
      pull_bound: Of the table.
      push_bound: Of the table; None: unbounded.
      workers: N.
    """
    hot = Hot()
    push = hot.push if push_bound is None else min(hot.push, push_bound)
    return dataclasses.replace(hot, pull=min(hot.pull, pull_bound), push=push).to_json() | {
        "workers": workers
    }
