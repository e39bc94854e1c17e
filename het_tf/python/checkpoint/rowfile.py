"""Reads row files, the safetensors files of a checkpoint, without TensorFlow and without the plugin.

The package safetensors checks that a header fits its file; this module checks the rules of row files. Table
`item` has `item/keys` and `item/clocks` int64 [N], `item/values` float32 [N, D], `item/slots` float32 [N, S]
(absent if S = 0), `item/last_used` uint32 [N] and `item/counts` uint16 [N]; in an increment also
`item/removed` int64 [R]. Every table of a file holds the partitions that the manifest names for the file.

A file may come from anywhere: every field of the header is compared with the file before it is used.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from safetensors import SafetensorError, safe_open

from het_tf.python.checkpoint.manifest import AGAIN, open_part

FORMAT, VERSION = "het_tf rows", 1
_MAX_FLOATS = 1 << 20  # per value and per slots; far more than a table can have
BLOCK_BYTES = 8 << 20  # per read of `blocks` and checksums

# Types of the safetensors format -> numpy's types; numpy has no bfloat16.
DTYPES = {
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
_MAX_CLOCK = 1 << 61  # core/store/shard.h
_REQUIRED = ("keys", "clocks", "values", "last_used", "counts")

Array = npt.NDArray[Any]


class DamagedError(ValueError):
    """A file of a checkpoint is damaged. The message names the file and the fault."""


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
    def entry_bytes(self) -> int:
        """Bytes of one entry of its first dimension, or of a scalar."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Bytes of all its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass
