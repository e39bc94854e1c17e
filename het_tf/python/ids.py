"""Checks users' ids, and converts them to int64."""

from typing import Any

import numpy as np

from het_tf.python.library import tf
from het_tf.python.quoting import quoted


def is_ragged(x: Any) -> bool:
    """Whether `x` is a tf.RaggedTensor."""
    return isinstance(x, tf.RaggedTensor)


def is_sparse(x: Any) -> bool:
    """Whether `x` is a tf.SparseTensor."""
    return isinstance(x, tf.SparseTensor)


def check_dtype(feature: str | None, dtype: Any) -> None:
    """Raises ValueError, with the feature and the remedy, if ids cannot have this type."""
    name = tf.as_dtype(dtype).name
    if not (name.startswith(("int", "uint")) or name == "string"):
        raise ValueError(
            f"feature {quoted(str(feature))}: ids are {name}; they must be integers or strings (a float32 "
            'cannot tell ids above 2**24 apart). Declare keras.Input(shape, dtype="int64"), also as the '
            "first layer of a Sequential model, or cast with tf.cast(ids, tf.int64)"
        )


def to_tensor(values: Any, subject: str) -> Any:
    """Converts lists and arrays to a tensor; returns tensors of every kind unchanged.

    Args:
      values: Numbers or strings.
      subject: Names them in the error, such as "feature 'user': ids".

    Raises:
      ValueError: TensorFlow has no type for them, or nested lists have several lengths.
    """
    if is_ragged(values) or is_sparse(values) or tf.is_tensor(values):
        return values
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iu" and array.dtype != np.uint64:
            array = array.astype(np.int64)
        return tf.convert_to_tensor(array)
    except (TypeError, ValueError) as error:
        kind = (
            f"of dtype {values.dtype}"
            if isinstance(values, np.ndarray)
            else f"of type {type(values).__name__}"
        )
        raise ValueError(
            f"{subject} are {kind}, which makes no tensor ({error}). Give one array of integers or of "
            "strings, without None; lists of several lengths as tf.ragged.constant(...)"
        ) from None


def as_int64(ids: Any) -> Any:
    """Converts a dense tensor of integers or strings to int64; hashes strings by SipHash with a fixed key.

    A uint64 above 2**63 wraps to the negative id that is smaller by 2**64. Distinct ids stay distinct.
    """
    if ids.dtype == tf.int64:
        return ids
    if ids.dtype == tf.string:
        return tf.strings.to_hash_bucket_strong(ids, 2**63 - 1, [0x6865745F7466, 0x656D626564])
    return tf.cast(ids, tf.int64)
