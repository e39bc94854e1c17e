"""A Redis server with the het module, for tests: on a Unix socket in a directory of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkpoint_lib
import numpy as np
import pytest
import tensorflow as tf
from ranks import SERVER
from rules_lib import learn

import het_tf
from het_tf.ext.ps.python.redis_server import free_port as free_port

PROGRAM = os.environ.get("HET_TEST_SERVER") or shutil.which("valkey-server") or "redis-server"
MODULE = Path(het_tf.__file__).parent / "lib" / "het.so"
DEPLOY = Path(het_tf.__file__).parents[1] / "examples/deploy"


def rights() -> dict[str, list[str]]:
    """The rules of each user of examples/deploy/users.conf."""
    lines = [line.split() for line in (DEPLOY / "users.conf").read_text().splitlines()]
    return {line[1]: line[4:] for line in lines if line[:1] == ["user"] and line[1] != "default"}


class Server:
    """One server process; `start` and `kill` as often as a test likes."""

    def __init__(self, directory: Path, *arguments: str, module: bool = True) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self.arguments = [
            PROGRAM, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(directory),
            "--save", "", *arguments, *(["--loadmodule", str(MODULE)] if module else []),
        ]  # fmt: skip
        self.process: subprocess.Popen | None = None

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=log)
        for _ in range(200):
            with contextlib.suppress(OSError):
                if self.command("PING").startswith((b"+PONG", b"-NOAUTH")):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{PROGRAM} did not start:\n{(self.directory / 'log').read_text()}")

    def command(self, *words: str) -> bytes:
        """Sends one command and returns the beginning of the raw answer."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(300)
            client.connect(str(self.socket))
            parts = [f"*{len(words)}\r\n".encode()]
            parts += [f"${len(word.encode())}\r\n{word}\r\n".encode() for word in words]
            client.sendall(b"".join(parts))
            return client.recv(65536)

    def kill(self) -> None:
        """kill -9, and waits until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def leave() -> None:
    """Tables are in this process again; what is unsent goes to the server, so it comes before its end."""
    het_tf.reset()
    het_tf.init(ps="")


MARKS = [pytest.mark.slow, SERVER, pytest.mark.usefixtures("fresh")]  # of files that need a server


@contextlib.contextmanager
def running(directory: Path, *arguments: str, module: bool = True) -> Iterator[Server]:
    """A server that is ready, and ends with the block."""
    directory.mkdir(parents=True, exist_ok=True)
    server = Server(directory, *arguments, module=module)
    try:
        server.start()
        yield server
    finally:
        leave()
        server.stop()


def train(layer: Any, steps: int) -> None:
    """Steps whose gradients are small integers: sums of them are exact in any order."""
    checkpoint_lib.train(layer, 0, steps, ids=40, batch=30)


def rows_of(name: str) -> dict[str, np.ndarray]:
    """Everything of a table, with what the cache held back."""
    het_tf.flush()
    return het_tf.Table(name).scan()


def counter(name: str = "t", **cache: Any) -> Any:
    """A layer whose rows begin at zero and whose gradients are taken as they are, with a het_tf.Cache."""
    options = {"optimizer": het_tf.optimizers.SGD(1.0), "initializer": "zeros"}
    return het_tf.keras.Embedding(2, name=name, cache=het_tf.Cache(**{"wire": "float32"} | cache), **options)


def count(layer: Any, ids: np.ndarray, expected: np.ndarray) -> None:
    """One step that takes 1 off the rows of `ids` under SGD(1), and adds it to `expected`."""
    learn(layer, lambda: tf.reduce_sum(layer(ids, training=True)))
    np.add.at(expected, ids, 1)
