"""Ctrl-C while a call waits for a server that stands still: KeyboardInterrupt, and the session goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import interrupted_worker
import redis_lib

pytestmark = redis_lib.MARKS


def run(directory: Path, what: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, interrupted_worker.__file__, str(directory), what]
    return subprocess.run(words, capture_output=True, text=True, timeout=900)


# Would catch: an op that waits on (the process ends only with the test's limit), the RuntimeError that
# pybind11 makes of a signal within TensorFlow's exception, a lost signal, and a row that was sent in part.
def test_calls_end_and_later_ones_work(tmp_path):
    done = run(tmp_path, "calls")
    names = ("fit", "eager", "function", "lookup", "assign", "save")
    assert done.stdout.split("\n")[:-1] == [*(f"{n} KeyboardInterrupt" for n in names), "usable"], done.stderr


def test_connecting_ends(tmp_path):
    done = run(tmp_path, "init")
    assert done.stdout.split("\n")[:-1] == ["init KeyboardInterrupt", "usable"], done.stderr


def test_a_programs_own_handler_is_called(tmp_path):
    done = run(tmp_path, "handler")
    assert done.stdout.split("\n")[:-1] == ["handler CancelledError [1]", "usable"], done.stderr


# The flush at the exit would wait for an hour.
def test_a_program_that_is_interrupted_ends(tmp_path):
    done = run(tmp_path, "exit")
    os.kill(int((tmp_path / "server").read_text()), signal.SIGKILL)
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
    assert "updates of the namespace '' that were not sent yet are lost" in done.stderr
