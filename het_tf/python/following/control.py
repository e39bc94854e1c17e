"""A live directory as its readers find it (core/follow/live_format.h), whether a follower runs or not."""

import math
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_MAGIC = b"HETLIVEC"
_TABLE_MAGIC = b"HETLIVET"
_FORMAT = 1
_HEAD = struct.Struct("<8sIIQQQII40sQ")
_COUNTERS = struct.Struct("<QQQ")  # generation, seen, flips
_COUNTERS_AT = 128
_VERSION = struct.Struct("<Qd240s")
_VERSIONS_AT = 192
_FILES_AT = 704
_TABLE = struct.Struct("<8sIIQQQQQQQQ")
_NO_SLOT = 0xFFFFFFFF
_TRIES = 100  # a follower may change the files between two reads


@dataclass(frozen=True)
class Live:
    """The state of a live directory.

    Attributes:
      version: Number of the published version in force; 0: the export's dense weights.
      dense: Their file, relative to the live directory; "": the export's.
      trained_through: Of the version, in seconds since 1970; None: unknown.
      age: Seconds that its rows may be old; None: unknown, no scan is complete.
      generation: Number of times that a table was given larger files.
      rows: Rows of each table.
      pid: The follower's process; None: none runs.
    """

    version: int
    dense: str
    trained_through: float | None
    age: float | None
    generation: int
    rows: tuple[int, ...]
    pid: int | None


def read(live: Path) -> Live | None:
    """Returns the state of a live directory; None: no follower has made it, in this boot of the machine.

    Raises:
      ValueError: It is damaged, or of another version of het_tf.
    """
    for _ in range(_TRIES):
        try:
            return _read(live)
        except FileNotFoundError:
            if not (live / "control").exists():
                return None
    raise ValueError(
        f"{live} lacks files that its control names; end the follower, remove it, and follow again"
    )


def _read(live: Path) -> Live | None:
    path = live / "control"
    content = path.read_bytes()
    if len(content) < _FILES_AT or content[:8] != _MAGIC:
        raise ValueError(f"{path} is damaged; end the follower, remove {live}, and follow again")
    head = _HEAD.unpack_from(content)
    if head[1] != _FORMAT:
        raise ValueError(f"{path} has format {head[1]}, and this het_tf reads {_FORMAT}; use its follower's")
    if head[8].rstrip(b"\0").decode() != Path("/proc/sys/kernel/random/boot_id").read_text().strip():
        return None
    generation, seen, flips = _COUNTERS.unpack_from(content, _COUNTERS_AT)
    number, through, dense = _VERSION.unpack_from(content, _VERSIONS_AT + _VERSION.size * (flips & 1))
    tables = head[6]
    files = np.frombuffer(content, "<u8", tables, _FILES_AT)
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return Live(
        version=number,
        dense=dense.partition(b"\0")[0].decode(errors="replace"),
        trained_through=None if math.isnan(through) else through,
        age=max(0, now - seen) / 1e9 if seen else None,
        generation=generation,
        rows=tuple(_rows(live / f"rows-{table:03d}-{file}.live") for table, file in enumerate(files)),
        pid=follower(live),
    )


def _rows(path: Path) -> int:
    """Counts the keys that have a row."""
    with open(path, "rb") as file:
        head = _TABLE.unpack(file.read(_TABLE.size))
    if head[0] != _TABLE_MAGIC:
        raise ValueError(f"{path} is damaged; end the follower, remove its folder, and follow again")
    buckets, at = head[7], head[9]
    # A bucket: four keys, and their four entries.
    entries = np.memmap(path, "<u8", "r", at, (buckets, 2, 4))[:, 1]
    return int(np.count_nonzero((entries != 0) & ((entries & _NO_SLOT) != _NO_SLOT)))


def follower(live: Path) -> int | None:
    """Returns the process that holds the lock of a live directory, without touching the lock."""
    try:
        lock = os.stat(live / "lock")
        pid = int((live / "lock").read_text().strip() or 0)
    except (FileNotFoundError, ValueError):
        return None
    held = any(
        "FLOCK" in line and f" {pid} " in line and f":{lock.st_ino} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    )
    return pid if held else None
