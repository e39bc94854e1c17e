"""Reads row files, the safetensors files of a checkpoint, with numpy alone: no TensorFlow, no plugin.

A row file is eight bytes of little-endian header length, a JSON header, then the tensors without holes. Table
`item` has `item/keys` and `item/clocks` int64 [N], `item/values` float32 [N, D], `item/slots` float32 [N, S]
(absent if S = 0), `item/last_used` uint32 [N] and `item/counts` uint16 [N]; in an increment also
`item/removed` int64 [R]. Every table of a file holds the partitions that the manifest names for the file.

A file may come from anywhere: nothing of the header is believed that was not compared with the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

FORMAT, VERSION = "het_tf rows", 1
MAX_HEADER = 100_000_000  # the limit of the safetensors package, too
_MAX_FLOATS = 1 << 20  # of a value, and of slots; far above what a table can have
BLOCK_BYTES = 8 << 20  # what `blocks` and checksums read at a time

# Types of the safetensors format -> those of numpy; it has no bfloat16.
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
# column -> dtype, dimensions. In the order of a file: by item size, so that all are aligned.
COLUMNS = {
    "keys": ("I64", 1),
    "clocks": ("I64", 1),
    "removed": ("I64", 1),
    "values": ("F32", 2),
    "slots": ("F32", 2),
    "last_used": ("U32", 1),
    "counts": ("U16", 1),
}
_REQUIRED = ("keys", "clocks", "values", "last_used", "counts")

Array = npt.NDArray[Any]


class DamagedError(ValueError):
    """A file of a checkpoint is not what it has to be. The message names the file and what is wrong in it."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file."""

    name: str
    code: str  # its type as the file has it, such as "F32"
    shape: tuple[int, ...]
    begin: int  # in bytes from the beginning of the file

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type in numpy; of BF16 the bits, as uint16."""
        return np.dtype(_DTYPES[self.code])

    @property
    def entry_bytes(self) -> int:
        """Of one entry of its first dimension; of a scalar its own."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Of all its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass
