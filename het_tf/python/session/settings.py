"""The settings of `het_tf.init`, for the whole process.

It imports no TensorFlow. Only connection.py writes `current`; all others use the functions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from het_tf.python.session.workers import Workers


@dataclass
class Settings:
    """The arguments of `init`, and their state in the engine.

    Attributes:
      workers: The workers of the job; one process until init() has found others.
      threads: None: as the backend's.
      threads_set: The number last passed to the engine.
      ps: None: HET_PS has not been read yet.
      ps_options: Options of ext/ps/client/remote_options.h, as JSON.
      ps_password: The password, or returns it for a new connection; None: the address says it.
    """

    namespace: str = ""
    threads: int | None = None
    threads_set: int = 0
    gradient_scale: str = "mean"
    accumulate: bool = False
    workers: Workers = field(default_factory=Workers)
    ps: str | None = None
    ps_options: str = "{}"
    ps_password: str | Callable[[], str] | None = None


current = Settings()

_leaving: list[Callable[[], None]] = []


def workers() -> Workers:
    """The workers that init() has found; one process before."""
    return current.workers


def parameter_server() -> str:
    """Address of the parameter server, with its login; "" when tables live in this process."""
    return current.ps or ""


def password_function(password: str | Callable[[], str] | None) -> Callable[[], str] | None:
    """Returns a function that returns the password for a new connection; None: the address says it."""
    return (lambda: password) if isinstance(password, str) else password


def ask_password() -> Callable[[], str] | None:
    """The `password_function` of the parameter server."""
    return password_function(current.ps_password)


def is_first_worker() -> bool:
    """Whether this is the only worker, or rank 0."""
    return current.workers.rank == 0


def several_workers() -> bool:
    """Whether this process is one of several workers."""
    return current.workers.size > 1


def accumulates() -> bool:
    """Whether the workers sum the gradients of a step before one of them updates a row."""
    return current.accumulate and several_workers()


def at_leaving(action: Callable[[], None]) -> None:
    """Registers an action for `leave`."""
    _leaving.append(action)


def leave() -> None:
    """Before the process ends: sends pending updates of caches, and forgets all tables."""
    for action in _leaving:
        action()
