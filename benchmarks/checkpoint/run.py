"""How long do saving and restoring a table take, and how much memory, beside tf.train.Checkpoint?

    python benchmarks/checkpoint/run.py [--rows N] [--remote-rows N] [--turns T] [--out FILE]

A table of N rows of 16 floats with RowWiseAdagrad in the process (embedded), by `het_tf.checkpoint`, beside
tf.train.Checkpoint of six dense variables that hold the same bytes: of each row the key (int64), the clock
(int64), the value (16 float32), the slot (float32), the last use (uint32) and the count (uint16), 90 bytes.
Each side is a process of its own; they take turns, in every other turn in the opposite order.

* Save: het_tf has its files on disk (fsync) when it returns, tf.train.Checkpoint leaves that to the kernel.
  So there are two figures of it: until it returns, and until an fsync of its files has returned as well.
* Restore, from the page cache: the files have just been written. Restore, from disk: they were dropped from
  the page cache (POSIX_FADV_DONTNEED), for both sides. Before each call os.sync() empties the kernel's queue.
* Memory: the most that was resident during the call (VmHWM, reset before it) less what was before it.
* Increment: a tenth of the rows gets an update, and only that is saved, in turns with the full one; restored
  are both.
* Remote: the same at one Redis server with the module, over a Unix socket, with fewer rows. The memory is
  that of the worker.

After each restore, rows that were changed before it are compared with what was saved.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report

DIM = 16
ROW_BYTES = {"key": 8, "clock": 8, "value": 4 * DIM, "slot": 4, "last use": 4, "count": 2}
CHANGED = 0.1
CHUNK = 200_000
HET, DENSE, REMOTE = "het_tf", "tf.train.Checkpoint", "het_tf, remote"
GOAL_SPEED, GOAL_MEMORY, GOAL_INCREMENT = 1.0, 0.1, 0.3


# --- the two sides, each in a process of its own ---------------------------------------------------------


class HetSide:
    """A table of het_tf."""

    def __init__(self, rows: int) -> None:
        import tensorflow as tf

        import het_tf
        from het_tf import checkpoint

        self.tf, self.checkpoint, self.flush = tf, checkpoint, het_tf.flush
        het_tf.init(ps=os.environ.get("HET_BENCHMARK_PS", ""))
        self.rows = rows
        optimizer = het_tf.optimizers.RowWiseAdagrad(0.1)
        self.layer = het_tf.keras.Embedding(DIM, name="rows", optimizer=optimizer, cache=het_tf.Cache(rows=0))
        self.table = het_tf.Table("rows")
        values = np.random.default_rng(0).random((CHUNK, DIM), np.float32)
        for begin in range(0, rows, CHUNK):
            part = self.ids(np.arange(begin, min(begin + CHUNK, rows)))
            self.table.assign(part, values[: len(part)])

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Ids all over the key space: a bijection of row numbers."""
        return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)

    def save(self, directory: Path) -> tuple[Path, float]:
        began = time.perf_counter()
        path = self.checkpoint.save(directory)
        return path, time.perf_counter() - began

    def increment(self, directory: Path) -> tuple[Path, float]:
        began = time.perf_counter()
        path = self.checkpoint.save(directory, since="latest")
        return path, time.perf_counter() - began

    def restore(self, path: Path) -> None:
        self.checkpoint.restore(path)

    def sample(self) -> np.ndarray:
        return self.table.lookup(self.ids(np.arange(0, self.rows, max(1, self.rows // 1000))))

    def spoil(self) -> None:
        some = self.ids(np.arange(0, self.rows, max(1, self.rows // 1000)))
        self.table.assign(some, np.zeros((len(some), DIM), np.float32))

    def update(self) -> None:
        """One tick for a tenth of the rows."""
        import het_tf

        some = self.ids(np.arange(0, self.rows, round(1 / CHANGED)))
        with self.tf.GradientTape() as tape:
            loss = self.tf.reduce_sum(self.layer(some, training=True))
        het_tf.apply(
            zip(
                tape.gradient(loss, self.layer.trainable_variables),
                self.layer.trainable_variables,
                strict=True,
            )
        )
        self.flush()  # sending updates is no part of saving


class DenseSide:
    """Dense variables of the same bytes."""

    def __init__(self, rows: int) -> None:
        import tensorflow as tf

        rng = np.random.default_rng(0)
        arrays = {
            "key": np.arange(rows, dtype=np.int64),
            "clock": np.ones(rows, np.int64),
            "value": rng.random((rows, DIM), np.float32),
            "slot": rng.random((rows, 1), np.float32),
            "last_use": np.full(rows, 1_700_000_000, np.uint32),
            "count": np.ones(rows, np.uint16),
        }
        self.tf = tf
        self.variables = {name: tf.Variable(array, name=name) for name, array in arrays.items()}
        self.checkpoint = tf.train.Checkpoint(**self.variables)

    def save(self, directory: Path) -> tuple[Path, float]:
        directory.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        path = Path(self.checkpoint.write(str(directory / "ckpt")))
        return path, time.perf_counter() - began

    def restore(self, path: Path) -> None:
        self.checkpoint.read(str(path)).assert_consumed()

    def sample(self) -> np.ndarray:
        return self.variables["value"][:1000].numpy()

    def spoil(self) -> None:
        self.variables["value"][:1000].assign(self.tf.zeros_like(self.variables["value"][:1000]))


def memory() -> tuple[int, int]:
    """Resident bytes of this process: now, and the most since `reset_peak`."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, int(status["VmHWM"].split()[0]) * 1024


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return [one for one in path.rglob("*") if one.is_file()]
    return [one for one in path.parent.iterdir() if one.is_file()]


def sync_files(path: Path, drop: bool) -> None:
    """Has files on disk, and out of the page cache if `drop`."""
    for one in files_of(path):
        handle = os.open(one, os.O_RDONLY)
        try:
            os.fsync(handle)
            if drop:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def worker(side: str, rows: int) -> None:
    """Answers lines of JSON on standard input: [what, path] -> seconds, extra bytes, and more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    system: Any = DenseSide(rows) if side == DENSE else HetSide(rows)
    saved = system.sample()

    def measured(action: Callable[[], Any]) -> tuple[Any, dict]:
        os.sync()
        before = memory()[0]
        reset_peak()
        began = time.perf_counter()
        result = action()
        seconds = time.perf_counter() - began
        return result, {"seconds": seconds, "extra_bytes": memory()[1] - before}

    print(json.dumps({"resident": memory()[0]}), file=replies, flush=True)
    for line in sys.stdin:
        what, path = json.loads(line)
        if what in ("save", "increment"):
            if what == "increment":
                system.update()
                saved = system.sample()
            os.sync()  # what was written or deleted before is not a part of it
            (made, _), figures = measured(lambda: getattr(system, what)(Path(path)))  # noqa: B023
            began = time.perf_counter()
            sync_files(made, drop=False)
            figures["on_disk_seconds"] = figures["seconds"] + time.perf_counter() - began
            figures |= {"path": str(made), "bytes": sum(one.stat().st_size for one in files_of(made))}
        else:
            if what == "restore from disk":
                sync_files(Path(path), drop=True)
            system.spoil()
            assert not np.array_equal(system.sample(), saved)
            _, figures = measured(lambda: system.restore(Path(path)))  # noqa: B023
            assert np.array_equal(system.sample(), saved), "restored is something else than was saved"
        print(json.dumps(figures), file=replies, flush=True)


# --- the run ---------------------------------------------------------------------------------------------


class Side:
    """A side in a process of its own."""

    def __init__(self, name: str, rows: int, directory: Path, ps: str = "") -> None:
        self.name, self.directory = name, directory
        kind = HET if name == REMOTE else name
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", kind, "--rows", str(rows)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "HET_BENCHMARK_PS": ps},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.resident = self._read()["resident"]
        self.turns: dict[str, list[dict]] = {}

    def _read(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with code {self._process.wait()}")
        return json.loads(line)

    def ask(self, what: str, path: Path) -> dict:
        self._process.stdin.write(json.dumps([what, str(path)]) + "\n")
        self._process.stdin.flush()
        found = self._read()
        self.turns.setdefault(what, []).append(found)
        return found

    def turn(self, number: int) -> None:
        place = self.directory / str(number)
        path = Path(self.ask("save", place)["path"])
        self.ask("restore", path)
        self.ask("restore from disk", path)
        shutil.rmtree(place)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def take_turns(sides: list[Side], turns: int, what: str) -> None:
    for number in range(turns):
        for side in sides if number % 2 == 0 else sides[::-1]:
            side.turn(number)
            last = {name: of[-1]["seconds"] for name, of in side.turns.items()}
            text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in last.items())
            print(f"  {what}, turn {number + 1}, {side.name:20}{text}", flush=True)


def increments(side: Side, turns: int) -> None:
    for number in range(turns):
        place = side.directory / f"increment-{number}"
        side.ask("save", place)
        path = Path(side.ask("increment", place)["path"])
        side.ask("restore increment", path)
        shutil.rmtree(place)


def of_increments(where: str, side: Side, turns: int) -> dict:
    """The figures of `increments`, after other turns."""
    of = side.turns
    full = of["save"][turns:]
    return {
        "where": where,
        "changed": CHANGED,
        "seconds": median(of["increment"], "seconds"),
        "bytes": median(of["increment"], "bytes"),
        "extra_bytes": max(turn["extra_bytes"] for turn in of["increment"]),
        "restore_seconds": median(of["restore increment"], "seconds"),
        "of_full_seconds": ratio(of["increment"], full, "seconds", "seconds"),
        "of_full_bytes": ratio(of["increment"], full, "bytes", "bytes"),
    }


def median(of: list[dict], field: str) -> float:
    return statistics.median(turn[field] for turn in of)


def ratio(above: list[dict], below: list[dict], field: str, field_below: str) -> float:
    """Returns the median of the ratios of turns that were taken side by side."""
    return statistics.median(a[field] / b[field_below] for a, b in zip(above, below, strict=True))


def compare(here: Side, there: Side, turns: int, size: int) -> list[dict]:
    """het_tf over the peer, by what was done."""
    out = []
    for what, label, field in (
        ("save", "save, until it returns", "seconds"),
        ("save", "save, until it is on disk", "on_disk_seconds"),
        ("restore", "restore, from the page cache", "seconds"),
        ("restore from disk", "restore, from disk", "seconds"),
    ):
        one, other = here.turns[what][:turns], there.turns[what][:turns]
        out.append({
            "what": label,
            "het_seconds": median(one, "seconds"),
            "peer_seconds": median(other, field),
            "ratio": ratio(one, other, "seconds", field),
            "het_extra": max(turn["extra_bytes"] for turn in one),
            "peer_extra": max(turn["extra_bytes"] for turn in other),
            "het_extra_of_table": max(turn["extra_bytes"] for turn in one) / size,
            "peer_extra_of_table": max(turn["extra_bytes"] for turn in other) / size,
        })  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--remote-rows", type=int, default=1_000_000, help="0: without a server")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--dir", type=Path, help="where checkpoints are written (a temporary directory)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    parser.add_argument("--worker", choices=[HET, DENSE], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.rows)
        return
    with tempfile.TemporaryDirectory(prefix="het_checkpoint_", dir=arguments.dir) as place:
        result = run(arguments, Path(place))
    report.finish(result, arguments.out, __file__)


def run(arguments: argparse.Namespace, place: Path) -> dict:
    rows, turns = arguments.rows, arguments.turns
    size = rows * sum(ROW_BYTES.values())
    print(f"{rows:,} rows of {DIM} floats with RowWiseAdagrad: {size / 1e6:.0f} MB", flush=True)
    sides = [Side(HET, rows, place / "het"), Side(DENSE, rows, place / "dense")]
    try:
        take_turns(sides, turns, "embedded")
        increments(sides[0], turns)
    finally:
        for side in sides:
            side.close()
    figures = compare(*sides, turns, size)
    result: dict[str, Any] = {
        "command": "python benchmarks/checkpoint/run.py",
        "rows": rows,
        "dim": DIM,
        "row_bytes": ROW_BYTES,
        "turns": {side.name: side.turns for side in sides},
        "resident": {side.name: side.resident for side in sides},
        "figures": figures,
        "increment": [of_increments("in process", sides[0], turns)],
    }
    if arguments.remote_rows:
        result["remote"], increment = remote(arguments.remote_rows, turns, place)
        result["increment"].append(increment)
    by_name = {one["what"]: one for one in figures}
    result["goals"] = (
        [
            report.goal(name, by_name[name]["ratio"], "<=", GOAL_SPEED)
            for name in ("save, until it is on disk", "restore, from the page cache", "restore, from disk")
        ]
        + [
            report.goal(f"memory of a {what}, of the table", most, "<=", GOAL_MEMORY)
            for what in ("save", "restore")
            for most in [max(f["het_extra_of_table"] for f in figures if f["what"].startswith(what))]
        ]
        + [
            report.goal(
                f"increment, {one['where']}, of a full save", one["of_full_seconds"], "<=", GOAL_INCREMENT
            )
            for one in result["increment"]
        ]
    )
    import het_tf._version

    result["machine"] = report.machine()
    result["versions"] = {"het_tf": het_tf._version.__version__, "TensorFlow": tensorflow_version()}
    return result


def tensorflow_version() -> str:
    """Returns the version that is installed; this process does not import TensorFlow."""
    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


def remote(rows: int, turns: int, place: Path) -> tuple[dict, dict]:
    """The same at a server; the peer's variables are in its process all the same."""
    from het_tf.ext.ps.python import redis_server

    with redis_server.LocalServer.start(unix=True) as server:
        sides = [Side(REMOTE, rows, place / "remote", server.address), Side(DENSE, rows, place / "dense")]
        try:
            take_turns(sides, turns, "remote")
            increments(sides[0], turns)
        finally:
            for side in sides:
                side.close()
    figures = compare(*sides, turns, rows * sum(ROW_BYTES.values()))
    result = {"rows": rows, "figures": figures, "turns": {side.name: side.turns for side in sides}}
    return result, of_increments("at a server", sides[0], turns)


if __name__ == "__main__":
    main()
