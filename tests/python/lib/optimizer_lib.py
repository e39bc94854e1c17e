"""The C++ optimizers and initializers, through libhet_testing.so and without TensorFlow.

Build it with `cmake --preset release && cmake --build --preset release --target het_testing`, or name another
library in the environment variable HET_TESTING_LIB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import testing_lib

_FLOATS = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
_KEYS = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")


def _load() -> ctypes.CDLL:
    lib = testing_lib.load()
    size_t, pointer, text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
    number, uint64 = ctypes.c_double, ctypes.c_uint64
    for name, result, arguments in [
        ("optimizer_create", pointer, [text, pointer, pointer, size_t, size_t, text, size_t]),
        ("optimizer_destroy", None, [pointer]),
        ("optimizer_row_floats", size_t, [pointer]),
        ("optimizer_wire_begin", size_t, [pointer]),
        ("optimizer_num_slots", size_t, [pointer]),
        ("optimizer_slot_name", text, [pointer, size_t]),
        ("optimizer_slot_floats", size_t, [pointer, size_t]),
        ("optimizer_init_slots", None, [pointer, _FLOATS]),
        ("optimizer_apply", None, [pointer, ctypes.c_float, _FLOATS, _FLOATS, pointer]),
        ("optimizer_merge", None, [pointer, _FLOATS, ctypes.c_uint32, _FLOATS]),
        ("optimizer_compose", None, [pointer, _FLOATS, ctypes.c_uint32, _FLOATS]),
        ("hash_name", uint64, [text]),
        (
            "initializer_fill",
            ctypes.c_int,
            [text, number, number, uint64, uint64, size_t, _KEYS, size_t, _FLOATS, text, size_t],
        ),
    ]:
        function = getattr(lib, f"het_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


_LIB = _load()


class Optimizer:
    """`het::Optimizer` over rows that are float32 arrays of shape [row_floats]."""

    def __init__(self, name: str, params: Mapping[str, float], dim: int):
        names = (ctypes.c_char_p * len(params))(*(key.encode() for key in params))
        values = (ctypes.c_double * len(params))(*params.values())
        error = ctypes.create_string_buffer(1024)
        self._handle = None
        self._handle = _LIB.het_optimizer_create(
            name.encode(), names, values, len(params), dim, error, len(error)
        )
        if not self._handle:
            raise ValueError(error.value.decode())
        self.dim = dim
        self.row_floats = _LIB.het_optimizer_row_floats(self._handle)
        self.value_is_derived = _LIB.het_optimizer_wire_begin(self._handle) == dim
        self.slots: dict[str, slice] = {}
        at = dim
        for slot in range(_LIB.het_optimizer_num_slots(self._handle)):
            end = at + _LIB.het_optimizer_slot_floats(self._handle, slot)
            self.slots[_LIB.het_optimizer_slot_name(self._handle, slot).decode()] = slice(at, end)
            at = end

    def __del__(self):
        if self._handle:
            _LIB.het_optimizer_destroy(self._handle)

    def fresh_row(self, value: np.ndarray) -> np.ndarray:
        row = np.zeros(self.row_floats, np.float32)
        row[: self.dim] = value
        _LIB.het_optimizer_init_slots(self._handle, row)
        return row

    def identity(self) -> np.ndarray:
        return np.zeros(self.row_floats, np.float32)

    def apply(self, lr: float, g: np.ndarray, row: np.ndarray, update: np.ndarray | None = None) -> None:
        assert g.shape == (self.dim,) and row.shape == (self.row_floats,)
        if update is not None:
            assert update.shape == (self.row_floats,) and update.dtype == np.float32
        _LIB.het_optimizer_apply(self._handle, lr, g, row, None if update is None else update.ctypes.data)

    def merge(self, update: np.ndarray, ticks: int, row: np.ndarray) -> None:
        assert update.shape == row.shape == (self.row_floats,)
        _LIB.het_optimizer_merge(self._handle, update, ticks, row)

    def compose(self, later: np.ndarray, later_ticks: int, earlier: np.ndarray) -> None:
        assert later.shape == earlier.shape == (self.row_floats,)
        _LIB.het_optimizer_compose(self._handle, later, later_ticks, earlier)


def initial_values(
    name: str, a: float, b: float, *, seed: int, table: str, dim: int, keys: np.ndarray
) -> np.ndarray:
    """`het::Initializer::Fill` of every key: float32 [len(keys), dim]."""
    keys = np.ascontiguousarray(keys, np.int64)
    values = np.empty((len(keys), dim), np.float32)
    error = ctypes.create_string_buffer(1024)
    table_hash = _LIB.het_hash_name(table.encode())
    refused = _LIB.het_initializer_fill(
        name.encode(), a, b, seed, table_hash, dim, keys, len(keys), values, error, len(error)
    )
    if refused:
        raise ValueError(error.value.decode())
    return values
