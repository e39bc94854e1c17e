"""`het run --check`: what this process finds, without starting anything."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from collections.abc import Iterator

from het_tf._version import __version__
from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python import programs
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Refused
from het_tf.ext.workers.python import environments
from het_tf.ext.workers.python.environments.place import Place

_SECONDS = 5.0
_PROBE = "het:run:check"  # a key that is never written


def reachable(address: str) -> None:
    """Checks that a store answers and has the module.

    Raises:
      ServerError: It does not, or has not.
      ValueError: It is no address.
    """
    with Client(addresses.parse(address), 0.0, _SECONDS) as client:
        try:
            client.ask(_PROBE, "HET.STAT", _PROBE)
        except Refused as error:
            if "unknown command" in error.reply:
                raise ServerError(
                    f"{addresses.redacted(address)} has not loaded the module het; start it with "
                    f"--loadmodule {programs.MODULE}"
                ) from None
            if not error.reply.startswith("HETNOPART"):
                raise


def _launcher() -> Iterator[str]:
    for one in environments.LAUNCHERS:
        for name in one.VARIABLES:
            if name in os.environ:
                yield f"variable   {name}={os.environ[name]}"


def lines(nproc: int, least: int, most: int, store: str) -> Iterator[tuple[bool, str]]:
    """Yields whether each finding is right, and its line.

    Args:
      nproc: Ranks of this node.
      least: Nodes at least.
      most: Nodes at most.
      store: An address; "": none was given.
    """
    yield from dict.fromkeys((True, line) for line in _launcher())
    try:
        place = environments.find({"HET_WORLD_SIZE": str(most), **os.environ})
        yield True, f"launcher   {_words(place)}"
    except ValueError as error:
        yield False, f"launcher   {error}"
    nodes = f"{least}" if least == most else f"{least} to {most}"
    cores = len(os.sched_getaffinity(0))
    yield True, f"node       {socket.gethostname()}, {cores} cores; the job has {nodes}"
    yield True, f"processes  {nproc} on this node"
    try:
        yield True, f"store      {_store(nproc, store)}"
    except (ServerError, ValueError) as error:
        yield False, f"store      {error}"
    yield True, f"versions   het_tf {__version__}, Python {platform.python_version()}, {_tensorflow()}"


def _words(place: Place | None) -> str:
    if place is None:
        return "none: this process is alone"
    local = f"{place.local_rank} of {place.local_size} on its node"
    return f"{place.launcher}: rank {place.rank} of {place.size}, {local}, run {place.run_id}"


def _store(nproc: int, store: str) -> str:
    if store:
        reachable(store)
        return f"{addresses.redacted(store)} answers, and has the module het"
    if nproc == 1:
        return "none: tables are in the process"
    return f"started for the job: {programs.find_server()} with {programs.find_module()}"


def _tensorflow() -> str:
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            pass
    return "no TensorFlow"
