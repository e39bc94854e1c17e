"""The store of a job of N ranks: one that all agree on, or a server that rank 0 starts."""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python import reports
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node
from het_tf.ext.ps.python.redis_server import LocalServer, is_loopback
from het_tf.python.show import say

WAIT_SECONDS = 60.0  # at the end, for the last rank to send its updates
FAILED_SECONDS = 10.0  # the same after an error of rank 0: their updates will not be read
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_NAME = "het_rank_"

_server: LocalServer | None = None  # on rank 0
_leave: Callable[[], None] | None = None  # what rank 0 does before it waits for the others
_presence: Node | None = None  # on the other ranks: open for as long as the process lives


def agree(workers: Any, address: str, settings: dict[str, Any], leave: Callable[[], None]) -> str:
    """Returns the address of the tables for all ranks. Every rank must call it.

    Args:
      workers: The workers of the job, a `session.workers.Workers`.
      address: The address that this rank was given, or "".
      settings: Further arguments of init() that must be equal on all ranks.
      leave: Called at the exit of rank 0 if it runs the server of the job: sends this process's pending
        updates and leaves the other ranks.

    Returns:
      `address`, or that of the server that rank 0 has started.

    Raises:
      ValueError: The ranks were given different arguments.
      RuntimeError: No address, and rank 0 could not start a server.
    """
    # Files of TLS may lie elsewhere on another machine.
    mine = {"address": addresses.without_files(address), "machine": machine(), **settings}
    # Not LocalServer.address: the server may have stopped or died, and cannot hold tables then.
    mine["server"] = _server.address if _server is not None and _server.alive() else ""
    of_ranks = workers.gather_objects(mine, "het_tf.init")
    for name in ("address", *settings):
        if any(one[name] != of_ranks[0][name] for one in of_ranks):
            text = ", ".join(
                f"rank {rank}: {addresses.redacted(str(one[name]))!r}" for rank, one in enumerate(of_ranks)
            )
            hint = " (is HET_PS set on every machine?)" if name == "address" else ""
            raise ValueError(f"{name} differs between the ranks: {text}{hint}; give all ranks one value")
    machines = list(dict.fromkeys(tuple(one["machine"]) for one in of_ranks))
    if address:
        if len(machines) > 1 and _is_local(address) and workers.rank == 0:
            warnings.warn(
                f"het_tf: {addresses.redacted(address)} names a different machine on each of {len(machines)} "
                "machines; unless it is a tunnel to one server, give the server's name in the network",
                RuntimeWarning,
                stacklevel=4,
            )
        return address
    if running := next((one["server"] for one in of_ranks if one["server"]), ""):
        return _use(workers.rank, running)
    global _leave
    _leave = leave
    found = _start() if workers.rank == 0 else None
    address, error = workers.broadcast(found, "het_tf.server")
    if error:
        raise RuntimeError(
            f"{workers.size} ranks need a parameter server for their tables, and rank 0 could not start one: "
            f"{error}; or give the address of a running one by HET_PS or het_tf.init(ps=...)"
        )
    return _use(workers.rank, address)


def refuse_other_machines(of_ranks: list[Sequence[str]]) -> None:
    """Raises RuntimeError if ranks run on several machines, given what `machine` says on each."""
    machines = list(dict.fromkeys(map(tuple, of_ranks)))
    if len(machines) > 1:
        raise RuntimeError(
            f"the ranks run on {len(machines)} machines ({', '.join(host for host, _ in machines)}), and no "
            "parameter server is given; a server that rank 0 starts by itself serves only one machine. Start "
            "one that all can reach (`het ps up`), and give its address by HET_PS or het_tf.init(ps=...)"
        )


def refuse_second_job(
    workers: Any, address: str, namespace: str, ask_password: Callable[[], str] | None
) -> None:
    """Refuses a namespace in which another job of several ranks trains. Every rank must call it.

    Raises:
      ValueError: On every rank. A job that has just been killed looks alive until its report is old, some
        15 s, unless it ran on this machine.
    """
    other = ""
    if workers.rank == 0:
        try:
            with Client(addresses.parse(address, ask_password), 5.0) as client:
                other = _living_job(client, namespace)
        except ServerError:
            pass  # the connection that training uses gives a better error
    other = workers.broadcast(other, "het_tf.job")
    if other:
        raise ValueError(
            f"namespace is {namespace!r}, in which another job of several ranks trains ({other}); give "
            "het_tf.init(namespace=...) a name of this job's own, or wait until the other one has ended"
        )


