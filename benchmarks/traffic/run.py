"""How much travels between workers with caches and their parameter server, and how stale are their reads?

    make benchmark-tools                          # with build/release/traffic
    python benchmarks/traffic/run.py [--quick] [--samples N] [--jobs K] [--program FILE] [--out FILE]
    python benchmarks/report.py                   # tables

Every run is a process of benchmarks/traffic/: N workers in lock-step, each with the client and the cache that
training uses, before one service; bytes are those of the frames as they were encoded. A run is a function of
its settings: two give the same figures. Runs that are done are kept in build/traffic until the program, or
their settings, change.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.traffic.goals import CLASSES, goals, missed_at_most
from benchmarks.traffic.streams import FORMAT, make_stream
from het_tf.ext.streams.python.placement import Placement

PROGRAM = ROOT / "build/release/traffic"
PLACE = ROOT / "build/traffic"
BOUNDS = ("0", "1/1", "10/10", "30/30", "100/100", "300/300", "1000/1000", "unbounded")
BATCH = 128
PARTITIONS = 64
"""A namespace at a parameter server has as many."""
SEED = 1
DEFAULT = {"bound": "30", "wire": "int4", "checks": "notified"}
"""What `het_tf.Cache()` gives at a parameter server."""
ROWS = "row_wise_adagrad"
"""Whose rows travel in the sweep `default`, as by default."""
EXACT = DEFAULT | {"bound": "0"}
OWN = DEFAULT | {"bounds_of": ROWS}
BOUNDS_BY_AGE = (OWN, DEFAULT)
SETTINGS = (EXACT, {"bound": "0"}, {"bound": "10/10"}, {"bound": "100/100"}, *BOUNDS_BY_AGE)
"""The sweep `default` with 8 workers."""
PLACED = ("C2", "C24")
REAL = {"census": 262_144, "movielens": 262_144}


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of one run.

    Attributes:
      stream: criteo_scaled, criteo_hashed, graph, census or movielens (streams.py).
      samples: how many, of all workers together; the first quarter warms up and is not counted.
      workers: N.
      dim: floats a row.
      bound: "30": `staleness=30`, by the age of rows; "10/3": HET's, pull and push bounds of all rows.
      bounds_of: the optimizer whose bounds by age those are: row_wise_adagrad, the tables' default, or
        adagrad, whose bounds save more and which most sweeps have.
      cache: rows that a cache may hold, of the distinct rows of the stream; 0: no cache; 1: all.
      policy: of the cache.
      window: batches that are planned ahead (`het_tf.lookahead`); 0: none.
      sync: "always": rows go when they are past the push bound; "on_demand": when others use them, too.
      checks: asked or notified (CacheConfig::checks).
      wire: how rows travel: float32, float16, int8 or int4.
      optimizer: whose rows travel. Those of SGD say what reads have missed; those of RowWiseAdagrad, the
        default, have one float more.
      placed: the field of a Criteo-like stream that places its samples on the workers, or of "graph"
        "location" or "community"; "": as they come.
    """

    stream: str
    samples: int
    workers: int = 8
    dim: int = 16
    bound: str = "100/100"
    cache: float = 0.1
    policy: str = "lfu"
    window: int = 0
    sync: str = "always"
    checks: str = "asked"
    wire: str = "float32"
    optimizer: str = "sgd"
    bounds_of: str = "adagrad"
    placed: str = ""

    @property
    def source(self) -> tuple[str, int, Placement | None]:
        """The stream that it needs: name, samples and placement."""
        placement = Placement(self.placed, self.workers, BATCH) if self.placed else None
        return self.stream, self.samples, placement

    def baseline(self) -> Run:
        """The same without a cache: every batch pulls its rows and pushes their updates.

        Always of 8 workers and in the order of the stream: the batches are the same ones however many workers
        take them. Rows are float32.
        """
        kept = {name: getattr(self, name) for name in ("dim", "optimizer")}
        return Run(self.stream, self.samples, bound="0", cache=0, **kept)

    def arguments(self, path: Path, distinct: int) -> list[str]:
        """The program's arguments, for a file of a stream and its number of distinct rows."""
        pull, _, push = self.bound.partition("/")
        bounds = {"pull": pull, "push": push} if push else {"staleness": pull, "optimizer": self.bounds_of}
        settings = {
            "stream": path,  # the first, see measure
            "workers": self.workers, "dim": self.dim, "batch": BATCH, "warm": self.samples // 4,
            "partitions": PARTITIONS, "capacity": round(self.cache * distinct), "policy": self.policy,
            "checks": self.checks, "wire": self.wire,
            "rows": self.optimizer, "window": self.window,
            "sync": self.sync,
            **bounds,
        }  # fmt: skip
        return [str(word) for name, value in settings.items() for word in (f"--{name}", value)]