class TableRows:
    """What a file has of one table."""

    name: str
    columns: dict[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.columns["keys"].shape[0]

    @property
    def removed(self) -> int:
        """Number of keys that an increment removes."""
        return self.columns["removed"].shape[0] if "removed" in self.columns else 0

    @property
    def dim(self) -> int:
        """Floats of a value."""
        return self.columns["values"].shape[1]

    @property
    def slot_floats(self) -> int:
        """Floats of the slots of a row."""
        return self.columns["slots"].shape[1] if "slots" in self.columns else 0


class TensorFile:
    """An open safetensors file whose header was checked. Tensors are read when they are asked for.

    Args:
        path: Of the file.

    Attributes:
        bytes: Of the file.
        metadata: `__metadata__` of its header.
        header_xxh3: The checksum of all bytes before the tensors, the eight of the length included.
        tensors: By name, in the order of their bytes.

    Raises:
        DamagedError: It is no safetensors file, or its header does not fit its size.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            self.bytes = file.seek(0, 2)
            file.seek(0)
            start = file.read(8)
            if len(start) < 8:
                raise self.damaged(f"it has {self.bytes} bytes")
            length = int.from_bytes(start, "little")
            if not 2 <= length <= min(self.bytes - 8, MAX_HEADER):
                raise self.damaged(f"it has {self.bytes} bytes and claims a header of {length}")
            raw = file.read(length)
        self._data = 8 + length
        self.header_xxh3 = xxhash.xxh3_64_hexdigest(start + raw)
        header = self._parse(raw)
        self.metadata = header.pop("__metadata__", {})
        found = [self._tensor(name, entry) for name, entry in header.items()]
        self.tensors = {tensor.name: tensor for tensor in self._in_order(found)}

    def tensor_blocks(self, name: str, block_bytes: int = BLOCK_BYTES) -> Iterator[Array]:
        """A tensor in pieces along its first dimension, some megabytes each."""
        tensor = self.tensors[name]
        step = max(1, block_bytes // max(tensor.entry_bytes, 1))
        with self.path.open("rb", buffering=0) as file:
            for begin in range(0, tensor.shape[0], step):
                yield self._read(file, tensor, begin, min(step, tensor.shape[0] - begin))

    def _read(self, file: Any, tensor: Tensor, begin: int, count: int) -> Array:
        out: Array = np.empty((count, *tensor.shape[1:]), tensor.dtype)
        target = memoryview(out.reshape(-1).view(np.uint8).data)
        file.seek(tensor.begin + begin * tensor.entry_bytes)
        filled = 0
        while filled < len(target):
            n = file.readinto(target[filled:])
            if not n:
                raise self.damaged(f"it has become shorter while {tensor.name!r} was read")
            filled += n
        return out

    def damaged(self, what: str) -> DamagedError:
        """The error that says so of this file."""
        return DamagedError(f"{self.path} is damaged: {what}")

    def _parse(self, raw: bytes) -> dict[str, Any]:
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            if len({name for name, _ in pairs}) != len(pairs):
                raise ValueError("it has a name twice")
            return dict(pairs)

        try:
            header = json.loads(raw.decode(), object_pairs_hook=once)
        except (ValueError, RecursionError) as error:  # ValueError: of JSON, or of UTF-8
            raise self.damaged(f"its header is not JSON ({error})") from None
        if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
            raise self.damaged("its header is not that of a safetensors file")
        return header

    def _tensor(self, name: str, entry: Any) -> Tensor:
        def is_list(value: Any) -> bool:
            return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 63 for one in value)

        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("dtype"), str)
            or entry["dtype"] not in _DTYPES
            or not is_list(entry.get("shape"))
            or not is_list(entry.get("data_offsets"))
            or len(entry["data_offsets"]) != 2
        ):
            raise self.damaged(f"its header says of {name!r}: {_short(entry)}")
        begin, end = entry["data_offsets"]
        tensor = Tensor(name, entry["dtype"], tuple(entry["shape"]), self._data + begin)
        if end - begin != tensor.bytes:
            raise self.damaged(
                f"{name!r} has {tensor.bytes} bytes by its shape and {end - begin} by its offsets"
            )
        return tensor

    def _in_order(self, tensors: list[Tensor]) -> list[Tensor]:
        """Sorted by their bytes, which have neither holes nor overlaps and end with the file."""
        tensors = sorted(tensors, key=lambda one: (one.begin, one.bytes))
        at = self._data
        for tensor in tensors:
            if tensor.begin != at:
                raise self.damaged(f"{tensor.name!r} begins at byte {tensor.begin}, and not at {at}")
            at += tensor.bytes
        if at != self.bytes:
            raise self.damaged(f"its header speaks of {at} bytes, and it has {self.bytes}")
        return tensors


class RowFile(TensorFile):
    """An open row file.

    Args:
        path: Of the file.

    Attributes:
        tables: What it has of each table, by name.

    Raises:
        DamagedError: It is no row file, one of a newer version, or damaged.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if self.metadata.get("format") != FORMAT:
            raise DamagedError(
                f'{self.path} is no row file of het_tf: its header has no "format": "{FORMAT}"'
            )
        version = self.metadata.get("version")
        if version != str(VERSION):
            raise DamagedError(
                f"{self.path} is a row file of version {version!r}, and this het_tf reads version {VERSION};"
                " read it with the het_tf that wrote it, or a newer one"
            )
        self.tables: dict[str, TableRows] = {}
        for tensor in self.tensors.values():
            table, slash, column = tensor.name.rpartition("/")
            fits = slash and (tensor.code, len(tensor.shape)) == COLUMNS.get(column)
            if not fits or max(tensor.shape[1:], default=1) > _MAX_FLOATS:
                raise self.damaged(
                    f"{tensor.name!r}, {tensor.code} {list(tensor.shape)}, is no column of a table"
                )
            self.tables.setdefault(table, TableRows(table)).columns[column] = tensor
        for of in self.tables.values():
            if missing := [name for name in _REQUIRED if name not in of.columns]:
                raise self.damaged(f"table {of.name!r} has no {', '.join(missing)}")
            for column, tensor in of.columns.items():
                if column != "removed" and tensor.shape[0] != of.rows:
                    raise self.damaged(f"table {of.name!r} has {of.rows} keys and {tensor.shape[0]} {column}")

    def column(self, table: str, column: str) -> Array:
        """A column as a read-only memmap, for rows here and there; `blocks` is for all of them."""
        tensor = self.tables[table].columns[column]
        if tensor.bytes == 0:
            return np.empty(tensor.shape, tensor.dtype)
        return np.memmap(self.path, tensor.dtype, "r", tensor.begin, tensor.shape)

    def blocks(
        self, table: str, columns: Sequence[str], block_bytes: int = BLOCK_BYTES
    ) -> Iterator[dict[str, Array]]:
        """The rows of a table from the first to the last, some megabytes at a time.

        Args:
            table: One of `tables`.
            columns: Some of COLUMNS, without "removed". Slots are left out where the table has none.
            block_bytes: What one block holds, roughly.

        Yields:
            Arrays of equal length by column, the caller's own.
        """
        of = self.tables[table]
        wanted = {name: of.columns[name] for name in columns if name in of.columns}
        step = max(1, block_bytes // max(sum(tensor.entry_bytes for tensor in wanted.values()), 1))
        with self.path.open("rb", buffering=0) as file:
            for begin in range(0, of.rows, step):
                n = min(step, of.rows - begin)
                yield {name: self._read(file, tensor, begin, n) for name, tensor in wanted.items()}

    def removed(self, table: str) -> npt.NDArray[np.int64]:
        """The keys that this file removes from a table, int64 [R]."""
        tensor = self.tables[table].columns.get("removed")
        if tensor is None:
            return np.empty(0, np.int64)
        with self.path.open("rb", buffering=0) as file:
            return self._read(file, tensor, 0, tensor.shape[0])


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else text[:100] + "..."
