"""Several workers on JAX: each process runs its own programs, which meet in ordered callbacks.

A program over the devices of several processes (jax.distributed, keras.distribution) runs a callback in one
of them, with the batch of all: the others would look up nothing (docs/adr/backends.md, 54).
"""

from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

from het_tf.ext.workers.python.backends.arrays import *  # noqa: F403
from het_tf.python.session import settings

BEGINS_IN_STEP = False
NO_JIT = ""


def reduce(given: list[Any]) -> list[Any]:
    """Averages arrays of floats over all ranks, in one callback; smaller floats travel as float32."""

    def mean(*arrays: Any) -> Any:
        return tuple(settings.workers().mean([np.asarray(one) for one in arrays], "het_tf.gradient"))

    by_type: dict[Any, list[int]] = {}
    for number, one in enumerate(given):
        wide = jnp.float64 if one.dtype == jnp.float64 else jnp.float32
        by_type.setdefault(wide, []).append(number)
    # A callback takes one array sooner than many.
    vectors = [
        jnp.concatenate([given[number].astype(wide).ravel() for number in numbers])
        for wide, numbers in by_type.items()
    ]
    shapes = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in vectors)
    means = jax.experimental.io_callback(mean, shapes, *vectors, ordered=True)
    found = list(given)
    for numbers, vector in zip(by_type.values(), means, strict=True):
        ends = np.cumsum([given[number].size for number in numbers])
        for number, part in zip(numbers, jnp.split(vector, ends[:-1]), strict=True):
            found[number] = part.reshape(given[number].shape).astype(given[number].dtype)
    return found


# --- jax.distributed ----------------------------------------------------------------------------------------


def group() -> tuple[str, int, int] | None:
    """Returns name, rank and size of what connects processes of a program by itself; None: nothing does."""
    if not jax.distributed.is_initialized():
        return None
    return "jax.distributed", jax.process_index(), jax.process_count()