class TableRows:
    """The tensors of one table in a file."""

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
    """A safetensors file whose header fits it. Tensors are read on request.

    Attributes:
        bytes: Size of the file.
        metadata: `__metadata__` of its header.
        header_xxh3: The checksum of all bytes before the tensors, including the eight of the length.
        tensors: By name, in the order of their bytes.

    Raises:
        DamagedError: It is not a safetensors file, or its header does not fit its size.
        ValueError: It is not a regular file.
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
            start = file.read(8)
            head = start + file.read(int.from_bytes(start, "little"))
        self.header_xxh3 = xxhash.xxh3_64_hexdigest(head)
        self.tensors: dict[str, Tensor] = {}
        begin = len(head)
        for name, slices in found:  # contiguous
            code = slices.get_dtype()
            if code not in DTYPES:
                raise self.damaged(f"{name!r} is {code}; het_tf reads {', '.join(DTYPES)}")
            self.tensors[name] = Tensor(name, code, tuple(slices.get_shape()), begin)
            begin += self.tensors[name].bytes

    def tensor_blocks(self, name: str, block_bytes: int = BLOCK_BYTES) -> Iterator[Array]:
        """Yields a tensor in pieces along its first dimension, some megabytes each."""
        for block in self._blocks({name: self.tensors[name]}, block_bytes):
            yield block[name]

    def _blocks(self, tensors: dict[str, Tensor], block_bytes: int) -> Iterator[dict[str, Array]]:
        """Yields pieces of tensors of one length, which the caller may change."""
        step = max(1, block_bytes // max(sum(tensor.entry_bytes for tensor in tensors.values()), 1))
        length = max(tensor.shape[0] for tensor in tensors.values())
        with open_part(self.path) as file:
            for begin in range(0, length, step):
                count = min(step, length - begin)
                yield {name: self._read(file, tensor, begin, count) for name, tensor in tensors.items()}

    def _read(self, file: Any, tensor: Tensor, begin: int, count: int) -> Array:
        out: Array = np.empty((count, *tensor.shape[1:]), tensor.dtype)
        file.seek(tensor.begin + begin * tensor.entry_bytes)
        if file.readinto(out.reshape(-1).view(np.uint8).data) < out.nbytes:
            raise self.damaged(f"it has become shorter while {tensor.name!r} was read")
        return out

    def damaged(self, what: str) -> DamagedError:
        """Returns an error for this file."""
        return DamagedError(f"{self.path} is damaged: {what}{AGAIN}")


class RowFile(TensorFile):
    """An open row file.

    Attributes:
        tables: The tensors of each table, by name.

    Raises:
        DamagedError: It is not a row file, of a newer version, or damaged.
        ValueError: It is not a regular file.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if self.metadata.get("format") != FORMAT:
            raise DamagedError(
                f'{self.path} is not a row file of het_tf: its header has no "format": "{FORMAT}"'
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
                    f"{tensor.name!r}, {tensor.code} {list(tensor.shape)}, is not a column of a table"
                )
            self.tables.setdefault(table, TableRows(table)).columns[column] = tensor
        for of in self.tables.values():
            if missing := [name for name in _REQUIRED if name not in of.columns]:
                raise self.damaged(f"table {of.name!r} has no {', '.join(missing)}")
            for column, tensor in of.columns.items():
                if column != "removed" and tensor.shape[0] != of.rows:
                    raise self.damaged(f"table {of.name!r} has {of.rows} keys and {tensor.shape[0]} {column}")

    def column(self, table: str, column: str) -> Array:
        """Returns a column as a read-only memmap, to read single rows; `blocks` reads all of them."""
        tensor = self.tables[table].columns[column]
        if tensor.bytes == 0:
            return np.empty(tensor.shape, tensor.dtype)
        return np.memmap(self.path, tensor.dtype, "r", tensor.begin, tensor.shape)

    def blocks(self, table: str, columns: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Yields the rows of a table in order, some megabytes at a time.

        Args:
            table: One of `tables`.
            columns: Some of COLUMNS, without "removed". Slots are left out if the table has none.

        Returns:
            Arrays of equal length by column, which the caller may change.
        """
        of = self.tables[table]
        wanted = {name: of.columns[name] for name in columns if name in of.columns}
        return self._blocks(wanted, BLOCK_BYTES)

    def removed(self, table: str) -> npt.NDArray[np.int64]:
        """The keys that this file removes from a table, int64 [R]."""
        if "removed" not in self.tables[table].columns:
            return np.empty(0, np.int64)
        return np.concatenate([np.empty(0, np.int64), *self.tensor_blocks(f"{table}/removed")])


def verify(
    path: str | Path,
    entry: dict[str, Any],
    advance: Callable[[int], None] = lambda _: None,
    look: Callable[[str, Array], None] = lambda *_: None,
) -> RowFile:
    """Opens a row file, and compares all of it with the manifest.

    Args:
        path: The file.
        entry: Its entry in the manifest.
        advance: Called with the number of bytes just read.
        look: Called with each block of each tensor, and the tensor's name.

    Raises:
        DamagedError: It differs, or has a clock out of range.
        ValueError: It is not a regular file.
        OSError: It cannot be read.
    """
    file = RowFile(path)
    if file.bytes != entry["bytes"]:
        raise file.damaged(f"it has {file.bytes} bytes, and the manifest says {entry['bytes']}")
    if file.header_xxh3 != entry["header_xxh3"]:
        raise file.damaged("its header does not have the manifest's checksum")
    if file.tensors.keys() != entry["tensors"].keys():
        raise file.damaged("its tensors are not the manifest's")
    advance(file.bytes - sum(tensor.bytes for tensor in file.tensors.values()))
    for name, tensor in file.tensors.items():
        checksum, odd_clock = xxhash.xxh3_64(), False
        for block in file.tensor_blocks(name):
            checksum.update(block.data)
            advance(block.nbytes)
            look(name, block)
            odd_clock |= name.endswith("/clocks") and bool(((block < 0) | (block > _MAX_CLOCK)).any())
        found = checksum.hexdigest()
        if entry["tensors"][name] != {"rows": tensor.shape[0], "xxh3": found}:
            raise file.damaged(
                f"{name!r}, bytes {tensor.begin} to {tensor.begin + tensor.bytes}, has {tensor.shape[0]} rows"
                f" and checksum {found}, and the manifest says {entry['tensors'][name]}"
            )
        if odd_clock:
            raise file.damaged(f"{name!r} has a clock out of range")
    return file