def _living_job(client: Client, namespace: str) -> str:
    """Who reports as rank 0 of several, if it lives."""
    name = reports.key(namespace, "workers", 0)
    found = reports.unpacked(client.ask(name, "GET", name))
    if found is None:
        return ""
    if found["host"] == socket.gethostname():
        return "" if _ended(found["pid"]) else f"process {found['pid']} of this machine is its rank 0"
    first = int(client.ask(name, "PTTL", name)) / 1e3  # seconds that are left
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < reports.LIVES - (reports.KEEP - first):
        if int(client.ask(name, "PTTL", name)) / 1e3 > first - passed + 0.5:  # renewed
            return f"process {found['pid']} of {found['host']} is its rank 0"
        time.sleep(0.2)
    return ""


def _ended(process: int) -> bool:
    return process == os.getpid() or not Path(f"/proc/{process}").exists()


def _use(rank: int, address: str) -> str:
    """Registers this rank with the server of the job until the rank's process ends in any way."""
    global _presence
    if _server is None:
        _presence = Node.of(addresses.parse(address))
        try:
            _presence.ask("CLIENT", "SETNAME", f"{_NAME}{rank}_{os.getpid()}")
        except ServerError as error:
            raise ConnectionError(f"the parameter server that rank 0 runs for this job: {error}") from None
    return address


def _start() -> tuple[str, str]:
    """Starts the server of the job. Returns its address and "", or "" and the reason of the failure."""
    global _server
    try:
        _server = LocalServer.start(unix=True)
    except (ServerError, OSError) as error:
        return "", str(error)
    atexit.register(_end_of_job)
    say(
        f"het_tf: rank 0 runs the parameter server of this job at {_server.address} ({_server.program}); its "
        "tables end with the job. HET_PS=ADDRESS names a lasting one."
    )
    return _server.address, ""


def machine() -> tuple[str, str]:
    """Identifies the machine: processes with equal values can most likely share a Unix socket."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return socket.gethostname(), boot


def _is_local(address: str) -> bool:
    """Whether an address names the machine that reads it. False if it is invalid: `parse` reports that."""
    try:
        place = addresses.parse(address).places[0]
    except ValueError:
        return False
    return bool(place.path) or is_loopback(place.host)


def _end_of_job() -> None:
    """At the exit of rank 0: stops the server after the other ranks' last updates."""
    if _server is None or not _server.mine():  # a fork ends neither the server nor the job
        return
    begin = time.monotonic()
    # The interpreter sets last_value when it prints the error by which a program ends.
    failed = getattr(sys, "last_value", None) is not None
    try:
        if _leave is not None:
            _leave()  # takes half a minute, without an error, if a rank is stopped: Horovod asks it
        _wait_for_others(_server, begin, failed)
    finally:
        stop()


def _wait_for_others(server: LocalServer, begin: float, failed: bool) -> None:
    """Waits until the other ranks' processes have ended, up to a limit counted from `begin`.

    After a failure of rank 0 it does not wait for processes that are stopped (SIGSTOP): they send nothing,
    and are often the cause of the failure.
    """
    said = False
    seconds = FAILED_SECONDS if failed else WAIT_SECONDS
    while server.alive():
        try:
            with Node.of(addresses.parse(server.address)) as node:
                found = re.findall(rf"name={_NAME}(\d+)_(\d+)", str(node.ask("CLIENT", "LIST")))
        except ServerError:
            return
        if not found:
            return
        processes = {int(rank): int(process) for rank, process in found}
        others = ", ".join(map(str, sorted(processes)))
        waited = time.monotonic() - begin
        stopped = failed and all(map(_stopped, processes.values()))
        if stopped or waited > seconds:
            why = "is stopped (SIGSTOP)" if stopped else f"has not ended after {waited:.0f} s"
            say(
                f"het_tf: rank {others} {why}; the parameter server of this job stops, and updates it did "
                "not get are lost"
            )
            return
        if waited > 5 and not said:
            said = True
            say(
                f"het_tf: rank 0 is done, and keeps the parameter server of this job for rank {others}, at "
                f"most {seconds - waited:.0f} s more"
            )
        time.sleep(0.05)


def _stopped(process: int) -> bool:
    """Whether a process of this machine is stopped by a signal or a debugger."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def stop() -> None:
    """Stops the server of the job, if this process runs it."""
    global _server
    server, _server = _server, None
    if server is not None:
        server.stop()
