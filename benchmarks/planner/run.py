"""How wrong is het plan? Its forecast beside real jobs, and its step time beside the cells of slow_link.

    make benchmark-tools
    python benchmarks/planner/run.py [--only jobs cells profile show] [--out FILE]

jobs: a stream is profiled, `het plan show` divides the caches and forecasts, and ranks under horovodrun then
run the same stream with that plan at a real server: criteo_like, movielens and the graph. cells: the time of
a step in every cell of the results of slow_link, which ran earlier and know nothing of het plan: the form of
the sum in cost.py was chosen on Wide & Deep's, the other models' are a test. profile: samples a second and
memory of a pass. show: seconds of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import report
from benchmarks.planner.streams import STREAMS, Tables, recorded
from het_tf.ext.ps.python import redis_server
from het_tf.ext.sizing.python import cost
from het_tf.ext.sizing.python.forecast import Request, forecast, thinned
from het_tf.ext.sizing.python.profile import Profiler
from het_tf.ext.sizing.python.replay import Job, Sample, replay, traffic
from het_tf.ext.sizing.python.stats import Stats
from het_tf.python.table.config import FeatureConfig, TableConfig

PLACE = ROOT / "build/traffic"
DIM, BATCH, WORKERS = 16, 128, 2
CHUNK = 8192
BYTES = ("row_bytes_in", "row_bytes_out", "metadata_bytes_in", "metadata_bytes_out")
WITHIN = {"bytes": 0.1, "server_bytes": 0.1, "hit_rate": 0.02, "step": 0.25}

Figures = dict[str, Any]


def profile(tables: Tables, out: Path) -> Stats:
    """One pass over a stream."""
    features = {name: FeatureConfig(TableConfig(name, DIM)) for name in tables}
    profiler = Profiler(features, "stream")
    samples = len(next(iter(tables.values())))
    for begin in range(0, samples, CHUNK):
        profiler.add({name: ids[begin : begin + CHUNK] for name, ids in tables.items()})
    profiler.finish(out)
    return Stats.load(out)


def ranks(stream: Path, rows: dict[str, int], address: str, warm: int) -> Figures:
    """Runs the stream, and returns what rank 0 says."""
    job = {"ps": address, "stream": str(stream), "dim": DIM, "batch": BATCH, "rows": rows, "warm": warm}
    python = Path(sys.executable)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                   "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}  # fmt: skip
    launcher = [str(python.with_name("horovodrun")), "-np", str(WORKERS), "-H", f"localhost:{WORKERS}"]
    worker = [str(python), str(ROOT / "benchmarks/planner/worker.py"), json.dumps(job)]
    command = [*launcher, "--gloo", *worker]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = re.search(r"RESULT (\{.*\})", done.stdout)
    if found is None:
        raise RuntimeError(f"the ranks failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return dict(json.loads(found[1]))


def one_job(name: str) -> Figures:
    """A stream: forecast and run."""
    make, samples = STREAMS[name]
    tables = make(PLACE, samples)
    with (
        tempfile.TemporaryDirectory(prefix="het_plan_") as folder,
        redis_server.LocalServer.start(unix=True) as server,
    ):
        place = Path(folder)
        np.savez(place / "stream.npz", **tables)
        begin = time.monotonic()
        made = forecast(profile(tables, place / "stats"), Request(job=Job(workers=WORKERS, batch=BATCH)))
        seconds = time.monotonic() - begin
        rows = {table["name"]: table["cache_rows"] for table in made["tables"]}
        steps = samples // (WORKERS * BATCH)
        found = ranks(place / "stream.npz", rows, server.address, steps // 2)
        turns = found["steps"] * WORKERS
        counted = {
            field: sum(of[field] for of in found["tables"].values()) for field in (*BYTES, "hits", "reads")
        }
        observed = {
            "bytes": sum(counted[field] for field in BYTES) / turns,
            "hit_rate": counted["hits"] / counted["reads"],
            "server_bytes": found["server_bytes"],
        }
    said = {name: made["forecast"][name] for name in ("bytes", "hit_rate", "server_bytes")}
    error = {key: said[key] / observed[key] - 1 for key in said}
    print(f"{name}: {error}", flush=True)
    return {"samples": samples, "tables": len(tables), "forecast": said, "observed": observed,
            "error": error, "not_filled": made["not_filled"], "seconds": seconds}  # fmt: skip


# --- cells of slow_link


def systems(rows: int) -> dict[str, Figures]:
    """The caches of slow_link.py."""

    def het(bound: int) -> Figures:
        return {"pull_bound": bound, "push_bound": bound, "wire": "float32", "checks": "asked", "rows": rows}

    return {
        "no cache": {"staleness": 0, "rows": 0},
        "s=10": het(10), "s=100": het(100),
        "default": {"rows": rows}, "adagrad": {"rows": rows},
    }  # fmt: skip


def whole_sample(name: str) -> tuple[Sample, int]:
    """The stream of a model of slow_link.py as it begins, and how many rows it has in all."""
    ids = recorded(PLACE, name, 524_288)
    rows = len(np.unique(ids))
    part = ids[:131_072]
    at = np.repeat(np.arange(len(part)), part.shape[1])
    return thinned(Sample(part.ravel(), at, len(part), 1), 900_000, len(part)), rows


def cells() -> list[Figures]:
    """Every cell of a system of het_tf: seconds of a step, forecast and observed."""
    samples = {name: whole_sample(name) for name in ("criteo_scaled", "graph")}
    byte_seconds = cost.byte_seconds()
    result = report.load("slow_link")
    job = Job(workers=result["workers"], batch=BATCH)
    replayed: dict[tuple[str, str], Any] = {}

    def made(model: str, system: str) -> Any:
        key = (model, system)
        if key not in replayed:
            sample, rows = samples["graph" if model == "graphsage" else "criteo_scaled"]
            dims = (128,) if model == "graphsage" else (128, 1)  # the first order of Wide & Deep
            cache = systems(round(0.1 * rows))[system]
            adagrad = {"name": "row_wise_adagrad", "params": {"decay_steps": 1}}
            rule = adagrad if system == "adagrad" else {"name": "sgd"}
            specs = [{"name": f"t{dim}", "dim": dim, "optimizer": rule} for dim in dims]
            tables = [replay(sample, spec, cache, job) for spec in specs]
            replayed[key] = (tables, traffic(tables, job))
        return replayed[key]

    found = []
    for model, of_model in result["models"].items():
        for setting in of_model["settings"].values():
            local = setting["systems"].get("local", {}).get("step", setting["compute"])
            compute = local if setting["dense"] else setting["compute"]
            machine = cost.Machine(
                rate=setting["rate"],
                round_trip=0.0,
                compute=compute,
                byte_seconds=byte_seconds,
            )
            for system, of in setting["systems"].items():
                if system in ("local", "allgather"):
                    continue
                tables, moved = made(model, system)
                step = cost.step_time(moved, tables, job, machine, early=False)
                found.append({"workers": result["workers"], "model": model, "system": system,
                              "rate": setting["rate"], "dense": setting["dense"],
                              "observed": of["step"], "forecast": step.seconds,
                              "bound": step.bound})  # fmt: skip
    return found


def summary(of: list[Figures]) -> Figures:
    """Returns how many cells are within the limit, and the median and the largest error."""
    errors = [abs(cell["forecast"] / cell["observed"] - 1) for cell in of]
    return {"cells": len(of), "within": sum(error <= WITHIN["step"] for error in errors) / len(errors),
            "median": statistics.median(errors), "worst": max(errors)}  # fmt: skip


def rate_of_profile() -> Figures:
    """Samples a second of CPU time, from ids in memory, and the memory of the process that only profiles."""
    code = (
        "import re, sys, time, numpy as np\n"
        "from het_tf import FeatureConfig, TableConfig\n"
        "from het_tf.ext.sizing.python.profile import Profiler\n"
        "rng, fields, chunk = np.random.default_rng(1), 26, 8192\n"
        "blocks = [{f'C{f}': rng.zipf(1.2, chunk) % 5_000_000 for f in range(fields)} for _ in range(8)]\n"
        "profiler = Profiler({name: FeatureConfig(TableConfig(name, 16)) for name in blocks[0]}, 'memory')\n"
        "begin = time.process_time()\n"
        "for turn in range(128): profiler.add(blocks[turn % 8])\n"
        "profiler.finish(sys.argv[1])\n"
        "print(128 * chunk / (time.process_time() - begin),"
        " int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, f"{folder}/stats"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    rate, memory = map(float, done.stdout.split())
    print(f"profile: {rate:,.0f} samples a second, {memory:.0f} MB", flush=True)
    return {"samples_a_second": rate, "memory_mb": memory}


def time_of_show() -> Figures:
    """Seconds of the command on the profile of criteo_like."""
    make, samples = STREAMS["criteo_like"]
    with tempfile.TemporaryDirectory() as folder:
        profile(make(PLACE, samples), Path(folder) / "stats")
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [
            sys.executable,
            "-m",
            "het_tf",
            "plan",
            "show",
            f"{folder}/stats",
            "--batch",
            "128",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"show: {time.monotonic() - begin:.1f} s, {cpu:.1f} s of CPU", flush=True)
    return {"seconds": time.monotonic() - begin, "cpu_seconds": cpu}


def main() -> None:
    parts = ("jobs", "cells", "profile", "show")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=parts, default=parts, metavar="PART", help=", ".join(parts)
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args()
    result: Figures = json.loads(options.out.read_text()) if options.out.exists() else {}
    result |= {"command": "python benchmarks/planner/run.py", "within": WITHIN}
    if "jobs" in options.only:
        result["jobs"] = {name: one_job(name) for name in STREAMS}
    if "cells" in options.only:
        result["cells"] = cells()
        of_model = {f"{model}, {workers} workers": summary([cell for cell in result["cells"] if
                    (cell["model"], cell["workers"]) == (model, workers)]) for model, workers in
                    dict.fromkeys((cell["model"], cell["workers"]) for cell in result["cells"])}  # fmt: skip
        result["cells_by_model"] = of_model
        of_model["all"] = summary(result["cells"])
    if "profile" in options.only:
        result["profile"] = rate_of_profile()
    if "show" in options.only:
        result["show"] = time_of_show()
    report.finish(result, options.out, __file__)


if __name__ == "__main__":
    main()
