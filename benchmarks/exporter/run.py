"""What does `het ps exporter` cost a job?

    python benchmarks/exporter/run.py [--seconds S] [--quick] [--out FILE]

Four servers of `het ps up`, and a process that trains 26 tables with caches. Copies of its report stand for
eight ranks. The exporter is the command in a process of its own; Prometheus is this program, which asks
every 15 seconds. Measured are a scrape, from the request to the last byte; the exporter's CPU time; and of
the worker the time and the bytes of a report, beside what its caches send and receive meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/lib")]

import het_ps_lib
import redis_lib
import tensorflow as tf

import het_tf
from benchmarks import report
from het_tf.ext.ps.python import address, layout, reports
from het_tf.ext.ps.python.client import Client
from het_tf.python.session import reporting

TABLES, RANKS, SHARDS, DIM, BATCH = 26, 8, 4, 16, 512
keras = tf.keras


def train(url: str, seconds: float) -> dict[str, float]:
    """Trains; returns bytes of the caches and CPU time of reports a second, and the bytes of a report."""
    het_tf.init(ps=url)
    features = {
        f"f{n}": het_tf.FeatureConfig(
            het_tf.TableConfig(f"table_{n:02}", DIM, het_tf.optimizers.Adagrad(0.1))
        )
        for n in range(TABLES)
    }
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in features}
    rows = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(rows=20_000))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(list(rows.values()))))
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    batches = [
        ({name: rng.zipf(1.2, BATCH) % 100_000 for name in features}, rng.normal(size=(BATCH, 1)))
        for _ in range(50)
    ]
    begin, steps = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        for ids, labels in batches:
            model.train_on_batch(ids, labels)
            steps += 1
    taken = time.monotonic() - begin
    told = reporting.report()[""]
    moved = sum(
        table["cache"].get(f"{kind}_bytes_{way}", 0)
        for table in told["tables"].values()
        for kind in ("row", "metadata")
        for way in ("in", "out")
    )
    used = time.process_time()  # of all threads: nothing else runs now
    for _ in range(20):
        reporting._reporter.write()
    used = (time.process_time() - used) / 20
    phases = sum(sum(phase["counts"]) for phase in told["phases"].values())
    size = len(reports.packed(told))
    return {
        "steps_per_second": steps / taken,
        "phases_per_step": phases / steps,
        "cache_bytes_per_second": moved / taken,
        "report_bytes": size,
        "report_ms": 1000 * used,
        "report_share_of_a_core": used / reports.EVERY,
        "report_share_of_bytes": size / reports.EVERY / (moved / taken),
    }


def copy_to_ranks(url: str) -> None:
    """Leaves the report of this process for eight ranks."""
    with Client(address.parse(url)) as client:
        told = reporting.report()[""]
        for rank in range(RANKS):
            key = reports.key("", "workers", rank)
            text = reports.packed({**told, "rank": rank, "size": RANKS})
            client.ask(key, "SET", key, text, "EX", reports.KEEP)
    reporting.stop()


def cpu_seconds(process: int) -> float:
    """User and system time of a process."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def scrape(url: str) -> tuple[float, bytes]:
    """Milliseconds of a scrape, and its text."""
    begin = time.perf_counter()
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        body = answer.read()
    return 1000 * (time.perf_counter() - begin), body


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Measures everything at servers of a directory."""
    with het_ps_lib.up(directory, "--shards", SHARDS, "--port", het_ps_lib.free_ports(SHARDS)):
        url = layout.need(directory).address().url()
        worker = train(url, seconds)
        copy_to_ranks(url)
        port = redis_lib.free_port()
        command = [
            sys.executable,
            "-m",
            "het_tf",
            "ps",
            "exporter",
            "--ps",
            url,
            "--listen",
            f"127.0.0.1:{port}",
        ]
        with subprocess.Popen(command, cwd=ROOT) as exporter:
            try:
                return {**worker, **watch(exporter.pid, f"http://127.0.0.1:{port}", seconds)}
            finally:
                exporter.terminate()


def watch(process: int, url: str, seconds: float) -> dict[str, float]:
    """Scrapes 30 times at once, then every 15 seconds."""
    for _ in range(600):
        try:
            scrape(url)
            break
        except OSError:
            time.sleep(0.1)
    scrapes = [scrape(url) for _ in range(30)]
    used, begin = cpu_seconds(process), time.monotonic()
    while time.monotonic() - begin < max(seconds, 10):
        time.sleep(min(15, max(seconds, 10)))
        scrape(url)
    share = (cpu_seconds(process) - used) / (time.monotonic() - begin)
    times = sorted(milliseconds for milliseconds, _ in scrapes)
    return {
        "scrape_ms": statistics.median(times),
        "slowest_scrape_ms": times[-1],
        "scrape_bytes": len(scrapes[0][1]),
        "samples": sum(not line.startswith(b"#") for line in scrapes[0][1].splitlines()),
        "exporter_share_of_a_core": share,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part")
    parser.add_argument("--quick", action="store_true", help="two seconds each")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measured = measure(Path(directory) / "servers", 2.0 if arguments.quick else arguments.seconds)
    result = {
        "command": "python benchmarks/exporter/run.py",
        "measured": measured,
        "machine": report.machine(),
        "goals": [
            report.goal("milliseconds of a scrape", measured["scrape_ms"], "<=", 50),
            report.goal("the exporter, of a core", measured["exporter_share_of_a_core"], "<=", 0.005),
            report.goal("reports, of a worker's core", measured["report_share_of_a_core"], "<=", 0.005),
            report.goal("reports, of a worker's bytes", measured["report_share_of_bytes"], "<=", 0.005),
        ],
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
