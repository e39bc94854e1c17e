"""The clock protocol under schedules that hypothesis makes up, and makes short when one fails.

The world (store, caches, faulty networks) and the checks of I1-I5 are C++: tests/cpp/testing/world/world.h.
Here stand the rules that hypothesis chooses from, and a second oracle of read-my-updates that is independent
of the C++ one.

Build the library with `cmake --preset release && cmake --build --preset release --target het_testing`, or
name another in the environment variable HET_TESTING_LIB. HET_TEST_SCALE multiplies the number of examples;
above 1 they are new ones in every run.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest
import testing_lib
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

_INITIAL = 2.0  # what a counting table's rows hold at first
_U32, _U64, _I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
_INT, _BOOL, _WORLD, _TEXT = ctypes.c_int, ctypes.c_bool, ctypes.c_void_p, ctypes.c_char_p


def _load() -> ctypes.CDLL:
    lib = testing_lib.load()
    keys = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
    floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    config = [_U64, _U32, _U32, _U32, _TEXT, _U32, _TEXT, _U64, _U32, _I64, _I64, _U64, _INT]
    for name, result, arguments in [
        ("create", _WORLD, config),
        ("destroy", None, [_WORLD]),
        ("error", _TEXT, [_WORLD]),
        ("begin", _INT, [_WORLD, _U32, _U32, keys, _U64, _INT]),
        ("finish", _BOOL, [_WORLD, _INT]),
        ("write", _BOOL, [_WORLD, _INT]),
        ("forget", None, [_WORLD, _INT]),
        ("value", _BOOL, [_WORLD, _INT, _U32, _I64, floats]),
        ("clock", _I64, [_WORLD, _U32, _I64]),
        ("progress", None, [_WORLD, _U32]),
        ("flush", _BOOL, [_WORLD, _U32]),
        ("set_faults", None, [_WORLD, _U32, ctypes.c_double]),
        ("cut", None, [_WORLD, _U32, _U32, _U64]),
        ("refuse", None, [_WORLD, _U32, _U32]),
        ("silence", None, [_WORLD, _U32, _U32]),
        ("hold_replies", None, [_WORLD, _U32, _U32, ctypes.c_double]),
        ("snapshot", None, [_WORLD, _U32]),
        ("restart", None, [_WORLD, _U32, _INT]),
        ("failover", _BOOL, [_WORLD, _U32]),
        ("check", None, [_WORLD]),
        ("drain", _BOOL, [_WORLD]),
    ]:
        function = getattr(lib, f"het_world_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


_LIB = _load()

_workers = st.integers(0, 2)
_partitions = st.integers(0, 3)
_bounds = st.sampled_from([0, 1, 3, 10, -1])
_keys = st.lists(st.one_of(st.integers(-2, 8), st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1])), max_size=7)


class Protocol(RuleBasedStateMachine):
    """Workers read, write, are cut off and go on; the store restarts and fails over."""

    lookups = Bundle("lookups")  # begun
    read = Bundle("read")  # finished: their gradients may come

    def __init__(self):
        super().__init__()
        self.world = None

    @initialize(
        seed=st.integers(0, 2**32),
        workers=st.integers(1, 3),
        partitions=st.sampled_from([1, 3, 4]),
        tables=st.integers(1, 2),
        policy=st.sampled_from(["lru", "lfu", "light_lfu"]),
        capacity=st.sampled_from([0, 1, 3, 100]),
        admit_after=st.integers(1, 2),
        pull=_bounds,
        push=_bounds,
        write_back=st.sampled_from([0, 2, 100]),
        keep=st.booleans(),
    )
    def create(
        self, seed, workers, partitions, tables, policy, capacity, admit_after, pull, push, write_back, keep
    ):
        self.workers, self.partitions, self.tables, self.keep = workers, partitions, tables, keep
        self.world = _LIB.het_world_create(
            seed, workers, partitions, tables, b"sgd", 0, policy.encode(), capacity, admit_after, pull, push,
            write_back, keep,
        )  # fmt: skip
        self.issued: dict[tuple[int, int, int], int] = {}  # (worker, table, key): ticks
        self.lossy = False

    def _require(self, ok: bool) -> None:
        assert ok, _LIB.het_world_error(self.world).decode()

    # --- steps ------------------------------------------------------------------------------------

    @rule(target=lookups, worker=_workers, table=st.integers(0, 1), keys=_keys)
    def begin_lookup(self, worker, table, keys):
        worker, table = worker % self.workers, table % self.tables
        array = np.array(keys, np.int64)
        return _LIB.het_world_begin(self.world, worker, table, array, len(array), 1), worker, table, keys

    @rule(target=read, lookup=consumes(lookups))
    def finish_lookup(self, lookup):
        number, worker, table, keys = lookup
        self._require(_LIB.het_world_finish(self.world, number))
        self._check_own_updates(number, worker, table, keys)
        return lookup

    @rule(lookup=consumes(read))
    def write(self, lookup):
        number, worker, table, keys = lookup
        self._require(_LIB.het_world_write(self.world, number))
        for key in set(keys):
            self.issued[worker, table, key] = self.issued.get((worker, table, key), 0) + 1

    @rule(lookup=consumes(read))
    def forget(self, lookup):
        _LIB.het_world_forget(self.world, lookup[0])

    @rule(worker=_workers, table=st.integers(0, 1), keys=_keys)
    def inference(self, worker, table, keys):
        worker, table = worker % self.workers, table % self.tables
        array = np.array(keys, np.int64)
        number = _LIB.het_world_begin(self.world, worker, table, array, len(array), 0)
        self._require(_LIB.het_world_finish(self.world, number))
        self._check_own_updates(number, worker, table, keys)
        _LIB.het_world_forget(self.world, number)

    @rule(target=read, worker=_workers, table=st.integers(0, 1), keys=_keys, steps=st.integers(1, 5))
    def train(self, worker, table, keys, steps):
        for _ in range(steps):
            lookup = self.finish_lookup(self.begin_lookup(worker, table, keys))
            self.write(lookup)
        return multiple()

    @rule(worker=_workers)
    def progress(self, worker):
        _LIB.het_world_progress(self.world, worker % self.workers)

    @rule(worker=_workers)
    def flush(self, worker):
        self._require(_LIB.het_world_flush(self.world, worker % self.workers))

    # --- faults -----------------------------------------------------------------------------------

    @rule(worker=_workers, each=st.sampled_from([0.0, 0.02, 0.1]))
    def weather(self, worker, each):
        _LIB.het_world_set_faults(self.world, worker % self.workers, each)

    @rule(worker=_workers, partition=_partitions, applied=st.integers(0, 3))
    def cut(self, worker, partition, applied):
        _LIB.het_world_cut(self.world, worker % self.workers, partition % self.partitions, applied)

    @rule(worker=_workers, partition=_partitions)
    def refuse(self, worker, partition):
        _LIB.het_world_refuse(self.world, worker % self.workers, partition % self.partitions)

    @rule(worker=_workers, partition=_partitions)
    def silence(self, worker, partition):
        _LIB.het_world_silence(self.world, worker % self.workers, partition % self.partitions)

    @rule(worker=_workers, partition=_partitions, seconds=st.sampled_from([0.3, 5.0, 15.0]))
    def hold_replies(self, worker, partition, seconds):
        _LIB.het_world_hold_replies(self.world, worker % self.workers, partition % self.partitions, seconds)

    @rule(partition=_partitions)
    def snapshot(self, partition):
        _LIB.het_world_snapshot(self.world, partition % self.partitions)

    @rule(partition=_partitions, close=st.booleans())
    def restart(self, partition, close):
        _LIB.het_world_restart(self.world, partition % self.partitions, close)

    @precondition(lambda self: self.world is not None)
    @rule(partition=_partitions)
    def failover(self, partition):
        self.lossy |= _LIB.het_world_failover(self.world, partition % self.partitions)

    # --- what must hold -----------------------------------------------------------------------------

    def _check_own_updates(self, number, worker, table, keys):
        """I4: coordinate w of a row says how many of worker w's ticks it contains."""
        if self.lossy and not self.keep:
            return
        value = np.empty(self.workers + 1 + table, np.float32)
        for key in keys:
            assert _LIB.het_world_value(self.world, number, table, key, value)
            assert _INITIAL - value[worker] == self.issued.get((worker, table, key), 0)

    @invariant()
    def nothing_is_wrong(self):
        if self.world is None:
            return
        _LIB.het_world_check(self.world)
        assert _LIB.het_world_error(self.world) == b""

    def teardown(self):
        if self.world is None:
            return
        try:
            self._require(_LIB.het_world_drain(self.world))
            assert _LIB.het_world_error(self.world) == b""
            if not self.lossy or self.keep:
                for table, key in {(t, k) for _, t, k in self.issued}:
                    ticks = sum(n for (_, t, k), n in self.issued.items() if (t, k) == (table, key))
                    assert _LIB.het_world_clock(self.world, table, key) == ticks
        finally:
            _LIB.het_world_destroy(self.world)


_scale = float(os.environ.get("HET_TEST_SCALE", "1"))

TestProtocol = pytest.mark.long(Protocol.TestCase)
TestProtocol.settings = settings(
    max_examples=max(1, int(300 * _scale)),
    derandomize=_scale <= 1,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
