"""What `het_tf.init` has set, for the whole process.

A leaf: it imports nothing of het_tf, and no TensorFlow. `current` is written by connection.py
alone; everything else asks the functions.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Settings:
    """The arguments of `init`, and what the engine was told of them.

    Attributes:
      threads: None: as TensorFlow's intra-op threads.
      threads_set: What the engine was told last.
      ps: None: HET_PS has not been looked at yet.
      ps_options: Of ps/client/remote_options.h, as JSON.
    """

    namespace: str = ""
    threads: int | None = None
    threads_set: int = 0
    gradient_scale: str = "mean"
    accumulate: bool = False
    hvd: Any = None
    ps: str | None = None
    ps_options: str = "{}"


current = Settings()

_leaving: list[Callable[[], None]] = []


def horovod() -> Any:
    """The module horovod.tensorflow that init() was given, or None."""
    return current.hvd


def parameter_server() -> str:
    """Address of the parameter server, with its login; "" when tables live in this process."""
    return current.ps or ""


def workers() -> int:
    """The number of workers now; 1 without Horovod."""
    return 1 if current.hvd is None else int(current.hvd.size())


def is_first_worker() -> bool:
    """Whether this is the only worker, or the one that speaks for all; in an elastic job none does."""
    return current.hvd is None or not (is_elastic_job() or current.hvd.rank())


def is_elastic_job() -> bool:
    """Whether `horovodrun` has started this process as one of an elastic job."""
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def elastic() -> bool:
    """Whether the number of workers may change while the process lives."""
    return current.hvd is not None and is_elastic_job()


def several_workers() -> bool:
    """Whether a graph that is traced now is one of several workers', now or when they have become more."""
    return elastic() or workers() > 1


def accumulates() -> bool:
    """Whether the gradients of a step are summed over the workers before one of them updates a row."""
    return current.accumulate and several_workers()


def at_leaving(action: Callable[[], None]) -> None:
    """Has `leave` call `action`."""
    _leaving.append(action)


def leave() -> None:
    """Before the process ends: sends what caches hold back, and forgets all tables."""
    for action in _leaving:
        action()
