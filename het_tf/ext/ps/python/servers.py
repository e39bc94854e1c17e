"""`het ps up` and `het ps down`: start the servers of a directory, make them a cluster, stop them."""

import contextlib
import dataclasses
import os
import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from het_tf.ext.ps.python import cluster, programs, redis_server, tls
from het_tf.ext.ps.python.address import MOST_PATH
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.layout import (
    BUS_OFFSET,
    Layout,
    Member,
    check_ports,
    load,
    locked,
    write_private,
)
from het_tf.ext.ps.python.node import Refused, Unreachable
from het_tf.python.show import Say

# Fields that cannot change; the others can while no server runs.
_SHAPE = ("shards", "replicas", "port", "unix", "bind", "tls")


def prepare(directory: Path, **asked: object) -> Layout:
    """Returns the recorded layout of a directory with the values of `asked`, or a new layout.

    Args:
      directory: Made if it is missing.
      **asked: Fields of `Layout`; None: not given.

    Raises:
      ServerError: The directory holds something else, or another layout.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    old = load(directory)
    if old is None:
        if directory.exists() and any(directory.iterdir()):
            raise ServerError(f"{directory} has other files than het ps's; give a new directory as --dir")
        new = Layout(directory=directory, **{"shards": 1, **given})  # type: ignore[arg-type]
        if new.unix and new.cluster:
            raise ServerError(
                "a cluster's servers are reached over TCP; leave --unix out, or start one server"
            )
        if new.unix and new.tls:
            raise ServerError("--tls is for servers with a port; leave --tls or --unix out")
        if len(str(new.members[0].place)) > MOST_PATH and new.unix:
            raise ServerError(
                f"{new.members[0].place} is too long for a Unix socket ({MOST_PATH} bytes); a shorter --dir"
            )
        last = new.members[-1].place.port + (BUS_OFFSET if new.cluster else 0)
        if last > 65535:
            raise ServerError(
                f"the last server's port would be {last}; give a --port so that it stays under 65536"
            )
        if not new.unix and not redis_server.is_loopback(new.bind):
            new = dataclasses.replace(new, password=secrets.token_hex(16))
        directory.mkdir(0o700, parents=True, exist_ok=True)
        return new
    for name in _SHAPE:
        if name in given and given[name] != getattr(old, name):
            raise ServerError(
                f"{directory} has {name} = {getattr(old, name)}, and {given[name]} was asked for; leave the"
                " option out (or --plan) to start what is there, or give another --dir"
            )
    new = dataclasses.replace(old, **given)  # type: ignore[arg-type]
    running = [member.name for member in old.members if member.pid()]
    if new != old and running:
        names = [name for name in given if given[name] != getattr(old, name)]
        raise ServerError(
            f"{', '.join(names)} cannot change while {', '.join(running)} run; `het ps down`"
            " first, or change the running servers with `redis-cli CONFIG SET`"
        )
    return new


def up(layout: Layout, timeout: float, say: Say) -> None:
    """Starts the servers of a layout that do not run, and waits until all are ready.

    Args:
      layout: The servers to run.
      timeout: Seconds to wait for each server, and for the cluster.
      say: Called with each step and each reason of waiting.

    Raises:
      ServerError: A server is not up; the message says why. Servers that were started go on.
    """
    with locked(layout.directory):
        recorded = load(layout.directory)
        fixed = (*_SHAPE, "password")
        if recorded and any(getattr(recorded, name) != getattr(layout, name) for name in fixed):
            raise ServerError(
                f"another het ps has made servers in {layout.directory} meanwhile: {recorded.shards} shards"
                f" with {recorded.replicas} replicas each. Run `het ps up --dir {layout.directory}` for those"
            )
        _start_all(layout, timeout, say)


def _start_all(layout: Layout, timeout: float, say: Say) -> None:
    program = programs.find_server()
    down = [member for member in layout.members if not member.pid()]
    check_ports(layout, down)
    if layout.tls:
        tls.check_server(program)
        tls.make_certificates(layout.certificates, layout.bind)
    layout.write()
    processes = {}
    if down:
        say(f"servers are run by {program}")
    for member in down:
        processes[member] = _start(program, layout, member)
        say(f"{member.name}: started at {member.place}, process {processes[member].pid}")
    for member in layout.members:
        process = processes.get(member)
        if process is None:
            say(f"{member.name}: runs already at {member.place}")
        redis_server.wait_ready(
            layout.address(member).url(),
            timeout,
            alive=_alive(member, process),
            say=lambda why, name=member.name: say(f"{name}: {why}"),  # type: ignore[misc]
            log=member.log,
            pid=process.pid if process else member.pid(),
        )
    if layout.cluster:
        _form(layout, timeout, say)
        if not layout.formed:
            dataclasses.replace(layout, formed=True).write()


def _alive(member: Member, process: subprocess.Popen[bytes] | None) -> Callable[[], bool]:
    return lambda: member.pid() is not None if process is None else process.poll() is None


def _start(program: str, layout: Layout, member: Member) -> subprocess.Popen[bytes]:
    member.directory.mkdir(exist_ok=True)
    member.directory.chmod(0o700)
    write_private(member.config, layout.config_text(member))
    with contextlib.suppress(FileNotFoundError):
        (member.directory / "pid").unlink()  # its process is gone
    with open(os.open(member.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
        try:
            # In its own session, so that it outlives this command and its terminal.
            return subprocess.Popen(
                [program, str(member.config)],
                cwd=member.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            raise ServerError(f"{program} could not be started: {error.strerror}") from None


def _form(layout: Layout, timeout: float, say: Say) -> None:
    with contextlib.ExitStack() as stack:
        nodes = {m: stack.enter_context(layout.node(m)) for m in layout.members}
        if layout.formed:
            # The cluster may have changed its primaries since; leave them.
            cluster.await_true(lambda: cluster.not_ready(list(nodes.values())), timeout, say)
            return
        primaries = [m for m in layout.members if not m.replica]
        replicas = [[nodes[m] for m in nodes if m.replica and m.shard == p.shard] for p in primaries]
        cluster.form([nodes[p] for p in primaries], replicas, timeout, say)


def down(layout: Layout, save: bool, force: bool, timeout: float, say: Say) -> None:
    """Stops the servers of a layout, replicas first, and waits until they are gone.

    Args:
      layout: The servers.
      save: Let each server write its rows to disk first.
      force: Kill servers that do not answer or stop in time.
      timeout: Seconds for each server.
      say: Called with each step.

    Raises:
      ServerError: Some servers did not stop; all others did.
    """
    with locked(layout.directory):
        faults = []
        members = [(member, member.pid()) for member in layout.members]
        for member, pid in members:
            if pid is None:
                say(f"{member.name}: does not run")
        running = [(member, pid) for member, pid in members if pid is not None]
        # Replicas first: a replica would replace a primary that stops, or the primary would wait for it.
        for member, pid in sorted(running, key=lambda item: _is_primary(layout, item[0])):
            try:
                _stop(layout, member, pid, save, force, timeout, say)
            except ServerError as error:
                faults.append(f"{member.name}: {error}")
        if faults:
            raise ServerError("\n".join(faults))


def _is_primary(layout: Layout, member: Member) -> bool:
    try:
        with layout.node(member, timeout=2) as node:
            return node.info("replication").get("role") == "master"
    except ServerError:
        return True


def _stop(
    layout: Layout, member: Member, pid: int, save: bool, force: bool, timeout: float, say: Say
) -> None:
    why = ""
    try:
        with layout.node(member, timeout) as node:
            if node.info("server").get("process_id") != str(pid):
                raise ServerError(f"another server answers at {member.place}; process {pid} was left alone")
            say(f"{member.name}: stops" + ("" if save else " without saving"))
            node.ask("SHUTDOWN", *([] if save else ["NOSAVE", "NOW", "FORCE"]))
    except Unreachable as error:
        why = str(error)  # SHUTDOWN answers by closing the connection
    except Refused as error:
        why = str(error)
        if not force:
            raise ServerError(f"{error}; see {member.log}, or use --force") from None
    end = time.monotonic() + timeout
    while member.pid() == pid and time.monotonic() < end:
        time.sleep(0.05)
    if member.pid() != pid:
        return
    if not force:
        raise ServerError(f"process {pid} is not gone after {timeout:g} s ({why}); use --force to kill it")
    say(f"{member.name}: process {pid} is killed ({why or 'it does not stop'})")
    os.kill(pid, signal.SIGKILL)
    while member.pid() == pid:
        time.sleep(0.05)


def summary(layout: Layout) -> str:
    """Returns the last lines of `het ps up`: how to use, check and stop the servers."""
    where = layout.directory
    lines = [f"HET_PS={layout.address().public().url()}"]
    if layout.password:
        lines = [f'HET_PS="$(cat {shlex.quote(str(where / "address"))})"    # it holds a password']
    loss = {
        "always": "nothing that was acknowledged",
        "everysec": "what was applied in the last second or two",
        "no": "what the operating system had not written yet, some 30 seconds",
    }[layout.appendfsync]
    lines.append(f"# appendfsync {layout.appendfsync}: a server that is killed loses {loss}.")
    if layout.replicas and layout.shards < cluster.AUTOMATIC_SHARDS:
        lines.append(
            f"# With {layout.shards} shards a replica takes over only by `CLUSTER FAILOVER TAKEOVER` at it: a"
            f" cluster decides by majority, which takes {cluster.AUTOMATIC_SHARDS} shards."
        )
    lines.append(f"# het ps status --dir {where}; het ps down --dir {where}")
    return "\n".join(lines)
