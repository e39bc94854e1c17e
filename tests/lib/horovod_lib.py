"""Launching test scripts under `het run` and horovodrun."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis_lib

ROOT = Path(__file__).resolve().parents[2]
LIB = Path(__file__).resolve().parent
WORKER = LIB / "ranks_worker.py"


def missing() -> str:
    """Why nothing can be launched here; "" if it can."""
    if _horovodrun() is None:
        return "horovodrun is missing: Horovod is not installed"
    return redis_lib.missing()


def _horovodrun() -> str | None:
    beside = Path(sys.executable).with_name("horovodrun")
    return str(beside) if beside.exists() else shutil.which("horovodrun")


RANKS = pytest.mark.skipif(bool(missing()), reason=missing() or "there is Horovod")


# Horovod's launcher itself, but it does not import TensorFlow to find out whether it can use Gloo.
_LAUNCHER = """
from horovod.runner import launch
launch.gloo_built = lambda **_: True
launch.run_commandline()
"""


BACKENDS = ("het_tf", "horovod")
"""What connects the ranks: `het run` starts those of het_tf, horovodrun those of Horovod."""


def _command(backend: str, ranks: int, *command: object) -> list[str]:
    """Returns the command line that runs `python COMMAND...` on every rank."""
    if backend == "het_tf":
        return [sys.executable, "-m", "het_tf", "run", "--nproc", str(ranks), *map(str, command)]
    run = [sys.executable, "-c", _LAUNCHER, "-np", str(ranks), "-H", f"localhost:{ranks}", "--gloo"]
    return [*run, sys.executable, *map(str, command)]


def _environment(more: dict[str, str]) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if name != "HET_PS"}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(LIB)]), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return {**outside, **paths, "OMP_NUM_THREADS": "1", "HOROVOD_CYCLE_TIME": "5", **more}


def launch(
    *command: object, ranks: int = 2, timeout: float = 600, backend: str = "horovod", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python COMMAND...` on every rank, and returns what all have printed."""
    return subprocess.run(
        _command(backend, ranks, *command), env=_environment(environment),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
    )  # fmt: skip


class Ranks:
    """One launch of ranks_worker.py; a test waits until all ranks are through with its case."""

    def __init__(
        self, place: Path, *cases: str, ranks: int = 2, backend: str = "horovod", **environment: str
    ) -> None:
        self.ranks, self.out = ranks, ""
        self._process = subprocess.Popen(
            _command(backend, ranks, WORKER, place, *cases), env=_environment(environment),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._limit = threading.Timer(900, self._process.kill)  # of ranks that hang
        self._limit.start()

    def wait(self, case: str) -> None:
        """Until every rank is through with a case."""
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            self.out += line
            if self._has(case):
                return
        assert self._has(case), f"{case} did not end well:\n{self.out[-6000:]}"

    def _has(self, case: str) -> bool:
        return (
            len(re.findall(rf"(<stdout>:|^|\] ){re.escape(case)}: ok", self.out, re.MULTILINE)) >= self.ranks
        )

    def end(self) -> int:
        """Waits for the end of the job and returns its status."""
        assert self._process.stdout is not None
        self.out += self._process.stdout.read()
        self._limit.cancel()
        return self._process.wait()


def servers_below(directory: Path) -> list[str]:
    """Command lines of servers whose socket lies below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and "-server" in line and str(directory) in line:
            found.append(line)
    return found
