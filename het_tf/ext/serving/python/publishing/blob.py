"""Named arrays as one safetensors file in memory, whose tensors can be mapped; its signature.

    u64 length of the header | header, JSON, padded by spaces | tensors, in the order of the header

Every tensor begins at a multiple of 64 bytes of the file. The format has no holes between tensors, so the
gaps are tensors too, uint8 with names of `PADDING`. Nothing here imports TensorFlow.

A blob may come from anywhere: `Blob` compares every field of the header with the bytes before it is used.
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.files import parse_json
from het_tf.python.quoting import quoted

FORMAT = {"format": "het_tf weights", "version": "1"}
ALIGNMENT = 64  # bytes
PADDING = "__padding__/"
_DEEPEST = 32  # dimensions of a tensor, numpy's limit
_LENGTH = struct.Struct("<Q")

_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "bool": "BOOL",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}
DTYPES = tuple(_CODES)
"""Types that a blob can hold, by their names in TensorFlow and numpy."""

Array = npt.NDArray[Any]


class DamagedError(ValueError):
    """Bytes are no blob, or a damaged one; the message says where."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a blob.

    Attributes:
      name: Its name.
      dtype: One of DTYPES.
      shape: Its dimensions; () for a scalar.
      begin, end: Its bytes, counted from the beginning of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def described(tensors: Iterable[tuple[str, Sequence[int], str]]) -> str:
    """Returns names, shapes and dtypes in their order, as JSON: [[name, shape, dtype], ...]."""
    listed = [[name, list(shape), dtype] for name, shape, dtype in tensors]
    return json.dumps(listed, separators=(",", ":"))


def signature(tensors: Iterable[tuple[str, Sequence[int], str]]) -> str:
    """Returns the sha256 of `described`: 64 hexadecimal digits."""
    return hashlib.sha256(described(tensors).encode()).hexdigest()


def signature_of(arrays: Iterable[tuple[str, Array]]) -> str:
    """As `signature`, of named arrays."""
    return signature((name, array.shape, array.dtype.name) for name, array in arrays)


def pack(arrays: Sequence[tuple[str, Array]]) -> bytes:
    """Returns the blob of named arrays, in their order.

    Args:
      arrays: Name and array of each; names are unique, and do not begin with PADDING.

    Raises:
      TypeError: An array has a dtype that is not in DTYPES.
      ValueError: A name is used twice, or begins with PADDING.
    """
    header: dict[str, Any] = {"__metadata__": FORMAT}
    parts: list[bytes] = []
    at = 0  # from the first byte of the tensors, which is aligned itself

    def add(name: str, code: str, shape: tuple[int, ...], content: bytes) -> None:
        nonlocal at
        if name in header:
            raise ValueError(f"two arrays have the name {name!r}; give each a name of its own")
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + len(content)]}
        parts.append(content)
        at += len(content)

    for number, (name, array) in enumerate(arrays):
        if name.startswith(PADDING):
            raise ValueError(
                f"an array has the name {name!r}, and {PADDING!r} begins names of gaps; rename it"
            )
        if array.dtype.name not in _CODES:
            raise TypeError(f"{name!r} is {array.dtype.name}; a blob holds {', '.join(DTYPES)}")
        if gap := -at % ALIGNMENT:
            add(f"{PADDING}{number}", "U8", (gap,), bytes(gap))
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        add(name, _CODES[array.dtype.name], array.shape, little.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH.size + len(text)) % ALIGNMENT)
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


class Blob:
    """A blob whose header fits its bytes.

    Args:
      content: Its bytes.

    Attributes:
      content: Its bytes.
      tensors: By name, in the order of the file; without gaps.
      signature: The signature of `tensors`.

    Raises:
      DamagedError: `content` is no blob, or its header does not fit.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        header, begin = _header(content)
        found = list(_tensors(header, begin, len(content)))
        self.tensors = {one.name: one for one in found if not one.name.startswith(PADDING)}
        self.signature = signature((one.name, one.shape, one.dtype) for one in self.tensors.values())

    def array(self, name: str) -> Array:
        """Returns a tensor as a read-only array on the bytes of the blob. KeyError: there is none."""
        one = self.tensors[name]
        flat = np.frombuffer(self.content, np.uint8, one.end - one.begin, one.begin)
        return flat.view(_numpy(one.dtype)).reshape(one.shape)


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """Returns the header, and where the tensors begin."""
    if len(content) < _LENGTH.size:
        raise DamagedError(f"it has {len(content)} bytes, and the length of a header takes {_LENGTH.size}")
    length = _LENGTH.unpack_from(content)[0]
    begin = _LENGTH.size + length
    if begin > len(content):
        raise DamagedError(f"its header has {length} bytes, and the whole of it {len(content)}")
    if begin % ALIGNMENT:
        raise DamagedError(f"its tensors begin at byte {begin}, which is no multiple of {ALIGNMENT}")
    try:
        header = parse_json(content[_LENGTH.size : begin])
    except ValueError as error:
        raise DamagedError(f"its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise DamagedError("its header is no JSON object")
    if (metadata := header.pop("__metadata__", None)) != FORMAT:
        raise DamagedError(f"its metadata are {metadata!r}, and those of this version of het_tf {FORMAT!r}")
    return header, begin


def _tensors(header: dict[str, Any], begin: int, size: int) -> Iterable[Tensor]:
    at = begin
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise DamagedError(
                f"the entry of {quoted(name)} has other fields than dtype, shape, data_offsets"
            )
        dtype, shape, offsets = _NAMES.get(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
        if dtype is None:
            raise DamagedError(f"{quoted(name)} has the dtype {str(entry['dtype'])[:20]!r}, which is unknown")
        if not _is_sizes(shape) or len(shape) > _DEEPEST:
            raise DamagedError(f"{quoted(name)} has a shape that is no list of at most {_DEEPEST} sizes")
        if not _is_sizes(offsets) or len(offsets) != 2 or begin + offsets[0] != at:
            raise DamagedError(f"{quoted(name)} does not begin where the tensor before it ends")
        end = at + math.prod(shape) * _numpy(dtype).itemsize
        if begin + offsets[1] != end or end > size:
            raise DamagedError(f"{quoted(name)}, {dtype} {shape}, does not fit into the bytes that it names")
        if at % ALIGNMENT and not name.startswith(PADDING):
            raise DamagedError(f"{quoted(name)} begins at byte {at}, which is no multiple of {ALIGNMENT}")
        yield Tensor(name, dtype, tuple(shape), at, end)
        at = end
    if at != size:
        raise DamagedError(f"its tensors end at byte {at}, and it has {size}")


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def _numpy(dtype: str) -> np.dtype[Any]:
    kind: np.dtype[Any]
    if dtype == "bfloat16":
        import ml_dtypes  # which TensorFlow needs

        kind = np.dtype(ml_dtypes.bfloat16)
    else:
        kind = np.dtype(dtype).newbyteorder("<")
    return kind
