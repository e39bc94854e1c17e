"""Finds the workers that this process is one of."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from het_tf.ext.workers.python import environments
from het_tf.ext.workers.python.environments.place import Place
from het_tf.python import backend
from het_tf.python.session.workers import Workers

_connected: dict[Place, Workers] = {}  # the process's own place: ranks meet once


def launched() -> tuple[str, int]:
    """What has started ranks, and their number; ("", 1) if nothing has."""
    _refuse_elastic()
    hvd = _initialised()
    if hvd is not None:
        return "Horovod", int(hvd.size())
    place = environments.find()
    if place is None and (group := _group()) is not None:
        return group[0], group[2]
    return ("", 1) if place is None else (place.launcher, place.size)


def workers(address: str, ask_password: Callable[[], str] | None = None) -> Workers:
    """Returns the workers of this process, connected. Every rank must call it.

    Args:
      address: The parameter server, where ranks meet that were started without Horovod.
      ask_password: Its password, if the address has none.

    Raises:
      ValueError: What started the ranks contradicts itself, or the process group of torch.distributed or
        jax.distributed; or there is no parameter server.
      NotImplementedError: Horovod has started them, and Keras' backend is not TensorFlow; or an elastic job.
      RuntimeError: horovodrun started this process, but Horovod does not import, or is built without MPI.
      ConnectionError, TimeoutError: The ranks do not find each other.
    """
    _refuse_elastic()
    hvd = _initialised()
    place = environments.find() if hvd is None else None
    if not backend.TENSORFLOW:
        _refuse_horovod(place)
        place = _of_group(place)
    if hvd is None and (place is None or place.size == 1):
        return Workers()
    if hvd is None and backend.TENSORFLOW and (place is None or place.launcher in ("horovodrun", "mpirun")):
        hvd = _import(place)
    if hvd is not None:
        from het_tf.ext.workers.python.horovod_workers import Horovod

        return Horovod(hvd)
    assert place is not None
    if not address:
        raise ValueError(
            f"{place.launcher} runs {place.size} ranks, which share tables, and no parameter server is "
            "given; give its address by HET_PS or het_tf.init(ps=...), or start the ranks by `het run`, "
            "which starts one"
        )
    from het_tf.ext.ps.python import address as addresses

    if place not in _connected:
        _connected[place] = _mesh()(place, addresses.parse(address, ask_password))
    return _connected[place]


def _mesh() -> Callable[..., Workers]:
    if backend.TENSORFLOW:
        from het_tf.ext.workers.python.mesh_tensors import TensorMesh

        return TensorMesh
    from het_tf.ext.workers.python.mesh import Mesh

    return Mesh


def _group() -> tuple[str, int, int] | None:
    """Name, rank and size of the process group of PyTorch or JAX, if the program has made one."""
    if backend.TENSORFLOW:
        return None
    from het_tf.ext.workers.python.backends import ops

    found: tuple[str, int, int] | None = ops.group()
    return found


def _of_group(place: Place | None) -> Place | None:
    """Returns a place that agrees with the process group, or is made by it."""
    group = _group()
    if group is None:
        return place
    if place is None and group[2] > 1 and backend.NAME == "torch":
        from het_tf.ext.workers.python.backends import torch

        return torch.place()
    if place is None:
        compare_group(group, "no launcher's variables are set: rank 0 of 1", 0, 1)
    else:
        said = f"{place.launcher} says rank {place.rank} of {place.size}"
        compare_group(group, said, place.rank, place.size)
    return place


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


def _refuse_horovod(place: Place | None) -> None:
    if place is not None and place.launcher == "horovodrun" and place.size > 1:
        raise NotImplementedError(
            f"horovodrun has started this process, but Keras' backend is {backend.NAME!r}, and het_tf uses "
            "Horovod on TensorFlow alone: start the ranks by `het run`, mpirun or torchrun"
        )


def _initialised() -> Any:
    hvd = sys.modules.get("horovod.tensorflow")
    return hvd if hvd is not None and hvd.is_initialized() else None


def _import(place: Place | None) -> Any:
    """Horovod, initialised; None if mpirun started ranks, and Horovod is not installed."""
    try:
        hvd: Any = importlib.import_module("horovod.tensorflow")
    except ImportError as error:
        if place is not None and place.launcher == "mpirun":
            return None
        raise RuntimeError(
            f"horovodrun has started this process, but Horovod does not import ({error}); `python -m het_tf "
            "doctor` prints the remedy, and `het run` needs no Horovod"
        ) from None
    hvd.init()
    if place is not None and hvd.size() != place.size:
        raise RuntimeError(
            f"this process is one of {place.size} ranks, but Horovod has found {hvd.size()}; start the "
            "program by horovodrun or `het run`, or build Horovod with MPI"
        )
    return hvd
