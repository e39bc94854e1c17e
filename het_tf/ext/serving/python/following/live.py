"""The live files as their readers find them, whether a process follows or not."""

import json
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
      rolled_back: The version to which the follower has gone back, and where it stays; None: none.
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
    rolled_back: int | None
    pid: int | None


def read(target: Target) -> Live:
    """Returns the state of a target's live files. RuntimeError: they, or the export's, are damaged."""
    return Live(**native.inspect(target), rolled_back=_rolled_back(target.live), pid=_follower(target.live))


def _rolled_back(directory: Path) -> int | None:
    """The version that ext/serving/cc/follow/undo.h has noted."""
    try:
        return int(json.loads((directory / "rolled_back").read_bytes())["version"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None


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
