"""Tensors of TensorFlow, for ids.py."""

from typing import Any

import numpy.typing as npt

from het_tf.python.library import tf

# What lists of several lengths must become.
JAGGED = "as tf.ragged.constant(...)"


def is_tensor(x: Any) -> bool:
    """Whether `x` is a dense, ragged or sparse tensor."""
    return is_ragged(x) or is_sparse(x) or bool(tf.is_tensor(x))


def is_ragged(x: Any) -> bool:
    """Whether `x` is a tf.RaggedTensor."""
    return isinstance(x, tf.RaggedTensor)


def is_sparse(x: Any) -> bool:
    """Whether `x` is a tf.SparseTensor."""
    return isinstance(x, tf.SparseTensor)


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype."""
    return str(tf.as_dtype(dtype).name)


def is_narrow() -> bool:
    """False: the backend's integers have 64 bits."""
    return False


def refuse_wide(dtype: str, subject: str) -> None:
    """Refuses nothing: tensors have 64-bit integers."""
    del dtype, subject


def convert(array: npt.NDArray[Any]) -> Any:
    """Returns an array as a tensor. TypeError, ValueError: TensorFlow has no type for it."""
    return tf.convert_to_tensor(array)


def hash_array(strings: npt.NDArray[Any]) -> Any:
    """Returns the ids of an array of strings; in a graph a tensor. ValueError: one is no UTF-8."""
    return hash_ids(convert(strings))


def integers(array: npt.NDArray[Any]) -> Any:
    """Returns the ids of an array of strings. ValueError: one is no UTF-8."""
    with tf.init_scope():  # in a graph a tensor has no values
        return numpy_of(convert(array))


def as_int64(ids: Any) -> Any:
    """See ids.py."""
    if ids.dtype == tf.int64:
        return ids
    if ids.dtype == tf.string:
        with tf.device("CPU:0"):  # elsewhere it has no kernel
            return tf.strings.to_hash_bucket_strong(ids, 2**63 - 1, [0x6865745F7466, 0x656D626564])
    return tf.cast(ids, tf.int64)


def hash_ids(strings: Any) -> Any:
    """See ids.py; `strings` is a tensor."""
    if strings.dtype != tf.string:
        raise ValueError(f"strings are {strings.dtype.name}; give strings, an integer is its own id")
    ids = as_int64(strings)
    return ids.numpy() if tf.is_tensor(ids) and hasattr(ids, "numpy") and not is_ragged(ids) else ids


def numpy_of(ids: Any) -> npt.NDArray[Any] | None:
    """Returns the values of a tensor, of strings their ids; None: it has no array of values."""
    if is_ragged(ids) or is_sparse(ids) or not hasattr(ids, "numpy"):
        return None
    values: npt.NDArray[Any] = ids.numpy() if ids.dtype != tf.string else as_int64(ids).numpy()
    return values
