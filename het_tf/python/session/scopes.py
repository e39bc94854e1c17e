"""What holds inside of a `with`: the namespace of new layers, and whether calls of layers train tables."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from het_tf.python.session import settings

_namespace: ContextVar[str | None] = ContextVar("het_tf_namespace", default=None)
_updates: ContextVar[bool] = ContextVar("het_tf_updates", default=True)


def checked_namespace(name: str) -> str:
    """`name`. ValueError: it is none of a namespace."""
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"namespace is {name!r}; it must be a string without NUL")
    return name


def current_namespace() -> str:
    """The namespace that a layer made now would belong to; "" is the default one."""
    name = _namespace.get()
    return settings.current.namespace if name is None else name


@contextlib.contextmanager
def namespace(name: str) -> Iterator[None]:
    """Layers made inside belong to the namespace `name`: their tables are apart from equally named others.

    This is how a second copy of a model gets tables of its own:

        with het_tf.namespace("copy"):
            copy = keras.models.clone_model(model)

    Args:
      name: Any string; "" is the default namespace.
    """
    token = _namespace.set(checked_namespace(name))
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
