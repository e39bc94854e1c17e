"""Runs `het run` as a process, with ranks that are small scripts without TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from het_tf.ext.workers.python import environments

ROOT = Path(__file__).resolve().parents[2]

# What each script begins with: `note(name)` says that something has happened, `wait()` is for ever, and
# `gone(rank)` waits until the process of a rank that has begun is gone.
HEAD = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
rank, restart = int(os.environ["HET_RANK"]), int(os.environ["HET_RESTART"])
here = Path(os.environ["NOTES"])
def note(name, value=None):
    text = json.dumps({"pid": os.getpid(), "value": value})
    (here / f".{name}.{rank}").write_text(text)
    (here / f".{name}.{rank}").rename(here / f"{name}.{rank}.{restart}")
def wait(name="", ranks=()):
    while not name or not all((here / f"{name}.{one}.{restart}").exists() for one in ranks):
        time.sleep(0.02)
def gone(rank):
    process = json.loads((here / f"began.{rank}.0").read_text())["pid"]
    while os.path.exists(f"/proc/{process}"):
        time.sleep(0.02)
"""


def environment(**more: str) -> dict[str, str]:
    """The variables of this process without those of any launcher."""
    launchers = {name for one in environments.LAUNCHERS for name in one.VARIABLES}
    outside = {name: value for name, value in os.environ.items() if name not in {*launchers, "HET_PS"}}
    return {**outside, "PYTHONPATH": str(ROOT), **more}


def until(what: Callable[[], Any], why: str | Callable[[], str] = "") -> Any:
    """Waits until something is true, and returns it."""
    for _ in range(15_000):
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {why() if callable(why) else why}")


def alive(process: int) -> bool:
    """Whether a process runs: one that has ended may still have its number."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


class Launch:
    """One `het run`."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder, self.process = folder, process

    def note(self, name: str, rank: int, restart: int = 0) -> dict[str, Any]:
        """Waits until a rank has said something."""
        path = self.folder / f"{name}.{rank}.{restart}"
        until(lambda: path.exists() or self.process.poll() is not None, f"{name} of rank {rank}")
        if not path.exists():
            raise AssertionError(f"no {name} of rank {rank}:\n{''.join(self.process.communicate())}")
        return json.loads(path.read_text())

    def end(self, status: int | None = 0) -> Launch:
        """Waits for its end, and checks its exit status."""
        self.out, self.err = self.process.communicate(timeout=120)
        assert status is None or self.process.returncode == status, f"{self.process.returncode}\n{self.err}"
        return self


class Launches:
    """Starts `het run` in a folder; what is left at the end is ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Launch] = []
        self.number = 0

    def script(self, code: str) -> Path:
        self.number += 1
        path = self.folder / f"train{self.number}.py"
        path.write_text(HEAD + textwrap.dedent(code))
        return path

    def __call__(self, *words: object, **variables: str) -> Launch:
        command = [sys.executable, "-m", "het_tf", "run", *map(str, words)]
        env = environment(NOTES=str(self.folder), TMPDIR=str(self.folder), **variables)
        process = subprocess.Popen(
            command, env=env, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(Launch(self.folder, process))
        return self.started[-1]

    def end(self) -> None:
        """Ends what is left."""
        for one in self.started:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
                one.process.kill()
            one.process.communicate()
