"""The collectives of het_tf, through the workers that `het_tf.init` has found."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from het_tf.python import backend, extensions
from het_tf.python.session import settings


def require_init() -> None:
    """Raises RuntimeError if this process is one of several ranks, but `het_tf.init` was not called.

    Each would train its own tables, or push unscaled gradients, without a message.
    """
    if settings.workers().size > 1:
        return
    launcher, ranks = extensions.of("ranks").launched()
    if ranks > 1:
        raise RuntimeError(
            f"{launcher} runs {ranks} ranks, but het_tf was not told; call het_tf.init() before the first "
            "layer is made"
        )


def rank() -> int:
    """Returns the number of this worker, from 0.

    Raises:
      RuntimeError: There are several ranks, but `het_tf.init` was not called.
    """
    return ranks()[0]


def size() -> int:
    """Returns the number of workers.

    Raises:
      RuntimeError: There are several ranks, but `het_tf.init` was not called.
    """
    return ranks()[1]


def ranks() -> tuple[int, int]:
    """Returns the number of this worker, and the number of workers; (0, 1) for one process.

    Raises:
      RuntimeError: As `require_init`.
    """
    require_init()
    workers = settings.workers()
    return workers.rank, workers.size


def gather(value: Any, label: str) -> list[Any]:
    """Returns the values of all ranks, which are for JSON, in their order. Every rank must call it."""
    return settings.workers().gather_objects(value, f"het_tf.{label}")


# An error of another rank is raised here as its own type if it is one of these, else as a base of it.
_KNOWN: dict[str, type[Exception]] = {
    cls.__name__: cls
    for cls in (
        FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError,
        ConnectionError, TimeoutError, OSError, ValueError, TypeError, LookupError, MemoryError,
        NotImplementedError, RuntimeError,
    )
}  # fmt: skip


@contextlib.contextmanager
def together(label: str, what: str) -> Iterator[list[Any]]:
    """Waits at the end until all ranks are there; raises an error of one rank on all. Every rank must enter.

    Yields a list for what this rank tells, which is for JSON. At the end it has what all ranks told, in their
    order.

    Args:
      label: Label of the collective.
      what: The action, for the message: "rank 1 could not <what>: ...".

    Raises:
      The error inside, or else an error of the same type as another rank's, with its number and text.
    """
    told: list[Any] = []
    failed: BaseException | None = None
    try:
        yield told
    except BaseException as error:  # tell the others first: they wait for this rank
        failed = error
    kinds = [] if failed is None else [cls.__name__ for cls in type(failed).__mro__]
    of_ranks = gather((told, kinds, str(failed)), label)
    if failed is not None:
        raise failed
    for rank, (_, kinds, text) in enumerate(of_ranks):
        if kinds:
            known = next((_KNOWN[one] for one in kinds if one in _KNOWN), RuntimeError)
            raise known(f"rank {rank} could not {what}: {text or kinds[0]}")
    told[:] = [one for of_rank, *_ in of_ranks for one in of_rank]


def sum_over_ranks(values: Any, label: str) -> Any:
    """Sums an array of numbers over all ranks, as float64. Every rank must call it."""
    if not backend.TENSORFLOW:
        backend.settle()
        return settings.workers().sum(np.asarray(values, np.float64), f"het_tf.{label}")
    from het_tf.python.session.native import tf

    return settings.workers().sum(tf.convert_to_tensor(values, tf.float64), f"het_tf.{label}").numpy()


def gradient_scale() -> float:
    """Returns the factor of the gradients of rows: 1 / workers, or 1."""
    return 1.0 if settings.current.gradient_scale == "sum" else 1.0 / settings.workers().size


def barrier() -> None:
    """Returns when every rank has called it."""
    sum_over_ranks([0.0], "barrier")
