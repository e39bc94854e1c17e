"""What metrics need of a backend beyond keras.ops: wide numbers, and functions of numpy within a step.

A step is a graph of TensorFlow, a program that JAX traces, or runs at once. JAX has 32-bit numbers unless
JAX_ENABLE_X64=1 is set; `wide` gives metrics sums and counts of 64 bits all the same.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from het_tf.python import backend
from het_tf.python.backend import keras

if backend.NAME == "jax":
    import jax
    import jax.experimental
elif backend.NAME == "torch":
    import torch
else:
    from het_tf.python.library import tf


def wide() -> Any:
    """While open, JAX has 64-bit numbers in this thread; the other backends always have."""
    if backend.NAME != "jax":
        return contextlib.nullcontext()
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    return enable(True)


def check() -> None:
    """Raises ImportError: this JAX compiles no numbers of 64 bits beside those of 32."""
    if backend.NAME == "jax" and not (hasattr(jax, "enable_x64") or jax.config.jax_enable_x64):
        raise ImportError(
            f"het_tf.metrics need JAX 0.8, and this is {jax.__version__}; run: pip install -U 'jax>=0.8', "
            "or set JAX_ENABLE_X64=1"
        )


def exact(method: Any) -> Any:
    """Decorates a method that computes with 64-bit numbers."""
    if backend.NAME != "jax":
        return method

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with wide():
            return method(*args, **kwargs)

    return run


def is_traced(*values: Any) -> bool:
    """Whether a step is being traced, in which values have no numbers yet."""
    if backend.NAME == "jax":
        return any(isinstance(one, jax.core.Tracer) for one in values)
    return backend.TENSORFLOW and not tf.executing_eagerly()


def on_host(function: Callable[..., Any], dtype: str, *values: Any) -> Any:
    """Returns function(*arrays of numpy), a scalar of `dtype`: at once, or when the traced step runs.

    Calls are in order if each takes what the one before has returned.

    Raises:
      ValueError: `function` raises it; on TensorFlow tf.errors.InvalidArgumentError, in a step that JAX has
        traced JaxRuntimeError, with its text.
    """
    values = tuple(keras.ops.convert_to_tensor(one) for one in values)
    if not is_traced(*values):
        try:
            found = function(*(keras.ops.convert_to_numpy(one) for one in values))
        except ValueError as error:
            raise (
                tf.errors.InvalidArgumentError(None, None, str(error)) if backend.TENSORFLOW else error
            ) from None
        return keras.ops.convert_to_tensor(found, dtype)
    if backend.TENSORFLOW:
        with tf.device("/CPU:0"):
            found = tf.numpy_function(lambda *arrays: np.asarray(function(*arrays), dtype), values, dtype)
            return tf.ensure_shape(found, [])
    dtypes = [np.dtype(one.dtype) for one in values]

    def run(*arrays: Any) -> Any:
        given = [np.asarray(one).view(kind) for one, kind in zip(arrays, dtypes, strict=True)]
        given = [one[..., 0] if kind.itemsize == 8 else one for one, kind in zip(given, dtypes, strict=True)]
        return np.asarray(function(*given), dtype)[None].view(np.uint32)

    # A callback runs without `wide`, where JAX would cut 64 bits: it gets and gives halves.
    halves = [
        _halves(one, np.uint32) if kind.itemsize == 8 else one
        for one, kind in zip(values, dtypes, strict=True)
    ]
    words = np.dtype(dtype).itemsize // 4
    found = jax.experimental.io_callback(run, jax.ShapeDtypeStruct((words,), np.uint32), *halves)
    return _halves(found if words == 2 else found[0], np.dtype(dtype))


def _halves(values: Any, dtype: Any) -> Any:
    return jax.lax.bitcast_convert_type(values, dtype)


if backend.NAME == "torch":
    on_host = torch.compiler.disable(on_host)


def demand(tensors: Sequence[Any], *rules: tuple[Any, ...]) -> list[Any]:
    """Returns tensors, on condition that rules hold when the step runs.

    Args:
      tensors: Any; in a graph of TensorFlow, what is computed of those returned follows the rules.
      rules: A bool scalar, the text of the error, and scalars for each {} of it.

    Raises:
      ValueError: As `on_host`, with the text of the first rule that is broken.
    """
    if backend.TENSORFLOW and is_traced():
        checks = []
        for holds, text, *scalars in rules:
            words = text.split("{}")
            mixed = [one for pair in zip(words, [*scalars, ""], strict=True) for one in pair][:-1]
            checks.append(tf.debugging.Assert(holds, mixed))
        with tf.control_dependencies(checks):
            return [tf.identity(one) for one in tensors]

    def check(*arrays: Any) -> int:
        begin = 0
        for _, text, *scalars in rules:
            holds, *found = arrays[begin : begin + 1 + len(scalars)]
            if not holds:
                raise ValueError(text.format(*found))
            begin += 1 + len(scalars)
        return 0

    on_host(check, "int32", *(one for holds, _, *scalars in rules for one in (holds, *scalars)))
    return list(tensors)


def length(value: Any, limit: int) -> Any:
    """Returns a number of columns that is known when the step runs; JAX needs the limit when it traces."""
    if is_traced(value):
        return keras.ops.cast(value, "int32") if backend.TENSORFLOW else limit
    return int(value)


def products(x: Any) -> Any:
    """Returns the products of the first columns; keras.ops.cumprod has 32 bits on PyTorch."""
    return torch.cumprod(x, 1) if backend.NAME == "torch" else keras.ops.cumprod(x, axis=1)


def mask_of(y_pred: Any) -> Any:
    """Returns the mask that Keras has given predictions, or None."""
    from keras.src.backend.common import masking  # not public; what JAX traces has no attributes

    return masking.get_keras_mask(y_pred)


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

    if is_traced(*keras.tree.flatten(batch)):
        jax.experimental.io_callback(append, None, *batch, ordered=True)
    else:
        append(*batch)
    return True
