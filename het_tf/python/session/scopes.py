"""The scope of `with` that gives new layers their namespace."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from het_tf.python.session import settings

_namespace: ContextVar[str | None] = ContextVar("het_tf_namespace", default=None)


def checked_namespace(name: str) -> str:
    """Returns `name`. ValueError: it is not valid for a namespace."""
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"namespace is {name!r}; it must be a string without NUL")
    return name


def current_namespace() -> str:
    """The namespace that a layer made now would belong to; "" is the default one."""
    name = _namespace.get()
    return settings.current.namespace if name is None else name


@contextlib.contextmanager
def namespace(name: str) -> Iterator[None]:
    """Puts layers made inside into the namespace `name`: tables of one name in two namespaces differ.

    So a second copy of a model gets its own tables:

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
