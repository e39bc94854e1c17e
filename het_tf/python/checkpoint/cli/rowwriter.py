"""Writes a row file of a checkpoint, block by block."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.checkpoint.rowfile import COLUMNS, Array, layout


class RowWriter:
    """A row file that is being written. Its columns lie one after another, so the rows are counted before.

    Args:
        path: Of a new file.
        tables: Of each table: rows, dim, floats of slots, and removed keys (None: this is no increment).
    """

    def __init__(self, path: Path, tables: dict[str, tuple[int, int, int, int | None]]) -> None:
        self.path = path
        shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        for column, (code, _) in COLUMNS.items():
            for table, (rows, dim, slots, removed) in tables.items():
                width = {"values": (dim,), "slots": (slots,)}.get(column, ())
                count = removed if column == "removed" else rows
                if count is not None and width != (0,):
                    shapes[f"{table}/{column}"] = code, (count, *width)
        start, self._tensors = layout(shapes)
        self._bytes = len(start) + sum(tensor.bytes for tensor in self._tensors.values())
        self._header_xxh3 = xxhash.xxh3_64_hexdigest(start)
        self._written = dict.fromkeys(shapes, 0)
        self._checksums = {name: xxhash.xxh3_64() for name in shapes}
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
            tensor = self._tensors[f"{table}/{column}"]
            data = np.ascontiguousarray(array, tensor.dtype).reshape(-1).view(np.uint8).data
            with manifests.naming(self.path):
                self._file.seek(tensor.begin + self._written[tensor.name] * tensor.entry_bytes)
                self._file.write(data)
            self._checksums[tensor.name].update(data)
            self._written[tensor.name] += len(array)

    def close(self) -> dict[str, Any]:
        """Waits until the file is on disk. Returns its entry of the manifest, without name and partitions."""
        for name, tensor in self._tensors.items():
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
                name: {"rows": rows, "xxh3": self._checksums[name].hexdigest()}
                for name, rows in self._written.items()
            },
        }

    def abandon(self) -> None:
        """Closes the file as it is."""
        self._file.close()
