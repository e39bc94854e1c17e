"""A follower whose every step a test takes: the writer of live files, by live_c.cc."""

import ctypes
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from gpu_lib import BUILD

LIBRARY = BUILD / "libhet_live_writer.so"


class Writer:
    """Live files of an export that follows."""

    def __init__(self, export: Path) -> None:
        self._library = ctypes.CDLL(str(LIBRARY))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self._library.live_put.argtypes = [pointer, size, pointer, size, pointer]
        self._library.live_open.restype = pointer
        self._library.live_error.restype = ctypes.c_char_p
        self.directory = export / "het_live"
        self.document = json.loads((export / "assets" / "follow.json").read_text())
        files = "\n".join(str(export / "assets" / table["file"]) for table in self.document["tables"])
        opened = self._library.live_open(str(self.directory).encode(), files.encode())
        self._writer = ctypes.c_void_p(opened)
        self._check(0 if opened else -1)

    def _check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(self._library.live_error().decode())

    def put(self, table: str, ids: Any, rows: Any) -> None:
        """Writes rows."""
        number = [one["name"] for one in self.document["tables"]].index(table)
        keys = np.ascontiguousarray(ids, np.int64)
        values = np.ascontiguousarray(rows, np.float32)
        assert len(values) == len(keys)
        rows = keys.ctypes.data, len(keys), values.ctypes.data
        self._check(self._library.live_put(self._writer, number, *rows))

    def flip(self, number: int, blob: bytes) -> Path:
        """Puts dense weights in force; returns their file."""
        file = self.directory / f"dense-{hashlib.sha256(blob).hexdigest()}.safetensors"
        file.write_bytes(blob)
        self._check(self._library.live_flip(self._writer, ctypes.c_uint64(number), file.name.encode()))
        return file

    def seen(self, age: float = 0.0) -> None:
        """The rows are those of the store `age` seconds ago."""
        self._check(self._library.live_seen(self._writer, ctypes.c_double(age)))

    def close(self) -> None:
        """Ends the follower; what it wrote stays."""
        self._library.live_close(self._writer)
