"""Writes a row file of a checkpoint, block by block."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.rowfile import COLUMNS, FORMAT, VERSION, Array, Tensor


class RowWriter:
    """A row file that is being written. Its columns lie one after another, so the rows are counted before.

    Args:
        path: Of a new file.
        tables: Of each table: rows, dim, floats of slots, and removed keys (None: this is no increment).
    """

    def __init__(self, path: Path, tables: dict[str, tuple[int, int, int, int | None]]) -> None:
        self.path = path
        self._tensors: list[Tensor] = []
        offset = 0
        header: dict[str, Any] = {"__metadata__": {"format": FORMAT, "version": str(VERSION)}}
        for column, (code, _) in COLUMNS.items():
            for table, (rows, dim, slots, removed) in tables.items():
                width = {"values": (dim,), "slots": (slots,)}.get(column, ())
                count = removed if column == "removed" else rows
                if count is None or width == (0,):
                    continue
                tensor = Tensor(f"{table}/{column}", code, (count, *width), offset)
                offset += tensor.bytes
                self._tensors.append(tensor)
                header[tensor.name] = {
                    "dtype": code, "shape": list(tensor.shape), "data_offsets": [tensor.begin, offset],
                }  # fmt: skip
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 64)
        start = len(text).to_bytes(8, "little") + text
        self._begin, self._bytes = len(start), len(start) + offset
        self._header_xxh3 = xxhash.xxh3_64_hexdigest(start)
        self._places = {tensor.name: tensor for tensor in self._tensors}
        self._written = dict.fromkeys(self._places, 0)
        self._checksums = {name: xxhash.xxh3_64() for name in self._places}
        with manifests.naming(path):
            self._file = path.open("xb")
            self._file.write(start)

    def append(self, table: str, columns: dict[str, Array]) -> None:
        """Rows of a table, after those that are there; or, under "removed", keys.

        Args:
            table: One of those that were announced.
            columns: Arrays of equal length, by column.
        """
        for column, array in columns.items():
            name = f"{table}/{column}"
            tensor = self._places[name]
            data = np.ascontiguousarray(array, tensor.dtype)
            if self._written[name] + len(data) > tensor.shape[0]:
                raise RuntimeError(f"{self.path}: more than {tensor.shape[0]} rows for {name!r}")
            self._checksums[name].update(data.data)
            with manifests.naming(self.path):
                self._file.seek(self._begin + tensor.begin + self._written[name] * tensor.entry_bytes)
                self._file.write(data.reshape(-1).view(np.uint8).data)
            self._written[name] += len(data)

    def close(self) -> dict[str, Any]:
        """Waits until the file is on disk. Returns its entry of the manifest, without name and partitions."""
        for name, tensor in self._places.items():
            if self._written[name] != tensor.shape[0]:
                raise RuntimeError(
                    f"{self.path}: {self._written[name]} of {tensor.shape[0]} rows for {name!r}"
                )
        with manifests.naming(self.path):
            self._file.truncate(self._bytes)
            self._file.flush()
            os.fsync(self._file.fileno())
        self.abandon()
        return {
            "bytes": self._bytes,
            "header_xxh3": self._header_xxh3,
            "tensors": {
                name: {"rows": tensor.shape[0], "xxh3": self._checksums[name].hexdigest()}
                for name, tensor in self._places.items()
            },
        }

    def abandon(self) -> None:
        """Closes the file as it is."""
        self._file.close()
