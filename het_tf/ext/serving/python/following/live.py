"""The live files as their readers find them, whether a process follows or not."""

import os
from dataclasses import dataclass
from pathlib import Path

from het_tf.ext.serving.python.following import native
from het_tf.ext.serving.python.following.target import Target


@dataclass(frozen=True)
class Live:
    """The state of live files.

    Attributes:
      live: Whether there are any of this boot of the machine; else the export's rows are served.
      version: Number of the published version in force; 0: the export's dense weights.
      dense: Their file, relative to the live directory; "": the export's.
      trained_through: Of the version, in seconds since 1970; None: unknown.
      age: Seconds that the rows may be old; None: unknown, no scan is complete.
      skew: Seconds by which rows may be newer than the version's dense weights; None: unknown.
      generation: Number of times that a table was given larger files.
      rows: Rows of each table.
      pid: The process that follows; None: none does.
    """

    live: bool
    version: int
    dense: str
    trained_through: float | None
    age: float | None
    skew: float | None
    generation: int
    rows: list[int]
    pid: int | None


def read(target: Target) -> Live:
    """Returns the state of a target's live files. RuntimeError: they, or the export's, are damaged."""
    return Live(**native.inspect(target), pid=_follower(target.live))


def _follower(directory: Path) -> int | None:
    """The process that holds the lock of a live directory, found without touching the lock."""
    try:
        inode = os.stat(directory / "lock").st_ino
        pid = int((directory / "lock").read_text().strip() or 0)
    except (FileNotFoundError, ValueError):
        return None
    locks = Path("/proc/locks").read_text().splitlines()
    held = any("FLOCK" in line and f" {pid} " in line and f":{inode} " in line for line in locks)
    return pid if held else None
