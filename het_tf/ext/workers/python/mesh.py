"""Workers that are connected by TCP (cc/mesh.h); joining.py has how they meet."""

import atexit
import ctypes
import os
import socket
import sys
import warnings
from typing import Any

import numpy as np

from het_tf.ext.workers.python.environments.process import Process
from het_tf.python import backend
from het_tf.python.session import native
from het_tf.python.session.workers import Workers, objects, packed
from het_tf.python.table.notes import HetWarning

TIMEOUT = "HET_WORKERS_TIMEOUT"
JOIN = "HET_WORKERS_JOIN_TIMEOUT"
_DEFAULTS = {TIMEOUT: 10.0, JOIN: 300.0}


class Mesh(Workers):
    """The ranks of a run, connected, with collectives on arrays; those of graphs are in mesh_tensors.py.

    Args:
      process: Where this process runs.
      sockets: A connection to each rank, of `joining.meet`; None for this one.

    Raises:
      ValueError: The ranks run other programs, or other backends of Keras.
    """

    def __init__(self, process: Process, sockets: list[socket.socket | None]) -> None:
        self._process = process
        timeout = seconds(TIMEOUT)
        descriptors = (ctypes.c_int64 * process.size)(
            *(-1 if one is None else one.detach() for one in sockets)
        )
        native.call(
            "HetJoinRanks", ctypes.c_int64(process.rank), ctypes.c_int64(process.size), descriptors,
            ctypes.c_double(timeout),
        )  # fmt: skip
        atexit.register(self.leave)
        self._compare_programs()

    def _compare_programs(self) -> None:
        mine = (os.path.basename(sys.argv[0]), backend.NAME, sys.argv[1:])
        of_ranks = self.gather_objects(mine, "het_tf.program")
        first, first_backend, first_arguments = of_ranks[0]
        for number, (program, its_backend, arguments) in enumerate(of_ranks):
            if program != first:
                raise ValueError(
                    f"rank 0 runs {first} and rank {number} runs {program}; start one program on all ranks"
                )
            if its_backend != first_backend:
                raise ValueError(
                    f"Keras' backend is {first_backend!r} on rank 0 and {its_backend!r} on rank {number}; "
                    "set KERAS_BACKEND to one value on all ranks"
                )
            if arguments != first_arguments and number == self.rank:
                warnings.warn(
                    f"het_tf: rank {number} has the arguments {' '.join(arguments)!r}, and rank 0 has "
                    f"{' '.join(first_arguments)!r}; what differs must not change the model",
                    HetWarning,
                    stacklevel=2,
                )

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return self._process.rank

    @property
    def size(self) -> int:
        """Number of workers."""
        return self._process.size

    def mean(self, gradients: list[Any], label: str) -> list[Any]:
        """As Workers.mean, of arrays of float32 or float64."""
        return _reduce(gradients, label, mean=True)

    def sum(self, value: Any, label: str) -> Any:
        """As Workers.sum, of an array of float32 or float64."""
        return _reduce([value], label, mean=False)[0]

    def gather(self, value: Any, label: str) -> Any:
        """As Workers.gather."""
        value = np.ascontiguousarray(value)
        what = f"{value.dtype} {['?', *value.shape[1:]]}"
        return _gather(label, what, value).reshape(-1, *value.shape[1:])

    def gather_objects(self, value: Any, label: str) -> list[Any]:
        """As Workers.gather_objects."""
        backend.settle()
        mine = np.frombuffer(packed(value, label), np.uint8)
        return objects(_gather(label, "JSON", mine).tobytes(), self.size)

    def broadcast(self, value: Any, label: str) -> Any:
        """As Workers.broadcast."""
        if not isinstance(value, (np.ndarray, np.generic)):
            return super().broadcast(value, label)
        backend.settle()
        flat = value.ravel()
        what = f"{value.dtype} {[*value.shape]} of rank 0"
        return _gather(label, what, flat if self.rank == 0 else flat[:0]).reshape(value.shape)

    def leave(self) -> None:
        """As Workers.leave."""
        native.call("HetLeaveRanks")


def _gather(label: str, what: str, value: Any) -> Any:
    """Returns the elements of an array of all ranks, in their order, 1-D.

    Raises:
      TypeError: They are objects of Python, which do not travel.
    """
    if value.dtype.hasobject:
        raise TypeError(f"collective {label} is given an array of {value.dtype}; ranks exchange numbers")
    data, size, received = (
        value.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(value.nbytes),
        ctypes.c_void_p(),
    )
    native.call_in_step("HetGatherFromRanks", label, what, data, ctypes.byref(size), ctypes.byref(received))
    found = np.empty(size.value, np.uint8)
    native.library.HetTakeReceived(received, found.ctypes.data_as(ctypes.c_void_p))
    return found.view(value.dtype)


def _reduce(values: list[Any], label: str, mean: bool) -> list[Any]:
    """Sums arrays over all ranks; all of a type travel as one vector."""
    sums = list(values)
    for dtype in (np.float32, np.float64):
        of_type = [number for number, one in enumerate(values) if one.dtype == dtype and one.size]
        if not of_type:
            continue
        vector = np.concatenate([values[number].ravel() for number in of_type])
        native.call_in_step(
            "HetSumOverRanks", f"{label}/{dtype.__name__}", mean, vector.itemsize, vector, vector.size
        )
        ends = np.cumsum([values[number].size for number in of_type])
        for number, part in zip(of_type, np.split(vector, ends[:-1]), strict=True):
            sums[number] = part.reshape(values[number].shape)
    return sums


def seconds(name: str) -> float:
    """Returns the limit that a variable sets.

    Raises:
      ValueError: It is no number of seconds above 0.
    """
    text = os.environ.get(name, "")
    try:
        found = float(text or _DEFAULTS[name])
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise ValueError(f"{name} is {text!r}; give a number of seconds above 0")
    return found