def sweeps(samples: int, quick: bool) -> dict[str, list[Run]]:
    """Returns the runs of every sweep; several sweeps may have a run in common."""
    base = Run("criteo_scaled", samples)
    graph = Run("graph", samples)
    change = dataclasses.replace
    bounds = ("0", "10/10", "100/100", "unbounded") if quick else BOUNDS
    counts = (2, 8) if quick else (1, 2, 4, 8, 16, 32)
    shares = (0.01, 0.1) if quick else (0.01, 0.03, 0.05, 0.1, 0.15)
    dims = (16, 128) if quick else (16, 32, 64, 128)
    result = {
        "dims": [change(base, bound=bound, dim=dim) for bound in ("10/10", "100/100") for dim in dims],
        "workers": [
            change(base, bound="10/10", workers=n, cache=cache) for cache in (0.1, 1) for n in counts
        ],
        "staleness": [
            *(change(base, bound=bound) for bound in bounds),
            *(change(base, bound=bound, cache=1) for bound in ("0", "10/10", "100/100", "unbounded")),
        ],
        "wire": [
            change(base, bound=bound, dim=dim, wire=wire)
            for dim in (16, 128)
            for bound in (("100/100",) if quick else ("10/10", "100/100"))
            for wire in (("float16",) if quick else ("float16", "int8", "int4"))
        ],
        "default": [
            *(
                change(base, workers=n, dim=dim, optimizer=ROWS, placed=field, **setting)
                for n, dim, settings in (
                    *((8, 16, SETTINGS), (2, 16, BOUNDS_BY_AGE), (32, 16, BOUNDS_BY_AGE)),
                    *(() if quick else ((8, 128, (EXACT, *BOUNDS_BY_AGE)),)),
                )
                for field in ("", "C24")
                for setting in settings
            ),
            change(base, **(DEFAULT | {"wire": "float32"})),  # whose rows say what reads have missed
            change(base, bound="0", cache=0, wire="int4", optimizer=ROWS),
            *(
                change(base, stream="criteo_hashed", optimizer=ROWS, **setting)
                for setting in (EXACT, *BOUNDS_BY_AGE)
            ),
        ],
        # Exact, rounded and within bounds; then a graph, whose default sends most of its rows.
        "on_demand": [
            *(
                change(base, workers=n, placed=field, sync=sync, **setting)
                for setting in (
                    {"bound": "0"},
                    EXACT | {"optimizer": ROWS},
                    DEFAULT | {"optimizer": ROWS},
                    DEFAULT | {"wire": "float32"},
                )
                for n in ((8,) if quick else (8, 2))
                for field in ("", "C24")
                for sync in ("always", "on_demand")
            ),
            *(
                change(base, dim=128, placed="C24", sync="on_demand", optimizer=ROWS, **setting)
                for setting in ((EXACT, DEFAULT) if not quick else ())
            ),
            *(
                change(graph, placed=placed, sync=sync, window=32, optimizer=ROWS, **DEFAULT)
                for placed in (() if quick else ("", "location", "community"))
                for sync in ("always", "on_demand")
            ),
        ],
        # What placement, rows on demand and plans do for the bounds of the default.
        "by_age": [
            change(base, workers=n, placed=placed, sync=sync, optimizer=ROWS, **OWN)
            for n, placed in (() if quick else ((8, ""), (8, "C24"), (2, "C24")))
            for sync in ("always", "on_demand")
        ],
        "window_by_age": [
            change(base, cache=share, window=window, optimizer=ROWS, **OWN)
            for share in (0.01, 0.03, 0.1)
            for window in (() if quick else (0, 32))
        ],
        "placed": [
            change(base, bound=bound, placed=field) for field in PLACED for bound in ("0", "10/10", "100/100")
        ],
        "cache": [change(base, cache=share, policy=policy) for policy in ("lru", "lfu") for share in shares],
        "window": [
            *(
                change(base, cache=share, window=window, optimizer=optimizer, **setting)
                for setting, optimizer in (({"bound": "100/100"}, "sgd"), (DEFAULT, ROWS))
                for share in (0.01, 0.03, 0.1)
                for window in (0, 8, 32, 200)
            ),
            *(
                change(graph, window=window, optimizer=optimizer, **setting)
                for setting, optimizer in (({"bound": "100/100"}, "sgd"), (DEFAULT, ROWS))
                for window in (0, 32, 200)
            ),
        ],
    }
    if quick:
        return result
    result["graph"] = [
        *(change(graph, bound=bound, dim=dim) for dim in (16, 128) for bound in ("0", "10/10", "100/100")),
        change(graph, dim=128, cache=1),
        *(change(graph, workers=n, dim=dim, optimizer=ROWS, **DEFAULT) for dim in (16, 128) for n in (2, 8)),
    ]
    for name, size in REAL.items():
        real = Run(name, size)
        result[name] = [change(real, bound=bound) for bound in bounds]
    return result


