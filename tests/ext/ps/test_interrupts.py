"""Ctrl-C while a call waits for a server that stands still: KeyboardInterrupt, and the session goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import interrupted_worker
import pytest
import redis_lib

pytestmark = redis_lib.MARKS


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> subprocess.CompletedProcess[str]:
    """A process that is interrupted in each way, at last where nothing catches it."""
    directory = tmp_path_factory.mktemp("interrupts")
    words = [sys.executable, interrupted_worker.__file__, str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    os.kill(int((directory / "server").read_text()), signal.SIGKILL)
    return done


# Would catch: an op that waits on (the process ends only with the test's limit), the RuntimeError that
# pybind11 makes of a signal within TensorFlow's exception, a lost signal, and a row that was sent in part.
def test_calls_end_and_later_ones_work(done):
    names = ("fit", "eager", "function", "lookup", "assign", "save")
    wanted = [*(f"{name} KeyboardInterrupt" for name in names), "usable"]
    # A handler of the program's own is called, too, and connecting ends.
    wanted += ["handler CancelledError [1]", "usable", "init KeyboardInterrupt", "usable"]
    assert done.stdout.splitlines() == wanted, done.stderr


# The flush at the exit would wait for an hour.
def test_a_program_that_is_interrupted_ends(done):
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr
    assert "updates of the namespace '' that were not sent yet are lost" in done.stderr
