"""Checks users' ids, and converts them to int64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python import backend, callers
from het_tf.python.quoting import quoted

if backend.TENSORFLOW:
    from het_tf.python import tensors_tf as tensors
else:
    from het_tf.python import tensors_keras as tensors  # type: ignore[no-redef]

is_ragged = tensors.is_ragged
is_sparse = tensors.is_sparse
refuse_wide = tensors.refuse_wide


def widest() -> str:
    """Returns the type of the backend's widest integers: "int64", or "int32" on JAX without its option."""
    return "int32" if tensors.is_narrow() else "int64"


def check_dtype(feature: str | None, dtype: Any) -> None:
    """Raises ValueError, with the feature and the remedy, if ids cannot have this type."""
    name = tensors.dtype_name(dtype)
    # Keras builds a saved subclassed model from its inputs' shapes, and takes all their types for floats.
    if not (name.startswith(("int", "uint")) or name == "string" or callers.of("build_from_config")):
        declared = f'keras.Input(shape, dtype="{widest()}")'
        raise ValueError(
            f"feature {quoted(str(feature))}: ids are {name}; they must be integers or strings (a float32 "
            f"cannot tell ids above 2**24 apart). Declare {declared}, also as the first layer of a "
            f"Sequential model, keras.Sequential([{declared}, ...]), or cast with "
            f'keras.ops.cast(ids, "{widest()}")'
        )


def to_tensor(values: Any, subject: str) -> Any:
    """Converts lists and arrays to a tensor; returns tensors of every kind unchanged.

    Args:
      values: Numbers or strings.
      subject: Names them in the error, such as "feature 'user': ids".

    Raises:
      ValueError: The backend has no type for them, or nested lists have several lengths.
    """
    return values if tensors.is_tensor(values) else _made(values, subject, tensors.convert)


def _made(values: Any, subject: str, make: Callable[[npt.NDArray[Any]], Any]) -> Any:
    """Returns what `make` makes of the array of values."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "SU" and not isinstance(values, np.ndarray):
            array = np.asarray(values, object)  # else numbers become strings, and lose final zero bytes
        if array.dtype.kind in "iu" and array.dtype != np.uint64:
            array = array.astype(np.int64)
        return make(array)
    except (TypeError, ValueError) as error:
        kind = (
            f"of dtype {values.dtype}"
            if isinstance(values, np.ndarray)
            else f"of type {type(values).__name__}"
        )
        raise ValueError(
            f"{subject} are {kind}, which makes no tensor ({error}). Give one array of integers or of "
            f"strings, without None; lists of several lengths {tensors.JAGGED}"
        ) from None


def as_int64(ids: Any) -> Any:
    """Converts a dense tensor of integers or strings to int64; hashes strings by SipHash with a fixed key.

    A uint64 above 2**63 wraps to the negative id that is smaller by 2**64. Distinct ids stay distinct.
    """
    return tensors.as_int64(ids)


def hash_ids(strings: Any) -> Any:
    """Returns the ids of strings, as layers hash them: SipHash with a fixed key.

        het_tf.Table("user").remove(["u-17"])             # takes strings, too
        ids = het_tf.Table.hash_ids(["u-17", "u-18"])     # int64 [2]

    Args:
      strings: str, bytes (str is encoded as UTF-8), a list or an array of them, or a tensor of strings.

    Returns:
      int64 of the same shape in [0, 2**63 - 1); in a `tf.function` or `Dataset.map` a tensor, else an array.

    Raises:
      ValueError: They are not strings; an integer is its own id.
    """
    return tensors.hash_ids(
        strings if tensors.is_tensor(strings) else _made(strings, "strings", tensors.strings)
    )


def _plain(ids: Any) -> npt.NDArray[Any] | None:
    """Returns a list of integers as an array, without TensorFlow: its tensors have no values in a graph."""
    try:
        array = np.asarray(ids) if isinstance(ids, (list, tuple, int)) else None
    except ValueError:  # lists of several lengths
        return None
    return array if array is not None and array.dtype.kind in "iu" else None


def array_of(ids: Any, subject: str) -> npt.NDArray[np.int64]:
    """Returns integers, and the ids of strings, as int64 of their shape.

    Args:
      ids: A list, an array or an eager tensor.
      subject: Names them in the error, such as "table 'user': ids".

    Raises:
      ValueError: They are neither integers nor strings, or ragged or sparse.
    """
    given = ids if isinstance(ids, np.ndarray) else _plain(ids)
    if given is None and tensors.is_tensor(ids):
        given = tensors.numpy_of(ids)
        if given is None:
            raise ValueError(
                f"{subject} are a {type(ids).__name__}; give a list, an array or an eager tensor"
            )
    elif given is None or (given.dtype.kind in "OSU" and given.size):
        given = _made(ids, subject, tensors.integers)
    if given.size and given.dtype.kind not in "iu":
        raise ValueError(f"{subject} are {given.dtype}; give integers or strings")
    return np.asarray(given, np.int64, order="C")  # ascontiguousarray would add an axis to a scalar