def all_runs(of: dict[str, list[Run]]) -> list[Run]:
    """Returns each run of the sweeps once, and before it the run without a cache that it is compared with."""
    runs: dict[Run, None] = {}
    for run in (run for sweep in of.values() for run in sweep):
        runs[run.baseline()] = None
        runs[run] = None
    return list(runs)


def kept(key: list[Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns the result that is kept under a key, or else computes it and keeps it; with its seconds."""
    path = PLACE / "runs" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    begin = time.monotonic()
    result = compute()
    result["seconds"] = time.monotonic() - begin
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(result))
    partial.rename(path)
    return result


def distinct_rows(path: Path) -> int:
    """Returns how many distinct rows a stream's file has."""
    with path.open("rb") as file:
        file.seek(24)
        return int.from_bytes(file.read(8), "little")


def measure(run: Run, path: Path, program: Path, version: str) -> dict[str, Any]:
    """Runs the program, unless its result is kept; returns what it printed."""
    arguments = run.arguments(path, distinct_rows(path))

    def compute() -> dict[str, Any]:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=3600)
        if done.returncode != 0:
            raise RuntimeError(f"{run}: {done.stderr.strip()}")
        return dict(json.loads(done.stdout))

    return kept([path.name, arguments[2:], version], compute)


def summary(run: Run, result: dict[str, Any], baseline: dict[str, Any] | None) -> dict[str, Any]:
    """Returns a run's settings and its figures for each step of one worker, as they go into the JSON."""
    counts = result["counts"]
    steps = result["steps"] * run.workers  # of all workers
    rows = sum(counts[name]["rows"] for name in CLASSES)
    size = counts["bytes_in"] + counts["bytes_out"]
    of_checks = {name: counts[f"{name}_bytes"] / steps for name in ("check", "moved", "left")}
    of_heads = {name: counts[f"{name}_bytes"] / steps for name in ("frame", "part")}
    figures: dict[str, Any] = {
        **dataclasses.asdict(run),
        "distinct": result["distinct"],
        "steps": result["steps"],
        "unsent_rows": result["unsent_rows"] / run.workers,
        "unsent_rows_before": result["unsent_rows_before"] / run.workers,
        "unique_ids": result["staleness"]["reads"] / steps,
        "hit_rate": result["hits"] / result["reads"],
        "rows": rows / steps,
        "bytes": size / steps,
        "rows_by_class": {name: counts[name]["rows"] / steps for name in CLASSES},
        "bytes_by_class": {
            **{name: counts[name]["row_bytes"] / steps for name in CLASSES},
            "keys": sum(counts[name]["key_bytes"] for name in CLASSES) / steps,
            "checks": sum(of_checks.values()),
            "heads": sum(of_heads.values()),
        },
        "of_checks": of_checks,
        "of_heads": of_heads,
        "checked": counts["checks"] / steps,
        "bytes_a_check": sum(of_checks.values()) * steps / counts["checks"] if counts["checks"] else 0,
        "key_bytes_a_row": sum(counts[name]["key_bytes"] for name in CLASSES) / max(1, rows),
        "frames": counts["frames"] / steps,
        "parts": counts["parts"] / steps,
        "round_trips": counts["round_trips"] / steps,
        "reads_that_waited": result["reads_that_waited"] / steps,
        "writes_that_waited": result["writes_that_waited"] / steps,
        "staleness": result["staleness"],
        "bounds": result["bounds"],
        "allowed": missed_at_most({**result, **dataclasses.asdict(run)}),
        "seconds": result["seconds"],
        "memory_mb": result["memory_mb"],
    }
    if baseline is not None:
        before, by = baseline["counts"], baseline["staleness"]["reads"] / result["staleness"]["reads"]
        if run.placed:  # which also lowers the unique ids of a batch: compared by equal samples
            by = baseline["steps"] * run.baseline().workers / steps
        figures["rows_saved"] = 1 - by * rows / sum(before[name]["rows"] for name in CLASSES)
        figures["bytes_saved"] = 1 - by * size / (before["bytes_in"] + before["bytes_out"])
    return figures


def keep_others(result: dict[str, Any], before: dict[str, Any]) -> None:
    """Adds to `result` the sweeps of `before` that it lacks, if both are of the same stream."""
    if any(before[name] != result[name] for name in ("samples", "seed", "batch")):
        raise SystemExit("the JSON is of another stream: run all sweeps, or give another --out")
    result["sweeps"] = before["sweeps"] | result["sweeps"]
    names = ("stream", "samples", "dim", "optimizer")
    known = [[run[name] for name in names] for run in result["baselines"]]
    result["baselines"] += [run for run in before["baselines"] if [run[name] for name in names] not in known]


def main() -> None:
    """Runs the sweeps and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer points, 65,536 samples; half a minute")
    parser.add_argument(
        "--only", nargs="+", metavar="SWEEP", help="these sweeps; of the others the JSON is kept"
    )
    parser.add_argument("--samples", type=int, help="of the Criteo-like stream; default 524,288")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="runs at a time")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="default build/release/traffic")
    parser.add_argument("--out", type=Path, help="the JSON file")
    arguments = parser.parse_args()
    program = arguments.program
    if not program.exists():
        raise SystemExit(f"{program} is missing; run `make benchmark-tools`, or give --program")
    name = "traffic_quick.json" if arguments.quick else "result.json"
    out = arguments.out or (PLACE if arguments.quick else Path(__file__).parent) / name
    samples = arguments.samples or (65_536 if arguments.quick else 524_288)
    if samples % 16 or samples < 32_768:
        raise SystemExit(f"--samples is {samples}; give a multiple of 16 of at least 32,768")
    begin = time.monotonic()

    of = sweeps(samples, arguments.quick)
    unknown = set(arguments.only or ()) - set(of)
    if unknown:
        raise SystemExit(f"--only: there is no sweep {sorted(unknown)}; give some of {list(of)}")
    of = {name: runs for name, runs in of.items() if name in (arguments.only or of)}
    runs = all_runs(of)
    paths = {}
    base = Run("criteo_scaled", samples)
    for source in dict.fromkeys(run.source for run in [base, *runs]):
        stream, count, placement = source
        paths[source] = make_stream(PLACE, stream, count, SEED, placement)
    version = f"{hashlib.sha256(program.read_bytes()).hexdigest()} {FORMAT} {SEED}"
    results = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        waiting = {pool.submit(measure, run, paths[run.source], program, version): run for run in runs}
        for done in concurrent.futures.as_completed(waiting):
            run = waiting[done]
            results[run] = done.result()
            print(f"{len(results)}/{len(runs)} {time.monotonic() - begin:.0f} s {run}", flush=True)

    result: dict[str, Any] = {
        "command": "python benchmarks/traffic/run.py" + (" --quick" if arguments.quick else ""),
        "samples": samples,
        "seed": SEED,
        "batch": BATCH,
        "baselines": [summary(run, results[run], results[run]) for run in runs if run == run.baseline()],
        "sweeps": {
            name: [summary(run, results[run], results.get(run.baseline())) for run in sweep]
            for name, sweep in of.items()
        },
    }
    if arguments.only and out.exists():
        keep_others(result, json.loads(out.read_text()))
    result["goals"] = goals(result)
    report.finish(result, out, __file__)


if __name__ == "__main__":
    main()
