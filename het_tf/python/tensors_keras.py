"""Tensors of PyTorch and JAX, for ids.py. They have no strings: arrays of them become ids here.

JAX has 32-bit integers unless its option jax_enable_x64 is set: larger ids are refused, where they are seen.
"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import backend, calling
from het_tf.python.backend import keras

# What lists of several lengths must become.
JAGGED = "padded to one, with FeatureConfig(padding_id=...) or mask=..."
_WIDE = (
    "; JAX would cut them to 32 bits. Set JAX_ENABLE_X64=1, or jax.config.update('jax_enable_x64', True), "
    "before arrays are made"
)


def is_tensor(x: Any) -> bool:
    """Whether `x` is a dense tensor of the backend."""
    return bool(keras.ops.is_tensor(x)) and not keras.utils.is_keras_tensor(x)


def is_ragged(x: Any) -> bool:
    """False: the backend has no ragged tensors."""
    del x
    return False


is_sparse = is_ragged


@functools.cache
def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype."""
    return str(keras.backend.standardize_dtype(dtype))


def is_narrow() -> bool:
    """Whether the backend's integers have 32 bits."""
    if backend.NAME != "jax":
        return False
    import jax

    return not jax.config.jax_enable_x64


def refuse_wide(dtype: str, subject: str) -> None:
    """Raises ValueError if ids are declared wider than the backend's integers."""
    if dtype in ("int64", "uint64", "uint32") and is_narrow():
        raise ValueError(f"{subject} are declared {dtype}{_WIDE}, or declare int32")


def convert(array: npt.NDArray[Any]) -> Any:
    """Returns an array as a tensor; strings become ids. TypeError, ValueError: it has no type there."""
    array = integers(array)
    if array.dtype == np.int64 and is_narrow():
        narrow = array.astype(np.int32)
        if not np.array_equal(narrow, array):
            raise ValueError(f"some are beyond 2**31{_WIDE}")
        array = narrow
    return keras.ops.convert_to_tensor(array, str(array.dtype))


def integers(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns an array with ids in place of strings. ValueError: one is no UTF-8."""
    return hash_array(array) if array.dtype.kind in "OSU" else array


def as_int64(ids: Any) -> Any:
    """See ids.py; where integers have 32 bits, they stay so, and the engine gets int64."""
    name, wide = dtype_name(ids.dtype), "int64"
    if is_narrow():
        refuse_wide(name, "ids")
        wide = "int32"
    return ids if name == wide else keras.ops.cast(ids, wide)


def hash_ids(strings: Any) -> Any:
    """See ids.py; `strings` is a tensor, which has none here."""
    raise ValueError(f"strings are {strings.dtype}; give strings, an integer is its own id")


def hash_array(strings: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Returns the ids of an array of strings. ValueError: one is no UTF-8."""
    flat = [one.encode() if isinstance(one, str) else one for one in strings.ravel().tolist()]
    ends = np.cumsum([len(one) for one in flat], dtype=np.uint64)
    ids = np.empty(strings.shape, np.int64)
    calling.tools()("HetHashIds", b"".join(flat), ends, len(flat), ids)
    return ids


def numpy_of(ids: Any) -> npt.NDArray[Any] | None:
    """Returns the values of a tensor; None: it has none, as in a function that JAX traces."""
    try:
        return np.asarray(keras.ops.convert_to_numpy(ids))
    except Exception:
        if backend.NAME == "jax":
            import jax

            if isinstance(ids, jax.core.Tracer):
                return None
        raise
