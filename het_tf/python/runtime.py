"""What holds for the whole process: the namespace, the scale of gradients, the engine's threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from het_tf.python import native
from het_tf.python.native import tf

GRADIENT_SCALES = ("mean", "sum")


@dataclass
class _Settings:
    namespace: str = ""
    threads: int | None = None  # None: as TensorFlow's intra-op threads
    threads_set: int = 0  # what the engine was told last
    gradient_scale: str = "mean"
    hvd: Any = None


_settings = _Settings()
_namespace: ContextVar[str | None] = ContextVar("het_tf_namespace", default=None)
_updates: ContextVar[bool] = ContextVar("het_tf_updates", default=True)


def init(
    *,
    hvd: Any = None,
    ps: str | None = None,
    gradient_scale: str = "mean",
    namespace: str = "",
    threads: int | None = None,
) -> None:
    """Sets up het_tf. Optional: without it there is one worker, and tables live in this process.

    Call it before the first layer is made.

    Args:
      hvd: The module `horovod.tensorflow`, after its `init()`; None for one worker.
      ps: Address of the parameter server. Only None, the store inside this process, is available yet.
      gradient_scale: "mean" divides the gradients of rows by the number of workers, as Horovod does with
        those of dense variables; "sum" does not.
      namespace: The namespace of layers that are made outside of `het_tf.namespace()`.
      threads: Threads of the engine, the caller included; None follows
        `tf.config.threading.get_intra_op_parallelism_threads()`, and where that is 0 the CPUs of the process.

    Raises:
      ValueError: Unknown gradient_scale, or threads < 1.
      NotImplementedError: ps is given.
    """
    address = ps if ps is not None else os.environ.get("HET_PS")
    if address:
        raise NotImplementedError(
            f"ps={address!r}: parameter servers are not available yet; leave ps (and HET_PS) out, and tables "
            "live in this process"
        )
    if gradient_scale not in GRADIENT_SCALES:
        raise ValueError(f"gradient_scale is {gradient_scale!r}; it must be one of {GRADIENT_SCALES}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}; it must be at least 1, or None to follow TensorFlow")
    _settings.hvd = hvd
    _settings.gradient_scale = gradient_scale
    _settings.namespace = _checked(namespace)
    _settings.threads = threads
    update_threads()


def update_threads() -> None:
    """Tells the engine how many threads TensorFlow has been given, if that has changed."""
    threads = _settings.threads or tf.config.threading.get_intra_op_parallelism_threads()
    threads = threads or len(os.sched_getaffinity(0))
    if threads != _settings.threads_set:
        native.call("HetSetThreads", threads)
        _settings.threads_set = threads


def gradient_scale() -> float:
    """What the gradients of rows are multiplied by: 1 / workers, or 1."""
    if _settings.hvd is None or _settings.gradient_scale == "sum":
        return 1.0
    return 1.0 / float(_settings.hvd.size())


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
