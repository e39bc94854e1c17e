"""The ranks that save and restore together, or only this process.

Every phase of a save or a restore ends with an exchange of outcomes, so an error of one rank is raised on
all, and no rank waits for one that has given up. With one rank nothing is exchanged.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from het_tf.python.session import collective, settings
from het_tf.python.session.workers import Workers

T = TypeVar("T")


class Ranks:
    """The ranks that take part.

    Args:
      alone: Only this process, also as one of several ranks.

    Attributes:
      rank: Rank of this process, from 0.
      size: Number of ranks.
    """

    def __init__(self, alone: bool = False) -> None:
        workers = Workers() if alone else settings.workers()
        self.rank, self.size = workers.rank, workers.size

    def together(self, what: str, action: Callable[[], T]) -> list[T]:
        """Runs `action` on every rank and waits for all. Every rank must call it.

        Args:
          what: The action in words, for the message "could not <what>".
          action: Its result is for JSON: of a tuple all ranks get a list.

        Returns:
          The results of all ranks in their order.

        Raises:
          As `collective.together`.
        """
        if self.size == 1:
            return [action()]
        with collective.together("checkpoint", what) as results:
            results.append(action())
        return results

    def first(self, what: str, action: Callable[[], T]) -> T:
        """As `together`, but runs `action` only on rank 0; all ranks get its result."""
        return self.together(what, lambda: action() if self.rank == 0 else None)[0]  # type: ignore[return-value]

    def agree(self, what: str, value: Any) -> None:
        """Checks that all ranks have the same `value`. Every rank must call it.

        Raises:
          ValueError: They differ; the message shows all values.
        """
        of_ranks = self.together("begin", lambda: value)
        if any(one != of_ranks[0] for one in of_ranks):
            text = ", ".join(f"rank {number}: {one!r}" for number, one in enumerate(of_ranks))
            raise ValueError(f"the ranks were given different {what}: {text}")

    def share(self, items: list[T]) -> list[T]:
        """This rank's part of a list."""
        return items[self.rank :: self.size]
