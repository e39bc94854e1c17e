"""het ps up --watch: a server that a full disk has ended, or kill -9, runs again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis_lib
from het_ps_lib import ask, free_ports

import het_tf
from het_tf.ext.ps.python.address import parse
from het_tf.ext.ps.python.errors import ServerError
from het_tf.ext.ps.python.node import Node, Unreachable

pytestmark = [pytest.mark.slow, redis_lib.SERVER]
ROOT = Path(het_tf.__file__).parents[1]


class Disk:
    """A file system of 24 MB that only commands of `start` see: they share a mount namespace of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             f"mount -t tmpfs -o size=24m tmpfs {place} && echo ready && exec sleep 600"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout and self._holder.stderr
        if self._holder.stdout.readline() != "ready\n":
            pytest.skip(f"no file system can be mounted here: {self._holder.stderr.read().strip()}")

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["nsenter", f"--target={self._holder.pid}", "--mount", *map(str, words)],
            env=dict(os.environ, PYTHONPATH=str(ROOT)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def het_ps(self, command: str, *words: object) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-m", "het_tf", "ps", command, "--dir", self.place / "ps", *words)

    def close(self) -> None:
        self.het_ps("down", "--force", "--no-save", "--timeout", 5).communicate()
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    one = Disk(tmp_path)
    yield one
    one.close()


def until(process: subprocess.Popen[str], text: str) -> str:
    """The first line on stderr with a text."""
    assert process.stderr
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without a word of {text!r}")


def answers(address: str, *words: str) -> None:
    """Waits until a server answers a question, without an error."""
    end = time.monotonic() + 300
    while True:
        try:
            ask(address, *words)
            return
        except ServerError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_server_restarts_when_full_disk_has_room(disk):
    port = free_ports(1)
    address = f"redis://127.0.0.1:{port}"
    assert disk.start("truncate", "--size=1", disk.place / "other").wait() == 0
    assert disk.start("fallocate", "--length=10M", disk.place / "other").wait() == 0
    out, err = disk.het_ps("up", "--port", port, "--appendfsync", "always").communicate()
    assert f"HET_PS={address}" in out, err

    written = 0
    with pytest.raises(Unreachable):
        while written < 100:  # MB
            ask(address, "SET", f"key-{written}", "x" * (1 << 20))
            written += 1
    assert 3 < written < 24
    process = disk.het_ps("status", "--interval", "0.05")
    seen = " ".join(process.communicate()[0].split())
    assert "its log ends: " in seen and "AOF write error" in seen and "Free its disk and start it" in seen
    assert process.returncode == 1

    watch = disk.het_ps("up", "--watch")
    guard = threading.Timer(100, watch.kill)
    guard.start()
    try:
        assert watch.stdout and watch.stdout.readline() == f"HET_PS={address}\n"
        with pytest.raises(Unreachable):
            for _ in range(100):  # it is full again, or still
                ask(address, "SET", "more", "x" * (1 << 20))
        assert "AOF write error" in until(watch, "shard-0 has ended: ")
        assert disk.start("rm", disk.place / "other").wait() == 0
        answers(address, "SET", "again", "1")
        assert int(ask(address, "EXISTS", *(f"key-{number}" for number in range(written)))) == written

        with Node.of(parse(address)) as node:
            os.kill(int(node.info("server")["process_id"]), signal.SIGKILL)
        assert "its log does not say why" in until(watch, "shard-0 has ended: ")
        answers(address, "GET", "again")

        assert disk.het_ps("down").wait() == 0
        until(watch, "`het ps down` was called")
        assert watch.wait() == 0
    finally:
        guard.cancel()
        watch.kill()
        watch.communicate()
