"""The private server of a job: ready when `start` returns, and gone with the job however that ends."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import redis_lib
from het_ps_lib import ask
from launch_lib import alive, until

from het_tf.ext.ps.python import address, redis_server
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node, Refused
from het_tf.ext.ps.python.redis_server import LocalServer

pytestmark = [pytest.mark.slow, redis_lib.SERVER]

PS = Path(redis_server.__file__).parent


def gone(pid: int, path: Path | None = None) -> bool:
    """Waits until process and directory are no more."""
    return until(lambda: not alive(pid) and not (path and path.exists()))


@pytest.mark.parametrize("unix", [False, True])
def test_a_server_of_a_block(unix):
    with LocalServer.start(unix=unix) as server:
        assert server.address.startswith("unix:///" if unix else "redis://127.0.0.1:")
        assert ask(server.address, "PING") == "PONG"
        with Node.of(address.parse(server.address)) as node:
            assert node.info("server")["process_id"] == str(server.pid)
            for name, value in {"maxmemory-policy": "noeviction", "proto-max-bulk-len": str(4 << 30)}.items():
                assert node.ask("CONFIG", "GET", name)[1] == value
            assert "slave 0 0 0" in node.ask("CONFIG", "GET", "client-output-buffer-limit")[1]
        directory = server.directory
        assert directory.exists() and server.alive()
    assert not alive(server.pid) and not directory.exists() and not server.alive()
    server.stop()  # once more: nothing


# Where the tests run in the background of a shell, Ctrl-C is ignored, and children inherit that.
JOB = f"""
import os, signal, sys, tempfile, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(PS.parents[3])!r})
import het_tf.ext.ps.python.redis_server as r
server = r.LocalServer.start(unix=True)
MORE
print(server.pid, server.directory, server.address, flush=True)
time.sleep(300)
"""
OF_THREAD = """
thread = threading.Thread(target=lambda: globals().__setitem__("server", r.LocalServer.start()))
server.stop(); thread.start(); thread.join()
time.sleep(0.6)
"""
STOPPING = "server._keeper.terminate(); server._keeper.wait()"  # the first half of stop()
FORK = """
child = os.fork()
if child == 0:
    server.stop()      # not its own: nothing happens
    time.sleep(300)
    os._exit(0)
time.sleep(0.5)
print(child, flush=True)
"""


@contextlib.contextmanager
def job(more: str = ""):
    """A process with a server; killed after the block."""
    command = [sys.executable, "-c", JOB.replace("MORE", more)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen) -> tuple[int, Path, str]:
    """The pid, the directory and the address of a job's server."""
    pid, directory, url = process.stdout.readline().split()
    return int(pid), Path(directory), url


ENDS = [
    (signal.SIGKILL, ""),
    *(pytest.param(*one, marks=pytest.mark.long) for one in (
        (signal.SIGTERM, ""), (signal.SIGINT, ""), (signal.SIGKILL, STOPPING),
        (signal.SIGKILL, OF_THREAD),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("how", "more"), ENDS)
def test_it_ends_with_its_job_and_leaves_nothing(how, more):
    """Also if the job dies in the middle of `stop`; and a thread that ends is not the job."""
    with job(more) as process:
        pid, directory, url = told(process)
        if more != STOPPING:
            assert ask(url, "PING") == "PONG" and alive(pid) and directory.exists()
        process.send_signal(how)
        process.wait(300)
        assert gone(pid, directory)


@pytest.mark.long
def test_a_fork_neither_stops_nor_keeps_it():
    with job(FORK) as process:
        child = int(process.stdout.readline())
        try:
            pid, directory, url = told(process)
            assert ask(url, "PING") == "PONG" and directory.exists(), "the fork stopped it"
            process.kill()
            assert gone(pid, directory), "the fork, which lives on, keeps it"
            assert alive(child)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.long
def test_it_ends_with_its_keeper():
    server = LocalServer.start()
    try:
        os.kill(server._keeper.pid, signal.SIGKILL)
        assert gone(server.pid)
        assert not server.alive()
    finally:
        server.stop()
    assert not server.directory.exists()


def test_one_directory_has_one_server(tmp_path):
    place = tmp_path / "ps"
    with LocalServer.start(place, settings={"appendonly": "yes"}) as server:
        with pytest.raises(ServerError, match="another server works in"):
            LocalServer.start(place)
        for path in (place, *place.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0, path
    assert gone(server.pid)
    LocalServer.start(place).stop()


@pytest.mark.long
def test_its_settings_and_data_are_read_again(tmp_path):
    """Others need the password, which no list of processes shows."""
    place, password = tmp_path / 'a "b" #c', 'p "#\\ q'
    keep = {"appendonly": "yes", "appendfsync": "always", "requirepass": password}
    with LocalServer.start(place, settings=keep) as server:
        assert address.parse(server.address).password == password
        assert ask(server.address, "CONFIG", "GET", "dir")[1] == str(place)
        assert ask(server.address, "SET", "a", "1") == "OK"
        with pytest.raises(Refused, match=r"NOAUTH.*give user and password as redis:"):
            ask(f"redis://127.0.0.1:{server.port}", "PING")
        assert password.encode() not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
        os.kill(server.pid, signal.SIGKILL)
    with LocalServer.start(place, settings=keep, unix=True) as server:
        assert ask(server.address, "GET", "a") == "1"
    assert (place / "log").exists()


def test_what_cannot_start_says_why(tmp_path, monkeypatch):
    with LocalServer.start() as first:
        # Whoever answers on that port, with or without a password, is not taken for the job's own server.
        for more in ({}, {"requirepass": "x"}):
            with LocalServer.start(settings=more) as other:
                with pytest.raises(ServerError, match="ddress already in use"):
                    LocalServer.start(port=other.port)
        assert ask(first.address, "PING") == "PONG"
    with LocalServer.start(tmp_path / ("x" * 100), unix=True) as server:
        assert server.port, "the path is too long for a socket"
    (tmp_path / "private").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "private"))
    for arguments, error, why in (
        ({"settings": {"nonsense": "1"}}, ServerError, r"the server ended; its log .*:\n(.*\n)*.*nonsense"),
        ({"settings": {"dir": "a\nb"}}, ValueError, "a setting is one line"),
        ({"port": -1}, ValueError, "port is -1; give an integer from 0 to 65535"),
        ({"directory": tmp_path / "file"}, ServerError, "file"),
    ):
        with pytest.raises(error, match=why):
            LocalServer.start(**arguments)
    assert not list((tmp_path / "private").iterdir()), "nothing is left behind"


@pytest.mark.long
def test_waiting_has_an_end_and_a_reason(tmp_path):
    said: list[str] = []
    url = f"redis://127.0.0.1:{redis_server.free_port()}"
    with pytest.raises(ServerError, match=r"not ready within 0.3 s: .*Connection refused"):
        redis_server.wait_ready(url, 0.3, say=said.append)
    assert len(said) == 1 and "Connection refused" in said[0], "one line for one reason"
    with redis_lib.running(tmp_path / "r", module=False) as server:
        with pytest.raises(ServerError, match="has not loaded the module het; start it with --loadmodule"):
            redis_server.wait_ready(server.address, 5)
        os.kill(server.process.pid, signal.SIGSTOP)
        timer = threading.Timer(1, os.kill, (server.process.pid, signal.SIGCONT))
        timer.start()
        with pytest.raises(ServerError, match="gave no answer"):
            redis_server.wait_ready(server.address, 0.1)
        timer.join()
