"""What ProgressiveEvaluation needs of JAX: numbers of 64 bits, and batches of a step that has run.

A step is a graph of TensorFlow, a program that JAX traces, or runs at once. JAX has 32-bit numbers unless
JAX_ENABLE_X64=1 is set; `exact` gives counts of 64 bits all the same.
"""

import contextlib
import functools
from typing import Any

import numpy as np

from het_tf.python import backend
from het_tf.python.backend import keras

if backend.NAME == "jax":
    import jax
    import jax.experimental


def wide() -> Any:
    """While open, JAX has 64-bit numbers in this thread; the other backends always have."""
    if backend.NAME != "jax":
        return contextlib.nullcontext()
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    return enable(True)


def exact(method: Any) -> Any:
    """Decorates a method that computes with 64-bit numbers."""
    if backend.NAME != "jax":
        return method

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with wide():
            return method(*args, **kwargs)

    return run


def later(queue: Any, batch: tuple[Any, ...]) -> bool:
    """Whether JAX runs a step, where no state outside of it changes: appends the batch to a queue.

    Args:
      queue: Gets a tuple like `batch`, with arrays of numpy.
      batch: Tensors and None, also in dicts, lists and tuples.
    """
    if backend.NAME != "jax":
        return False

    def append(*given: Any) -> None:
        queue.append(jax.tree.map(np.array, given))  # copies: JAX uses the memory again

    if any(isinstance(one, jax.core.Tracer) for one in keras.tree.flatten(batch)):
        jax.experimental.io_callback(append, None, *batch, ordered=True)
    else:
        append(*batch)
    return True
