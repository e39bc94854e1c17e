"""Starts the processes of a measurement: the server, and workers under horovodrun."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
from benchmarks.slow_link.control import Workers
from benchmarks.slow_link.network import SWITCH, Network
from het_tf.ext.ps.python import programs, redis_server

PORT = 7000
READY_SECONDS = 180.0


class Place:
    """Where processes run: on the hosts of a network."""

    def __init__(self, network: Network, workers: int) -> None:
        self.network = network
        self.workers = workers
        self.folder = Path(tempfile.mkdtemp(prefix="het_slow_"))

    def on(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on a host."""
        return self.network.on(host, command)

    def environment(self) -> dict[str, str]:
        """That of workers: one thread each, and none of the caller's own settings of het_tf or Horovod."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HET_", "HOROVOD_"))
        }
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "GRPC_VERBOSITY": "ERROR",
        }

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def server(place: Place) -> Iterator[None]:
    """A shard on the host "server", empty at first."""
    folder = Path(tempfile.mkdtemp(prefix="ps_", dir=place.folder))
    path = folder / "redis.sock"
    settings = {
        **redis_server.SETTINGS,
        "dir": str(folder),
        "port": str(PORT),
        "bind": "0.0.0.0",
        "protected-mode": "no",  # the network of namespaces has no other users
        "unixsocket": str(path),
        "save": "",
        "appendonly": "no",
        "loadmodule": str(programs.find_module()),
    }
    (folder / "redis.conf").write_text(redis_server.config_text(settings))
    command = place.on("server", [programs.find_server(), str(folder / "redis.conf")])
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        redis_server.wait_ready(f"unix://{path}", 30, alive=lambda: process.poll() is None, log=log)
        yield
    finally:
        end(process)
        shutil.rmtree(folder, ignore_errors=True)


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a process, and waits until it is gone."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


@contextlib.contextmanager
def horovod(place: Place, job: Any) -> Iterator[Workers]:
    """Workers of a job under horovodrun, each on a host of its own, connected."""
    workers = Workers(Path(job.control), place.workers)
    environment = place.environment()
    rank = [sys.executable, str(HERE / "worker.py"), job.text()]
    environment["HET_SLOW_LINK_RENDEZVOUS"] = SWITCH
    for host in place.network.workers:
        names = f"127.0.0.1 localhost\n{place.network.dense_address(host)} {socket.gethostname()}\n"
        (place.folder / f"hosts.{host}").write_text(names)
    rank = ["sh", str(HERE / "enter.sh"), str(place.folder), *rank]
    launcher = str(Path(sys.executable).with_name("horovodrun"))
    count = str(place.workers)
    command = [launcher, "-np", count, "-H", f"localhost:{count}", "--gloo", *rank]
    try:
        workers.launch(command, environment)
        workers.connect(READY_SECONDS)
        yield workers
    finally:
        workers.stop()
