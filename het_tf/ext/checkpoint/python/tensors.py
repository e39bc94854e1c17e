"""Files of named tensors, by the package safetensors: dense weights, and the columns of row files.

A file may come from anywhere: the package checks that its header fits it. Nothing here imports TensorFlow.
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save

from het_tf.ext.checkpoint.python.manifest import AGAIN, open_part

# Types of the safetensors format -> numpy's types.
DTYPES: dict[str, np.dtype[Any]] = {
    code: np.dtype(kind)
    for code, kind in {
        "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "I64": "<i8", "I32": "<i4",
        "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
    }.items()
}  # fmt: skip
NAMES = tuple(kind.name for kind in DTYPES.values())
"""Types that a file can hold, by their names in TensorFlow and numpy."""
ALIGNMENT = 64  # bytes, of the tensors of `pack`; TensorFlow copies others
_GAP = "\0"  # ends the name of a tensor that only fills a gap

Array = npt.NDArray[Any]
Spec = tuple[str, Sequence[int], str]
"""Name, shape, and name of the dtype."""


def described(tensors: Iterable[Spec]) -> str:
    """Returns the specs as JSON: [[name, shape, dtype], ...]."""
    listed = [[name, list(shape), dtype] for name, shape, dtype in tensors]
    return json.dumps(listed, separators=(",", ":"))


def signature(tensors: Iterable[Spec]) -> str:
    """Returns the sha256 of names, shapes and dtypes, in any order: 64 hexadecimal digits."""
    return hashlib.sha256(described(sorted(tensors)).encode()).hexdigest()


def pack(arrays: Mapping[str, Array], **metadata: str) -> bytes:
    """Returns the file of named arrays, each of which begins at a multiple of ALIGNMENT.

    The package sorts tensors by type and name, and the format has no holes: so a tensor that fills a gap has
    the type of the one before it, and the next name.

    Args:
      arrays: Of the types NAMES.
      metadata: For the header. With it, equal arrays may give different bytes: the package mixes the order.
    """
    tensors: dict[str, Array] = {}
    for name, array in arrays.items():
        tensors[name] = np.ascontiguousarray(array).reshape(array.shape)  # it makes scalars [1]
        if gap := -array.nbytes % ALIGNMENT // array.itemsize:
            tensors[name + _GAP] = np.zeros(gap, array.dtype)
    content = save(tensors, {"format": "het_tf dense 1", **metadata})
    end = 8 + int.from_bytes(content[:8], "little")
    gap = -end % ALIGNMENT
    return b"".join([struct.pack("<Q", end - 8 + gap), content[8:end], b" " * gap, content[end:]])


def specs_of(content: bytes) -> list[Spec]:
    """Returns the tensors of a file in memory. ValueError: it is no file of known types."""
    try:
        return [
            (name, tuple(one["shape"]), DTYPES[one["dtype"]].name)
            for name, one in deserialize(content)  # type: ignore[no-untyped-call]
            if not name.endswith(_GAP)
        ]
    except SafetensorError as error:
        raise ValueError(f"its {len(content)} bytes are not a whole safetensors file ({error})") from None
    except KeyError as error:
        raise ValueError(f"it has a tensor of the type {error}; het_tf reads {', '.join(DTYPES)}") from None


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file."""

    name: str
    code: str  # its type in the file, such as "F32"
    shape: tuple[int, ...]
    begin: int  # in bytes from the beginning of the file

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type in numpy."""
        return DTYPES[self.code]

    @property
    def bytes(self) -> int:
        """Bytes of all its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFile:
    """A safetensors file whose header fits it. Tensors are read on request.

    Attributes:
        bytes: Size of the file.
        metadata: `__metadata__` of its header.
        tensors: By name, in the order of their bytes, without the gaps of `pack`.

    Raises:
        ValueError: It is not a regular file, or no safetensors file whose header fits its size.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with open_part(self.path) as file:
            self.bytes = file.seek(0, 2)
            try:
                with safe_open(self.path, framework="np") as opened:
                    self.metadata: dict[str, str] = opened.metadata() or {}
                    found = [(name, opened.get_slice(name)) for name in opened.offset_keys()]
            except SafetensorError as error:
                what = f"its {self.bytes} bytes are not a whole safetensors file ({error})"
                raise self.damaged(what) from None
            file.seek(0)
            begin = 8 + int.from_bytes(file.read(8), "little")
        self.tensors: dict[str, Tensor] = {}
        for name, slices in found:  # contiguous
            code = slices.get_dtype()
            if code not in DTYPES:
                raise self.damaged(f"{name!r} is {code}; het_tf reads {', '.join(DTYPES)}")
            tensor = Tensor(name, code, tuple(slices.get_shape()), begin)
            begin += tensor.bytes
            if not name.endswith(_GAP):
                self.tensors[name] = tensor

    def mapped(self, name: str) -> Array:
        """Returns a tensor as a read-only memmap."""
        tensor = self.tensors[name]
        if tensor.bytes == 0:
            return np.empty(tensor.shape, tensor.dtype)
        return np.memmap(self.path, tensor.dtype, "r", tensor.begin, tensor.shape)

    def damaged(self, what: str) -> ValueError:
        """Returns an error for this file."""
        return ValueError(f"{self.path} is damaged: {what}{AGAIN}")
