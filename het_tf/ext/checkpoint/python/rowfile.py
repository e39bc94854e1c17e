"""Reads safetensors files without TensorFlow and without the plugin: dense weights, columns of row files.

A file may come from anywhere: the package safetensors checks that its header fits it.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from het_tf.ext.checkpoint.python.manifest import AGAIN, open_part

# Types of the safetensors format -> numpy's types; numpy has no bfloat16.
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file."""

    name: str
    code: str  # its type in the file, such as "F32"
    shape: tuple[int, ...]
    begin: int  # in bytes from the beginning of the file

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type in numpy; uint16, the bits, for BF16."""
        return np.dtype(DTYPES[self.code])

    @property
    def bytes(self) -> int:
        """Bytes of all its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFile:
    """A safetensors file whose header fits it. Tensors are read on request.

    Attributes:
        bytes: Size of the file.
        metadata: `__metadata__` of its header.
        tensors: By name, in the order of their bytes.

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
            self.tensors[name] = Tensor(name, code, tuple(slices.get_shape()), begin)
            begin += self.tensors[name].bytes

    def mapped(self, name: str) -> Array:
        """Returns a tensor as a read-only memmap."""
        tensor = self.tensors[name]
        if tensor.bytes == 0:
            return np.empty(tensor.shape, tensor.dtype)
        return np.memmap(self.path, tensor.dtype, "r", tensor.begin, tensor.shape)

    def damaged(self, what: str) -> ValueError:
        """Returns an error for this file."""
        return ValueError(f"{self.path} is damaged: {what}{AGAIN}")
