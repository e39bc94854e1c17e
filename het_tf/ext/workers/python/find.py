"""Finds the workers that this process is one of."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from het_tf.ext.workers.python import environments
from het_tf.ext.workers.python.environments.process import Process
from het_tf.python import backend
from het_tf.python.session.workers import Workers

_HOROVOD = "Horovod"
_connected: dict[Process, Workers] = {}  # this process: ranks meet once


def launched() -> tuple[str, int]:
    """What has started ranks, and their number; ("", 1) if nothing has."""
    _refuse_elastic()
    hvd = _initialised()
    if hvd is not None:
        return _HOROVOD, int(hvd.size())
    process = environments.find()
    if process is None and (group := _group()) is not None:
        return group[0], group[2]
    return ("", 1) if process is None else (process.launcher, process.size)


def workers(address: str, ask_password: Callable[[], str] | None = None) -> Workers:
    """Returns the workers of this process, connected. Every rank must call it.

    Args:
      address: The parameter server, where ranks meet that were started without Horovod; "": none.
      ask_password: Its password, if the address has none.

    Raises:
      ValueError: What started the ranks contradicts itself, or the process group of torch.distributed or
        jax.distributed; or there is no parameter server.
      NotImplementedError: Horovod has started them, and Keras' backend is not TensorFlow, or for an
        elastic job.
      RuntimeError: horovodrun started this process, but Horovod does not import, or is built without MPI; or
        its ranks run on several machines, and there is no parameter server.
      ConnectionError, TimeoutError: The ranks do not find each other.
    """
    _refuse_elastic()
    hvd = _initialised()
    process = environments.find() if hvd is None else _of_horovod(hvd)
    if not backend.TENSORFLOW:
        _refuse_horovod(process)
        process = _of_group(process)
    if process is None or process.size == 1:
        return Workers()
    if backend.TENSORFLOW and process.launcher in ("horovodrun", "mpirun"):
        hvd = _import(process)
        process = process if hvd is None else _of_horovod(hvd)
    if process not in _connected:
        _connected[process] = _connect(process, hvd, address, ask_password)
    return _connected[process]


def _connect(
    process: Process, hvd: Any, address: str, ask_password: Callable[[], str] | None = None
) -> Workers:
    if hvd is None and not address:
        raise ValueError(
            f"{process.launcher} runs {process.size} ranks, which share tables, and no parameter server is "
            "given; give its address by HET_PS or het_tf.init(ps=...), or start the ranks by `het run`, "
            "which starts one"
        )
    from het_tf.ext.ps.python import address as addresses
    from het_tf.ext.workers.python import joining, mesh

    server = addresses.parse(address, ask_password) if address else None
    if hvd is not None:
        from het_tf.ext.workers.python.horovod_workers import Horovod

        return Horovod(hvd, process, server)
    assert server is not None
    sockets = joining.meet(process, server)
    if not backend.TENSORFLOW:
        return mesh.Mesh(process, sockets)
    from het_tf.ext.workers.python.mesh_tensors import TensorMesh

    return TensorMesh(process, sockets)


def _group() -> tuple[str, int, int] | None:
    """Name, rank and size of the process group of PyTorch or JAX, if the program has made one."""
    if backend.TENSORFLOW:
        return None
    from het_tf.ext.workers.python.backends import ops

    found: tuple[str, int, int] | None = ops.group()
    return found


def _of_group(process: Process | None) -> Process | None:
    """Returns a process that agrees with the process group, or is made by it."""
    group = _group()
    if group is None:
        return process
    if process is None and group[2] > 1 and backend.NAME == "torch":
        from het_tf.ext.workers.python.backends import torch

        return torch.process()
    if process is None:
        compare_group(group, "no launcher's variables are set: rank 0 of 1", 0, 1)
    else:
        said = f"{process.launcher} says rank {process.rank} of {process.size}"
        compare_group(group, said, process.rank, process.size)
    return process


def compare_group(group: tuple[str, int, int] | None, said: str, rank: int, size: int) -> None:
    """Raises ValueError if a process group has another rank or size than `said` says."""
    if group is not None and group[1:] != (rank, size):
        raise ValueError(
            f"{group[0]} says rank {group[1]} of {group[2]}, and {said}; initialise it with the rank and "
            "size of the launcher, or start the ranks by `het run`"
        )


def _refuse_elastic() -> None:
    if (said := os.environ.get("HOROVOD_ELASTIC", "")) not in ("", "0"):
        raise NotImplementedError(
            f"HOROVOD_ELASTIC is {said!r}: horovodrun has started an elastic job, which het_tf does not run; "
            "start it by `het run --nnodes MIN:MAX --max-restarts N`"
        )


def _refuse_horovod(process: Process | None) -> None:
    if process is not None and process.launcher in ("horovodrun", _HOROVOD) and process.size > 1:
        raise NotImplementedError(
            f"horovodrun has started this process, but Keras' backend is {backend.NAME!r}, and het_tf uses "
            "Horovod on TensorFlow alone: start the ranks by `het run`, mpirun or torchrun"
        )


def _of_horovod(hvd: Any) -> Process:
    return Process(_HOROVOD, int(hvd.rank()), int(hvd.size()), 0, 1, "")


def _initialised() -> Any:
    hvd = sys.modules.get("horovod.tensorflow")
    return hvd if hvd is not None and hvd.is_initialized() else None


def _import(process: Process) -> Any:
    """Horovod, initialised; None if mpirun started ranks, and Horovod is not installed."""
    try:
        hvd: Any = importlib.import_module("horovod.tensorflow")
    except ImportError as error:
        if process.launcher == "mpirun":
            return None
        raise RuntimeError(
            f"horovodrun has started this process, but Horovod does not import ({error}); `python -m het_tf "
            "doctor` prints the remedy, and `het run` needs no Horovod"
        ) from None
    hvd.init()
    if hvd.size() != process.size:
        raise RuntimeError(
            f"this process is one of {process.size} ranks, but Horovod has found {hvd.size()}; start the "
            "program by horovodrun or `het run`, or build Horovod with MPI"
        )
    return hvd
