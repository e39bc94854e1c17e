"""Row files (the safetensors layout, docs/checkpoints.md) seen as arrays, without reading them into memory."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_DTYPES = {"I64": "<i8", "F32": "<f4", "U32": "<u4", "U16": "<u2"}


class Tensor(NamedTuple):
    """Where one tensor of a row file stands."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # from the beginning of the file, in bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of it."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize


def parse(header: bytes) -> list[Tensor]:
    """The tensors of a row file, in the order of their bytes.

    Args:
      header: What stands before the first tensor: eight bytes of length and the JSON.

    Raises:
      ValueError: It is no such header.
    """
    try:
        described = json.loads(header[8:])
        tensors = [
            Tensor(name, np.dtype(_DTYPES[one["dtype"]]), tuple(one["shape"]), one["data_offsets"][0])
            for name, one in described.items()
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the header of a row file is damaged: {error!r}") from None
    return sorted((one._replace(offset=one.offset + len(header)) for one in tensors), key=lambda t: t.offset)


def read_header(path: Path) -> bytes:
    """What stands before the first tensor of a row file."""
    with path.open("rb") as file:
        length = file.read(8)
        return length + file.read(int.from_bytes(length, "little"))


def view(path: Path, tensor: Tensor) -> npt.NDArray[Any]:
    """The tensor as an array that is read from the file as it is used."""
    if 0 in tensor.shape:
        return np.empty(tensor.shape, tensor.dtype)
    return np.memmap(path, tensor.dtype, "r", tensor.offset, tensor.shape)


def columns(path: Path) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """Table -> column -> array, for each table of a row file."""
    found: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for tensor in parse(read_header(path)):
        table, _, column = tensor.name.rpartition("/")
        found.setdefault(table, {})[column] = view(path, tensor)
    return found


def as_key(name: str) -> str:
    """The name of a tensor as one word of a path: any character of a table's name is legal, "/" is not."""
    table, _, column = name.rpartition("/")
    return f"{urllib.parse.quote(table, safe='')}.{column}"
