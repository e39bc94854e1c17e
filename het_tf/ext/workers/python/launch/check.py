"""`het run --check`: what this process finds, without starting anything."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Callable

from het_tf._version import __version__
from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python import programs
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Refused
from het_tf.ext.workers.python import environments

_SECONDS = 5.0
_PROBE = "het:check"  # a key that is never written


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
            if not error.reply.startswith("HETNOPART"):
                raise


def show(
    nproc: int, nodes: tuple[int, int], store: str, program: Callable[[], str] | None, job: Callable[[], str]
) -> int:
    """Prints what is found, and returns 1 if something is wrong, else 0.

    Args:
      nproc: Ranks of this node.
      nodes: MIN and MAX.
      store: An address; "": none was given.
      program: Returns what ranks would execute. None: no job is asked of, but what a process finds.
      job: Whether these arguments are right.
    """
    names = dict.fromkeys(name for one in environments.LAUNCHERS for name in one.VARIABLES)
    for name in names:
        if name in os.environ:
            print(f"variable   {name}={os.environ[name]}")
    env = {"HET_WORLD_SIZE": str(nodes[1]), **os.environ}
    host, cores = socket.gethostname(), len(os.sched_getaffinity(0))
    right = True
    findings: dict[str, Callable[[], str]] = {
        "launcher": lambda: str(environments.find(env) or "none: this process is alone"),
        "node": lambda: f"{host}, {cores} cores, ranks {nproc}; nodes {nodes[0]} to {nodes[1]}",
        **({"program": program, "job": job} if program is not None else {}),
        "store": lambda: _store(nproc, store),
        "versions": lambda: f"het_tf {__version__}, Python {platform.python_version()}, {_tensorflow()}",
    }
    for name, find in findings.items():
        try:
            print(f"{name:10} {find()}")
        except (ServerError, ValueError) as error:
            print(f"{name:10} {error}")
            right = False
    return 0 if right else 1


def _store(nproc: int, store: str) -> str:
    if store:
        reachable(store)
        return f"{addresses.redacted(store)} answers, and has the module het"
    if nproc == 1:
        return "none: tables are in the process"
    return f"started for the job: {programs.find_server()} with {programs.find_module()}"


def _tensorflow() -> str:
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{name} {importlib.metadata.version(name)}"
    return "no TensorFlow"
