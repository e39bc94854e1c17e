"""For the tests of het ps: runs the command in this process, and finds ports for its servers."""

import contextlib
import functools
import io
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import redis_lib
from cli_lib import het
from launch_lib import until

import het_tf
from het_tf.ext.ps.python import address, layout
from het_tf.ext.ps.python.node import Node
from het_tf.python import cli

het_ps = functools.partial(het, "ps")  # runs `het ps WORDS` and checks its exit status


def picture(*words: object, status: int = 0) -> dict[str, Any]:
    return json.loads(het_ps("status", *words, "--json", "--interval", "0.05", status=status).out)


def caught_up(directory: Path, place: str) -> dict[str, Any]:
    """The replica at `place`, once it has all that its primary wrote. Replicas say so once a second."""

    def at_place() -> dict[str, Any]:
        return next(s for s in picture("--dir", directory)["servers"] if s["place"] == place)

    return until(lambda: (seen := at_place())["lag_bytes"] == 0 and seen, f"{place} has it all")


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that are free, as are those 10,000 above."""
    for _ in range(200):
        first = 10000 + redis_lib.free_port() % 20000
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in range(count):
                for port in (first + number, first + number + 10000):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError("no free ports")


def pids(directory: Path) -> dict[str, int | None]:
    return {member.name: member.pid() for member in layout.need(directory).members}


def kill(directory: Path, name: str) -> None:
    """kill -9 of one server, and waits until it is gone."""
    pid = pids(directory)[name]
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not pids(directory)[name])


@contextlib.contextmanager
def up(directory: Path, *words: object):
    """Servers of `het ps up`, gone after the block."""
    try:
        yield het_ps("up", "--dir", directory, *words)
    finally:
        redis_lib.leave()
        if layout.load(directory):
            with contextlib.redirect_stderr(io.StringIO()):
                cli.main(["ps", "down", "--dir", str(directory), "--force", "--no-save", "--timeout", "5"])


@contextlib.contextmanager
def cluster(directory: Path):
    """The address of two shards, which are gone after the block."""
    with up(directory, "--shards", 2, "--port", free_ports(2), "--appendfsync", "no"):
        yield (directory / "address").read_text().strip()


def ask(url: str, *words: object) -> Any:
    with Node.of(address.parse(url)) as node:
        return node.ask(*words)


def train(url: str, steps: int = 5, seed: int = 0) -> np.ndarray:
    """Trains a table at a store; returns how often each of 200 rows was counted down."""
    het_tf.reset()
    het_tf.init(ps=url)
    layer = redis_lib.counter(staleness=2, rows=50)
    expected = np.zeros(200)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        redis_lib.count(layer, rng.integers(0, 200, 100), expected)
    het_tf.flush()
    return expected


def check(expected: np.ndarray) -> None:
    """Checks that the store has the counts of `train`."""
    np.testing.assert_array_equal(het_tf.Table("t").lookup(np.arange(200))[:, 0], -expected)
