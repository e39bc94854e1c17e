"""The backend of Keras in this process: TensorFlow, PyTorch or JAX. Importing this module imports Keras.

On TensorFlow the engine is in the plugin, libhet_tf.so, whose ops are in graphs; on PyTorch and JAX it is in
libhet_engine.so, which needs no TensorFlow, and nothing here imports it. A process has one engine, so it has
one backend: that of Keras when het_tf is first used.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from het_tf.python.importing import import_tensorflow

NAMES = ("tensorflow", "torch", "jax")


class NeedsTensorFlow(ImportError):
    """A part of het_tf needs TensorFlow, and Keras runs on another backend."""


def _find() -> str:
    """Returns the name of the backend. ImportError: Keras does not import, or het_tf lacks its backend."""
    asked = os.environ.get("KERAS_BACKEND", "")
    try:
        import keras

        name = str(keras.backend.backend())
    except Exception as error:
        if asked in ("", NAMES[0]):
            import_tensorflow()
            return NAMES[0]
        extra = f"; run: pip install 'het_tf[{asked}]'" if asked in NAMES else ""
        raise ImportError(f"Keras does not import with KERAS_BACKEND={asked!r} ({error}){extra}") from None
    if name not in NAMES:
        raise ImportError(
            f"Keras' backend is {name!r}, and het_tf works with {', '.join(NAMES)}; set KERAS_BACKEND"
        )
    return name


NAME = _find()
keras: Any = sys.modules.get("keras")
TENSORFLOW = NAME == NAMES[0]


def needs_tensorflow(what: str) -> NeedsTensorFlow:
    """Returns the error of what works on TensorFlow alone."""
    return NeedsTensorFlow(
        f"{what} needs TensorFlow, and Keras' backend is {NAME!r}. Set KERAS_BACKEND=tensorflow in a process "
        "of its own: it opens the same tables and files (docs/backends.md)"
    )


def check() -> None:
    """Raises RuntimeError if Keras' backend was changed after het_tf was imported."""
    now: Any = sys.modules.get("keras")
    if now is keras:
        return
    raise RuntimeError(
        f"het_tf was imported with Keras' backend {NAME!r}, and now it is {now.backend.backend()!r}: a "
        "process has one engine, and so one backend. Start another process, with KERAS_BACKEND set before "
        "Keras is imported"
    )


def settle() -> None:
    """Waits for steps that still run: JAX returns from a step before its callbacks have run."""
    if NAME == "jax":
        import jax

        jax.effects_barrier()


def threads() -> int:
    """Returns the number of threads of the backend's ops; 0: it does not say."""
    if NAME == "torch":
        import torch

        return int(torch.get_num_threads())
    if NAME == "jax":
        return 0
    from het_tf.python.library import tf

    return int(tf.config.threading.get_intra_op_parallelism_threads())


@contextlib.contextmanager
def naming_lost_weights() -> Iterator[None]:
    """Says what to do where a variable has no value: on JAX a step of `fit` that failed has taken it."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        if NAME != "jax":
            raise
        raise RuntimeError(
            "a step of fit that failed took the dense weights with it; call load_weights or "
            f"het_tf.checkpoint.restore, or build the model again. Rows are as before that step ({error})"
        ) from None
