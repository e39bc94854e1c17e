"""What holds for the whole process: the namespace, the scale of gradients, the engine's threads."""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from het_tf.python.session import native
from het_tf.python.session.native import tf

GRADIENT_SCALES = ("mean", "sum")
# Of a cache without a size, whose tables are at a parameter server or which is on a GPU.
SERVER_CACHE_ROWS = 1 << 18

_DEFAULTS = {"durability": "applied", "min_replicas": 1, "keep_bytes": 256 << 20,
             "timeout": 10.0, "deadline": 60.0}  # fmt: skip


@dataclass
class _Settings:
    namespace: str = ""
    threads: int | None = None  # None: as TensorFlow's intra-op threads
    threads_set: int = 0  # what the engine was told last
    gradient_scale: str = "mean"
    accumulate: bool = False
    hvd: Any = None
    ps: str | None = None  # None: HET_PS has not been looked at yet
    ps_options: str = "{}"  # of ps/client/remote_options.h


_settings = _Settings()
_namespace: ContextVar[str | None] = ContextVar("het_tf_namespace", default=None)
_updates: ContextVar[bool] = ContextVar("het_tf_updates", default=True)


def init(
    *,
    hvd: Any = None,
    ps: str | None = None,
    gradient_scale: str = "mean",
    accumulate: bool = False,
    namespace: str = "",
    threads: int | None = None,
    durability: str = "applied",
    min_replicas: int = 1,
    keep_bytes: int = 256 << 20,
    timeout: float = 10.0,
    deadline: float = 60.0,
) -> None:
    """Sets up het_tf. Optional: without it there is one worker, and tables live in this process.

    Call it before the first layer is made.

    Args:
      hvd: The module `horovod.tensorflow`, after its `init()`; None for one worker. With several ranks every
        rank must call `init`, with the same arguments: the ranks compare them.
      ps: Address of the parameter server: "redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]" (one server,
        or nodes of a cluster) or "unix://PATH". Tables then live there, shared by everyone who names the
        same namespace, and each worker caches rows of them (`het_tf.Cache`; 262,144 of a table where a
        layer does not say). "": the store inside this process. None: the environment's HET_PS, else the
        store inside, or with several ranks a server that rank 0 starts on this machine and stops at the end
        of the job.
      gradient_scale: "mean" divides the gradients of rows by the number of workers, as Horovod does with
        those of dense variables; "sum" does not.
      accumulate: Sums the gradients of a step over all workers and updates each row once, as one process
        would that sees all their batches; else each worker updates the rows of its batch by itself. Needs
        a parameter server; costs one exchange between workers a layer and step. docs/concepts.md, "Several
        workers", has when it matters.
      namespace: The namespace of layers that are made outside of `het_tf.namespace()`.
      threads: Threads of the engine, the caller included; None follows
        `tf.config.threading.get_intra_op_parallelism_threads()`, and where that is 0 the CPUs of the process.
      durability: How long a worker keeps pushes that the parameter server has applied, to send them again
        should it lose them. "applied": not at all; "replicated": until `min_replicas` replicas have them;
        "checkpoint": until the tables are saved. What is lost all the same is counted and reported.
      min_replicas: Replicas that must hold a push under "replicated".
      keep_bytes: Memory for pushes that are kept. When it is full, "replicated" waits for the replicas, and
        "checkpoint" gives up the oldest pushes, and says so.
      timeout: Seconds without a byte after which a connection that owes an answer is given up: the worker
        connects and sends again.
      deadline: Seconds without any progress (a push applied, a lookup answered) after which a call fails.

    Raises:
      TypeError: hvd is no module of Horovod's.
      ValueError: Unknown gradient_scale or durability, an argument of another type or out of range, an
        address that is none, a durability without a parameter server, several ranks and ps="", or other
        arguments than another rank's.
      ConnectionError: No server answers there, or it refuses the login.
      RuntimeError: There are tables somewhere else already, the server has not loaded the het module,
        `hvd.init()` was not called, or Horovod runs several ranks and hvd is None.
    """
    if gradient_scale not in GRADIENT_SCALES:
        raise ValueError(f"gradient_scale is {gradient_scale!r}; it must be one of {GRADIENT_SCALES}")
    if not isinstance(accumulate, bool):
        raise ValueError(f"accumulate is {accumulate!r}; give True or False")
    if ps is not None and not isinstance(ps, str):
        raise ValueError(f"ps is {ps!r}; give an address, such as 'redis://HOST:PORT' or 'unix:///PATH'")
    if threads is not None:
        whole = isinstance(threads, numbers.Integral) and not isinstance(threads, bool)
        if not whole or not 1 <= threads <= 2**31 - 1:
            raise ValueError(f"threads is {threads!r}; it must be at least 1, or None to follow TensorFlow")
        threads = int(threads)
    hvd = _checked_horovod(hvd)
    address = os.environ.get("HET_PS", "") if ps is None else ps
    if durability != "applied" and not address:
        raise ValueError(f"durability is {durability!r}, and there is no parameter server; give ps=...")
    given = {"durability": durability, "min_replicas": min_replicas, "keep_bytes": keep_bytes,
             "timeout": timeout, "deadline": deadline}  # fmt: skip
    changed = {
        name: _plain(value)
        for name, value in given.items()
        if isinstance(value, bool) or value != _DEFAULTS[name]  # True == 1
    }
    options = json.dumps(changed, default=str)  # the core refuses such a value by its name
    native.call("HetCheckOptions", options)
    if hvd is None:
        _refuse_ranks()
    elif _is_elastic():
        _require_address(address)  # nothing collective: workers that come later call this alone
    elif hvd.size() > 1:
        settings = {
            "gradient_scale": gradient_scale,
            "accumulate": accumulate,
            "namespace": namespace,
            "options": options,
        }
        address = _agree(hvd, ps, address, settings)
    _connect(address, _checked(namespace), options)
    _settings.hvd = hvd
    _settings.gradient_scale = gradient_scale
    _settings.accumulate = accumulate
    _settings.namespace = namespace
    _settings.threads = threads
    update_threads()


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python; NaN and infinity, for which JSON has no word, as text."""
    value = value.item() if hasattr(value, "item") else value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _checked_horovod(hvd: Any) -> Any:
    """The module horovod.tensorflow for what a user may pass."""
    if hvd is None:
        return None
    if getattr(hvd, "__name__", "") in ("horovod.tensorflow.keras", "horovod.keras"):
        import horovod.tensorflow

        hvd = horovod.tensorflow  # the same ranks; its functions take and give tensors
    needed = ("size", "rank", "is_initialized", "allreduce", "allgather_object", "broadcast_object")
    if not all(hasattr(hvd, name) for name in needed):
        raise TypeError(f"hvd is {hvd!r}; give the module: import horovod.tensorflow as hvd")
    if not hvd.is_initialized():
        raise RuntimeError("Horovod is not initialised; call hvd.init() before het_tf.init(hvd=hvd)")
    return hvd


def _refuse_ranks() -> None:
    """RuntimeError: Horovod runs several ranks, of which het_tf was not told.

    Each would train tables of its own, or push gradients that nobody has scaled, without a message.
    """
    hvd = sys.modules.get("horovod.tensorflow")
    if hvd is not None and hvd.is_initialized():
        ranks = hvd.size()
    else:
        size = os.environ.get("HOROVOD_SIZE", "")  # set by horovodrun
        ranks = int(size) if size.isdigit() else 1
    if ranks > 1:
        raise RuntimeError(
            f"Horovod runs {ranks} ranks, and het_tf was not told; before the first layer is made: import "
            "horovod.tensorflow as hvd; hvd.init(); het_tf.init(hvd=hvd)"
        )


def _require_address(address: str) -> None:
    if not address:
        raise ValueError(
            "the job is elastic, and no parameter server is given; one that a worker starts would end with "
            "that worker. Start one that outlives them (`het-ps up`, docs/parameter-server.md), and give its "
            "address by HET_PS or het_tf.init(ps=...)"
        )


def _agree(hvd: Any, ps: str | None, address: str, settings: dict[str, Any]) -> str:
    if ps == "":
        raise ValueError(
            f'ps is "", the store inside of each process, and Horovod runs {hvd.size()} ranks: every rank '
            "would train tables of its own. Leave ps out, and rank 0 starts a server for the job, or give an "
            "address"
        )
    from het_tf.python.horovod import server  # needs the client library of Redis

    return server.agree(hvd, address, settings)


def _connect(address: str, namespace: str, options: str = "{}") -> None:
    if address != (_settings.ps or "") or (address and options != _settings.ps_options):
        try:
            native.call("HetConnectWith", address, options)
        except RuntimeError as error:
            raise RuntimeError(
                f"{error}; call het_tf.init before the first layer is made, or het_tf.reset() first"
            ) from None
        if address:
            try:
                native.call("HetTableNames", namespace)  # connects
            except Exception:
                native.call("HetConnectWith", _settings.ps or "", _settings.ps_options)
                raise
    _settings.ps, _settings.ps_options = address, options


def connect() -> None:
    """Follows HET_PS if nobody has called init(); called before the first table is made."""
    if _settings.hvd is None:
        _refuse_ranks()
    if _settings.ps is None:
        _connect(os.environ.get("HET_PS", ""), current_namespace())


def leave() -> None:
    """At the end: sends what caches hold back, and forgets all tables."""
    from het_tf.python.layer import registry, table

    for name in registry.namespaces():
        table.reset(name)


def horovod() -> Any:
    """The module horovod.tensorflow that init() was given, or None."""
    return _settings.hvd


def parameter_server() -> str:
    """Address of the parameter server, with its login; "" when tables live in this process."""
    return _settings.ps or ""


def default_cache_rows(place: str) -> int | None:
    """Rows of a cache without a size, None: no cache; a table at a parameter server always has a cache.

    Args:
      place: Where the cache is: "cpu" or "gpu".
    """
    return SERVER_CACHE_ROWS if _settings.ps or place == "gpu" else None


def update_threads() -> None:
    """Tells the engine how many threads TensorFlow has been given, if that has changed."""
    threads = _settings.threads or tf.config.threading.get_intra_op_parallelism_threads()
    threads = threads or len(os.sched_getaffinity(0))
    if threads != _settings.threads_set:
        native.call("HetSetThreads", threads)
        _settings.threads_set = threads


def workers() -> int:
    """The number of workers now."""
    return 1 if _settings.hvd is None else int(_settings.hvd.size())


def _is_elastic() -> bool:
    return os.environ.get("HOROVOD_ELASTIC", "0") not in ("", "0")


def elastic() -> bool:
    """Whether the number of workers may change while the process lives."""
    return _settings.hvd is not None and _is_elastic()


def several_workers() -> bool:
    """Whether a graph that is traced now is one of several workers', now or when they have become more."""
    return elastic() or workers() > 1


