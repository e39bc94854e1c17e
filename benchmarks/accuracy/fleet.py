"""The workers of benchmarks/accuracy: libhet_fleet.so (benchmarks/accuracy/fleet.h) for numpy arrays."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

LIBRARY = Path(__file__).resolve().parents[2] / "build/release/libhet_fleet.so"


def library_path() -> Path:
    """The library of the release build, or the one that HET_FLEET_LIB names."""
    path = Path(os.environ.get("HET_FLEET_LIB", LIBRARY))
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; build the CMake target het_fleet, or set HET_FLEET_LIB")
    return path


def load_library() -> ctypes.CDLL:
    """The library, with the results of its functions declared."""
    library = ctypes.CDLL(str(library_path()))
    for name in ("create", "read", "plan", "write", "flush", "serve", "largest_clock", "stats"):
        getattr(library, f"het_fleet_{name}").restype = ctypes.c_char_p
    return library


class Fleet:
    """N workers in lock-step before one store.

    Args:
      workers: N.
      tables: of each table its spec and its options as the core reads them, and its learning rate.
      features: of each feature the number of its table, and the id that is padding, or None.
      partitions: of the store.

    Raises:
      RuntimeError: from any call that the library refuses; the message is the library's.
    """

    def __init__(
        self,
        workers: int,
        tables: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], float]],
        features: Sequence[tuple[int, int | None]],
        partitions: int = 64,
    ) -> None:
        self._library = load_library()
        self._handle = ctypes.c_void_p()
        self.dims = [int(spec["dim"]) for spec, _, _ in tables]
        self._rates = np.array([rate for _, _, rate in tables], np.float32)
        self.features = list(features)
        config = {
            "workers": workers,
            "partitions": partitions,
            "tables": [{"spec": spec, "options": options} for spec, options, _ in tables],
            "features": [{"table": table, "padding": padding} for table, padding in features],
        }
        self._call("create", json.dumps(config).encode(), ctypes.byref(self._handle))

    def _call(self, name: str, *arguments: Any) -> None:
        message = getattr(self._library, f"het_fleet_{name}")(*arguments)
        if message is not None:
            raise RuntimeError(message.decode())

    def close(self) -> None:
        """Ends the workers and forgets the store."""
        self._library.het_fleet_destroy(self._handle)
        self._handle = ctypes.c_void_p()

    def _step(self, ids: Sequence[Int64Array]) -> tuple[Any, Any]:
        for array in ids:
            if array.dtype != np.int64 or not array.flags.c_contiguous:
                raise ValueError(f"ids are {array.dtype}; give contiguous int64 arrays")
        return _pointers(ids), (ctypes.c_size_t * len(ids))(*(array.size for array in ids))

    def read(self, ids: Sequence[Int64Array]) -> list[FloatArray]:
        """Looks up a step: of each feature ids `[N * B, ...]` to rows, float32 `[N * B, ..., dim]`."""
        rows = [
            np.empty((*array.shape, self.dims[table]), np.float32)
            for array, (table, _) in zip(ids, self.features, strict=True)
        ]
        self._call("read", self._handle, *self._step(ids), _pointers(rows))
        return rows

    def plan(self, ids: Sequence[Int64Array], place: int = 0) -> None:
        """Plans the lookups of a step; those of the next one begin, before the write of the last `read`.

        Args:
          ids: of each feature `[N * B, ...]`.
          place: of the step, from 1, where rows travel on demand; else 0.
        """
        self._call("plan", self._handle, *self._step(ids), ctypes.c_uint64(place))

    def write(self, ids: Sequence[Int64Array], gradients: Sequence[FloatArray]) -> None:
        """Applies the gradients of the rows of the last `read`, of the mean loss over all N * B samples."""
        for array, gradient, (table, _) in zip(ids, gradients, self.features, strict=True):
            if gradient.shape != (*array.shape, self.dims[table]) or gradient.dtype != np.float32:
                raise ValueError(f"a gradient is {gradient.dtype}{gradient.shape}; give that of the rows")
        contiguous = [np.ascontiguousarray(gradient) for gradient in gradients]
        self._call(
            "write", self._handle, *self._step(ids), _pointers(contiguous),
            self._rates.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(self._rates)),
        )  # fmt: skip

    def flush(self) -> None:
        """Sends what caches hold back."""
        self._call("flush", self._handle)

    def serve(self, table: int, keys: Int64Array) -> FloatArray:
        """Returns the store's rows of keys `[n]`, float32 `[n, dim]`."""
        values = np.empty((len(keys), self.dims[table]), np.float32)
        self._call(
            "serve", self._handle, ctypes.c_uint32(table), keys.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(len(keys)), values.ctypes.data_as(ctypes.c_void_p),
        )  # fmt: skip
        return values

    def largest_clock(self) -> int:
        """Returns the most updates that any row of any table has had."""
        largest = 0
        for table in range(len(self.dims)):
            clock = ctypes.c_uint64()
            self._call("largest_clock", self._handle, ctypes.c_uint32(table), ctypes.byref(clock))
            largest = max(largest, clock.value)
        return largest

    def counters(self) -> list[list[dict[str, Any]]]:
        """Returns each worker's counters of each table's cache."""
        text = ctypes.c_char_p()
        self._call("stats", self._handle, ctypes.byref(text))
        return [[table["cache"] for table in worker] for worker in json.loads(text.value or b"[]")]


def _pointers(arrays: Sequence[npt.NDArray[Any]]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
