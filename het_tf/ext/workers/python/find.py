"""Finds the workers that this process is one of."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from het_tf.ext.workers.python import environments
from het_tf.ext.workers.python.environments.place import Place
from het_tf.python.session import settings
from het_tf.python.session.workers import Workers

_connected: dict[Place, Workers] = {}  # the process's own place: ranks meet once


def launched() -> tuple[str, int]:
    """What has started ranks, and their number; ("", 1) if nothing has."""
    hvd = _initialised()
    if hvd is not None:
        return "Horovod", int(hvd.size())
    place = environments.find()
    return ("", 1) if place is None else (place.launcher, place.size)


def workers(address: str, ask_password: Callable[[], str] | None = None) -> Workers:
    """Returns the workers of this process, connected. Every rank must call it.

    Args:
      address: The parameter server, where ranks meet that were started without Horovod.
      ask_password: Its password, if the address has none.

    Raises:
      ValueError: What started the ranks contradicts itself, or there is no parameter server.
      RuntimeError: horovodrun started this process, but Horovod does not import, or is built without MPI.
      ConnectionError, TimeoutError: The ranks do not find each other.
    """
    hvd = _initialised()
    place = environments.find() if hvd is None else None
    if hvd is None and (place is None or place.size == 1) and not settings.is_elastic_job():
        return Workers()
    if hvd is None and (place is None or place.launcher in ("horovodrun", "mpirun")):
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
    from het_tf.ext.workers.python.mesh import Mesh

    if place not in _connected:
        _connected[place] = Mesh(place, addresses.parse(address, ask_password))
    return _connected[place]


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
    if not settings.is_elastic_job() and place is not None and hvd.size() != place.size:
        raise RuntimeError(
            f"this process is one of {place.size} ranks, but Horovod has found {hvd.size()}; start the "
            "program by horovodrun or `het run`, or build Horovod with MPI"
        )
    return hvd
