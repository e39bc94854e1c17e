"""What is an id: checks users' ids at every door, and converts them to int64."""

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


_TYPES = (
    "they must be integers or strings (a float32 cannot tell ids above 2**24 apart, and integers with "
    "missing values become floats: fill or drop missing values)"
)


def check_dtype(feature: str | None, dtype: Any) -> None:
    """Raises ValueError, with the feature and the remedy, if ids cannot have this type."""
    name = tensors.dtype_name(dtype)
    # Keras builds a saved subclassed model from its inputs' shapes, and takes all their types for floats.
    if not (name.startswith(("int", "uint")) or name == "string" or callers.of("build_from_config")):
        declared = f'keras.Input(shape, dtype="{widest()}")'
        raise ValueError(
            f"feature {quoted(str(feature))}: ids are {name}; {_TYPES}. Declare {declared}, also as the "
            f"first layer of a Sequential model, keras.Sequential([{declared}, ...]), or cast with "
            f'keras.ops.cast(ids, "{widest()}")'
        )


def to_tensor(values: Any, subject: str) -> Any:
    """Converts numbers or strings that go with ids, as weights, to a tensor; returns tensors unchanged.

    Args:
      values: Lists, arrays or a tensor of any kind.
      subject: Names them in the error, such as "feature 'user': weights".

    Raises:
      ValueError: The backend has no type for them, or nested lists have several lengths.
    """
    if tensors.is_tensor(values):
        return values
    try:
        return tensors.convert(np.asarray(values))
    except (TypeError, ValueError) as error:
        kind = f"dtype {values.dtype}" if hasattr(values, "dtype") else f"type {type(values).__name__}"
        raise ValueError(
            f"{subject} are of {kind}, which makes no tensor ({error}). Give one array, without None; lists "
            f"of several lengths {tensors.JAGGED}"
        ) from None


def tensor_of(ids: Any, subject: str) -> Any:
    """Converts ids, as `of` takes them, to a tensor; returns tensors of every kind unchanged."""
    return ids if tensors.is_tensor(ids) else _made(of(ids, subject), subject, tensors.convert)


def _made(array: npt.NDArray[Any], subject: str, make: Callable[[npt.NDArray[Any]], Any]) -> Any:
    try:
        return make(array)
    except (TypeError, ValueError) as error:  # text that is no UTF-8; on JAX a wide integer
        raise ValueError(f"{subject} make no tensor: {error}") from None


def of(ids: Any, subject: str) -> npt.NDArray[Any]:
    """Returns ids that are no tensor as an array of int64 or of strings: the rule of what an id is.

        integers        from -2**63 to 2**64 - 1; one of 2**63 or more is the same id as itself less 2**64
        str, bytes      hashed, also text of digits: neither "7" nor b"7" is the id 7
        nothing else    no float, though it is whole; no bool, no missing value; no integers beside strings

    They may be a list of lists of one length, an array, or a column of pandas, Arrow or Polars. `check_dtype`
    is the same rule for the type of a tensor.

    Args:
      ids: What a user gives.
      subject: Names it in the error, such as "feature 'user': ids".

    Raises:
      ValueError: They are no ids.
    """
    if isinstance(ids, np.ma.MaskedArray):  # numpy.asarray would take what is masked
        ids = np.where(np.ma.getmaskarray(ids), np.array(None), ids.data)
    # Of a list numpy makes strings of integers beside strings, integers of bools, floats of wide integers.
    is_list = isinstance(ids, (list, tuple))
    try:
        try:
            array = np.asarray(ids, object if is_list else None)
        except NotImplementedError:  # of Arrow, for lists of views
            array = np.asarray(ids.to_pylist(), object)
        array = array.astype(object) if array.dtype.kind == "T" else array
    except Exception as error:
        raise ValueError(
            f"{subject} are of type {type(ids).__name__}, which makes no array ({error}); give one list or "
            f"array of integers or of strings, and lists of several lengths {tensors.JAGGED}"
        ) from None
    if array.dtype.kind == "O":
        array = _of_objects(array, subject)
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind not in "OSU":
        raise ValueError(f"{subject} are {array.dtype}; {_TYPES}")
    return array


def _of_objects(array: npt.NDArray[Any], subject: str) -> npt.NDArray[Any]:
    """Returns integers as int64, strings as they are; opens lists. ValueError: there is something else."""
    flat = array.ravel().tolist()
    kinds = {of: _kind(of) for of in set(map(type, flat))}
    found = set(kinds.values())
    if "" in found:
        odd = next(one for one in flat if not kinds[type(one)])
        raise ValueError(
            f"{subject} hold {odd!r:.60}, a {type(odd).__name__}; they must be integers or strings: fill or "
            "drop missing values, and make integers or text of others"
        )
    if "lists" in found:
        opened = [np.asarray(one).tolist() if hasattr(one, "__array__") else one for one in flat]
        inner = np.asarray(opened, object)
        if inner.ndim == 1 and any(isinstance(one, list) for one in opened):
            raise ValueError(f"{subject} hold lists of several lengths; give them {tensors.JAGGED}")
        return _of_objects(inner.reshape(array.shape + inner.shape[1:]), subject)
    if len(found) > 1:
        pair = [next(one for one in flat if kinds[type(one)] == kind) for kind in sorted(found)]
        raise ValueError(
            f"{subject} hold integers and strings, such as {pair[0]!r:.60} and {pair[1]!r:.60}; give one kind"
        )
    if "strings" in found:
        return array
    try:
        return np.array(flat, np.int64).reshape(array.shape)
    except OverflowError:
        least, most = min(flat), max(flat)
    if least < -(2**63) or most >= 2**64:
        wide = least if least < -(2**63) else most
        raise ValueError(f"{subject} hold {wide}; integers are from -2**63 to 2**64 - 1, give others as text")
    wrapped = [int(one) - (2**64 if one >= 2**63 else 0) for one in flat]
    return np.array(wrapped, np.int64).reshape(array.shape)


def _kind(of: type) -> str:
    """Returns what values of a type are: "integers", "strings" or "lists"; "": no ids."""
    if issubclass(of, (int, np.integer)) and of is not bool:
        return "integers"
    if issubclass(of, (str, bytes)):
        return "strings"
    is_list = of in (list, tuple) or (hasattr(of, "__array__") and not issubclass(of, np.generic))
    return "lists" if is_list else ""


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
    if tensors.is_tensor(strings):
        return tensors.hash_ids(strings)
    array = of(strings, "strings")
    if array.dtype == np.int64 and array.size:
        raise ValueError(f"strings are {array.dtype}; give strings, an integer is its own id")
    return _made(array, "strings", tensors.hash_array) if array.size else np.zeros(array.shape, np.int64)


def array_of(ids: Any, subject: str) -> npt.NDArray[np.int64]:
    """Returns integers, and the ids of strings, as int64 of their shape.

    Args:
      ids: A list, an array or an eager tensor.
      subject: Names them in the error, such as "table 'user': ids".

    Raises:
      ValueError: They are neither integers nor strings, or ragged or sparse.
    """
    if tensors.is_tensor(ids):
        given = tensors.numpy_of(ids)
        if given is None:
            raise ValueError(
                f"{subject} are a {type(ids).__name__}; give a list, an array or an eager tensor"
            )
    else:
        given = of(ids, subject)
        if given.dtype.kind in "OSU":
            given = _made(given, subject, tensors.integers)
    if given.dtype.kind not in "iu":
        raise ValueError(f"{subject} are {given.dtype}; {_TYPES}")
    return np.asarray(given, np.int64, order="C")  # ascontiguousarray would add an axis to a scalar
