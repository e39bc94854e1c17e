"""How fast do rows travel between a worker and the parameter server, beside a minimal raw-TCP server?

    make benchmark-tools
    python benchmarks/ps_throughput/run.py [--rounds K] [--dims 16 64 128] [--out FILE]

Pull and push of 50,000 rows of 16, 64 and 128 floats, and of 1,000 rows, through our transport to a Redis
server with the module, over TCP on loopback, plain and under TLS, and over a Unix socket. The peer is a
server of 200 lines over the same partitions (raw_server.cc), which does nothing else. All take
turns; a ratio is the median over the rounds of the raw server's time over ours, both of the same round; under
TLS, that of plain TCP's time. The servers run on one processor and the client on another: else the ratios of
small requests depend on where the kernel wakes the processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report
from het_tf._version import __version__
from het_tf.ext.ps.python import programs, redis_server, tls

PROGRAM = ROOT / "build/release/ps_throughput"
RAW = "raw TCP"
# name -> whose time is compared with whose
RATIOS = {
    "Redis TCP": ("Redis TCP", RAW),
    "Redis Unix": ("Redis Unix", RAW),
    "Redis Unix of raw Unix": ("Redis Unix", "raw Unix"),
    "Redis TLS of Redis TCP": ("Redis TLS", "Redis TCP"),
}
# (goal, what is measured, ratio, at least)
GOALS = [
    ("pull of 50,000 rows over TCP, of raw TCP", "pull", "Redis TCP", 0.95),
    ("push of 50,000 rows over TCP, of raw TCP", "push", "Redis TCP", 0.8),
    ("pull of 50,000 rows over a Unix socket, of raw TCP", "pull", "Redis Unix", 0.95),
    ("push of 50,000 rows over a Unix socket, of raw TCP", "push", "Redis Unix", 0.95),
    ("pull of 1,000 rows of 64 partitions, of raw TCP", "small pull, 64 partitions", "Redis TCP", 0.95),
    ("pull of 1,000 rows of 1 partition, of raw TCP", "small pull, 1 partition", "Redis TCP", 0.95),
    (
        "push of 1,000 rows, of raw TCP (a latency of at most twice its)",
        "small push, 64 partitions",
        "Redis TCP",
        0.5,
    ),
    ("pull of 50,000 rows under TLS, of plain TCP", "pull", "Redis TLS of Redis TCP", 0.5),
    ("push of 50,000 rows under TLS, of plain TCP", "push", "Redis TLS of Redis TCP", 0.5),
]


def compare(dim: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """{system: {what: [seconds of each]}}."""
    with tempfile.TemporaryDirectory(prefix="het_bench_") as place:
        socket, port = f"{place}/redis.sock", redis_server.free_port()
        tls.make_certificates(Path(place), "127.0.0.1")
        files = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
        settings = {"unixsocket": socket, "tls-port": str(port), "tls-auth-clients": "no"}
        settings |= {f"tls-{name}-file": f"{place}/{file}" for name, file in files.items()}
        with redis_server.LocalServer.start(settings=settings) as server:
            os.sched_setaffinity(server.pid, {(os.cpu_count() or 1) - 1})  # as the raw servers
            command = [PROGRAM, "--redis", server.address, "--redis-unix", f"unix://{socket}", "--dir", place]
            command += ["--redis-tls", f"rediss://127.0.0.1:{port}?ca={place}/ca.crt"]
            done = subprocess.run(
                [*map(str, command), "--dim", str(dim), "--rounds", str(rounds)],
                check=True, capture_output=True, text=True, timeout=900,
            )  # fmt: skip
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each dim, default 30")
    parser.add_argument("--dims", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        parser.error(f"{PROGRAM.relative_to(ROOT)} is missing; run `make benchmark-tools`")

    result: dict = {
        "command": "python benchmarks/ps_throughput/run.py",
        "versions": {"het_tf": f"het_tf {__version__}", "server": server_version()},
        "dims": {},
    }
    for dim in arguments.dims:
        measured = compare(dim, arguments.rounds)
        of_dim: dict = {}
        for what in measured[RAW]:
            median = {system: statistics.median(times[what]) for system, times in measured.items()}

            def ratio(system: str, peer: str, what: str = what, measured: dict = measured) -> float:
                pairs = zip(measured[peer][what], measured[system][what], strict=True)
                return statistics.median(raw / ours for raw, ours in pairs)

            ratios = {name: ratio(*pair) for name, pair in RATIOS.items()}
            best = {system: min(times[what]) for system, times in measured.items()}
            of_dim[what] = {"median_seconds": median, "best_seconds": best, "ratios": ratios}
        result["dims"][dim] = of_dim
    first = result["dims"][arguments.dims[0]]
    result["goals"] = [
        report.goal(name, first[what]["ratios"][of], ">=", limit) for name, what, of, limit in GOALS
    ]
    result["machine"] = report.machine()
    report.finish(result, arguments.out, __file__)


def server_version() -> str:
    done = subprocess.run([programs.find_server(), "--version"], check=True, capture_output=True, text=True)
    return " ".join(done.stdout.split()[:3])


if __name__ == "__main__":
    main()
