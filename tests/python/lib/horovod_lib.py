"""Launching test scripts under horovodrun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import redis_lib

ROOT = Path(__file__).resolve().parents[3]
LIB = Path(__file__).resolve().parent
WORKER = LIB / "horovod_worker.py"


def missing() -> str:
    """Why nothing can be launched here; "" if it can."""
    if _horovodrun() is None:
        return "horovodrun is missing: Horovod is not installed"
    return redis_lib.missing()


def _horovodrun() -> str | None:
    beside = Path(sys.executable).with_name("horovodrun")
    return str(beside) if beside.exists() else shutil.which("horovodrun")


def launch(
    *command: object, ranks: int = 2, timeout: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python COMMAND...` on every rank, and returns what all have printed."""
    outside = {name: value for name, value in os.environ.items() if name != "HET_PS"}
    python_path = os.pathsep.join([str(ROOT), str(LIB)])
    return subprocess.run(
        [str(_horovodrun()), "-np", str(ranks), "-H", f"localhost:{ranks}", "--gloo", sys.executable,
         *map(str, command)],
        env={**outside, "PYTHONPATH": python_path, "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def servers_below(directory: Path) -> list[str]:
    """Command lines of servers whose socket lies below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and "redis-server" in line and str(directory) in line:
            found.append(line)
    return found
