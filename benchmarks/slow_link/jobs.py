"""Starts the processes of a measurement: the server, the relay, workers under horovodrun, and the peer's."""

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
sys.path[:0] = [str(ROOT), str(HERE)]

from control import Workers  # noqa: E402
from network import SWITCH, Network  # noqa: E402

from het_tf.python.ps import programs, redis_server  # noqa: E402

RELAY = ROOT / "build/release/slow_link_relay"
PORT = 7000
RELAY_PORT = 7001
READY_SECONDS = 180.0


class Place:
    """Where processes run: on the hosts of a network, or, without one, all on this machine."""

    def __init__(self, network: Network | None, workers: int) -> None:
        self.network = network
        self.workers = workers
        self.folder = Path(tempfile.mkdtemp(prefix="het_slow_"))

    def on(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs `command` on a host, and does not outlive this process."""
        if self.network is not None:
            return self.network.on(host, command)
        return [*(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []), *command]

    def environment(self) -> dict[str, str]:
        """That of workers: one thread each, and none of the caller's own settings of het_tf or Horovod."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HET_", "HOROVOD_"))
        }
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "GRPC_VERBOSITY": "ERROR",
        }

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def server(place: Place) -> Iterator[Path]:
    """A shard on the host "server"; gives its Unix socket, which is on no link. Empty at first."""
    folder = Path(tempfile.mkdtemp(prefix="ps_", dir=place.folder))
    path = folder / "redis.sock"
    port = PORT if place.network is not None else redis_server.free_port()
    settings = {
        **redis_server.SETTINGS,
        "dir": str(folder),
        "port": str(port),
        "bind": "0.0.0.0" if place.network is not None else "127.0.0.1",
        "protected-mode": "no",  # in the network of namespaces there is nobody else
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
        yield path
    finally:
        end(process)
        shutil.rmtree(folder, ignore_errors=True)


class Relay:
    """The latency, and where there is no network of namespaces the rate, between workers and a server."""

    def __init__(self, place: Place, target: Path) -> None:
        if not RELAY.exists():
            raise FileNotFoundError(f"{RELAY.relative_to(ROOT)} is missing; run `make benchmark-tools`")
        inside = place.network is not None
        host, port = (place.network.address("server") if inside else "127.0.0.1"), RELAY_PORT  # type: ignore[union-attr]
        if not inside:
            port = redis_server.free_port()
        self.address = f"redis://{host}:{port}"
        command = place.on("server", [str(RELAY), f"{host}:{port}", str(target)])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._answer() != "ready":
            raise RuntimeError("the relay did not start")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if not answer:
            raise RuntimeError("the relay has ended")
        return answer

    def set(self, round_trip: float, rate: float | None) -> None:
        """Adds so many seconds to every round trip; `rate` is in bytes a second each way, None: any."""
        self._ask(f"delay {round_trip / 2:.9f}")
        self._ask(f"rate {rate or 0:.0f}")

    def bytes(self) -> tuple[int, int]:
        """How many bytes came from the server, and how many from clients."""
        received, sent = self._ask("bytes").split()
        return int(sent), int(received)

    def stop(self) -> None:
        """Ends it."""
        end(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


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
    if place.network is not None:
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


@contextlib.contextmanager
def strategy(place: Place, job: Any) -> Iterator[Workers]:
    """ParameterServerStrategy of a job: its servers on their hosts, and the chief, connected."""
    assert place.network is not None
    where = [("ps", 0, "server"), *(("worker", n, host) for n, host in enumerate(place.network.workers))]
    chief = Workers(Path(job.control), 1)
    program = [sys.executable, str(HERE / "ps_strategy.py")]
    servers = []
    try:
        with (place.folder / "strategy.log").open("wb") as log:
            for role, number, host in where:
                command = place.on(host, [*program, role, str(number), job.text()])
                servers.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=place.environment()
                    )
                )
        chief.launch([*program, "chief", "0", job.text()], place.environment())
        chief.connect(READY_SECONDS)
        yield chief
    finally:
        chief.stop()
        for process in servers:
            process.kill()  # they serve for ever
            process.wait()