def accumulates() -> bool:
    """Whether the gradients of a step are summed over the workers before one of them updates a row."""
    return _settings.accumulate and several_workers()


def gradient_scale() -> Any:
    """What the gradients of rows are multiplied by: 1 / workers, or 1.

    A float, or in an elastic job a float32 scalar that is computed when the graph runs.
    """
    if _settings.hvd is None or _settings.gradient_scale == "sum":
        return 1.0
    if elastic():
        return 1.0 / tf.cast(_settings.hvd.size_op(), tf.float32)
    return 1.0 / workers()


def _checked(name: str) -> str:
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"namespace is {name!r}; it must be a string without NUL")
    return name


def current_namespace() -> str:
    """The namespace that a layer made now would belong to; "" is the default one."""
    name = _namespace.get()
    return _settings.namespace if name is None else name


@contextlib.contextmanager
def namespace(name: str) -> Iterator[None]:
    """Layers made inside belong to the namespace `name`: their tables are apart from equally named others.

    This is how a second copy of a model gets tables of its own:

        with het_tf.namespace("copy"):
            copy = keras.models.clone_model(model)

    Args:
      name: Any string; "" is the default namespace.
    """
    token = _namespace.set(_checked(name))
    try:
        yield
    finally:
        _namespace.reset(token)


@contextlib.contextmanager
def no_update() -> Iterator[None]:
    """Layers called inside give rows without a gradient, also while training: nothing trains a table.

    Use it for penalties, saliency maps and second forward passes in training mode. The gradient of a lookup
    *is* the update of the table, whichever variables a `tf.GradientTape` is asked about. In a `tf.function`
    it holds for the calls that are traced inside.
    """
    token = _updates.set(False)
    try:
        yield
    finally:
        _updates.reset(token)


def updates_enabled() -> bool:
    """False inside of no_update()."""
    return _updates.get()
