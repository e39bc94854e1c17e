"""What does one step cost for each looked-up row, beside TensorFlow's own ops, Keras, TFRA and FBGEMM?

    python benchmarks/local_step/run.py [--quick] [--peers DIR] [--out FILE]

A step is 26 x 4096 ids from a Zipf distribution (exponent 1.05) on one table whose rows all exist, popular
ids scattered over it: 1e6 rows of 16 floats, and 1e7 rows of 64. Measured are the lookup alone, and the
lookup with its gradient and the optimizer. Each system runs in a process of its own, TFRA and FBGEMM in the
environments that tools/peers.sh makes (left out where there are none). het_tf is measured against one peer
at a time, in turns of a fraction of a second, so that the noise of the machine hits both; a ratio is the
median of the turns' ratios.

CPU time is that of all threads of the process. Two threads are compared with one by the best wall time of
each: on a machine that others use, the median says more about them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.local_step import workload

DIRECT, CACHED, RAW, KERAS, TFRA, FBGEMM = (
    "het_tf", "het_tf, cache", "raw TF ops", "Keras", "TFRA cuckoo", "FBGEMM TBE",
)  # fmt: skip
SCALING, MEMORY = "two threads", "memory"  # het_tf against itself; every system alone
ENVIRONMENT = {TFRA: "tfra", FBGEMM: "fbgemm"}  # of tools/peers.sh; the others use this Python
OPTIMIZERS = {
    DIRECT: ("sgd", "adagrad", "row_wise_adagrad"),
    CACHED: ("sgd", "adagrad", "row_wise_adagrad"),
    RAW: ("sgd", "adagrad", "row_wise_adagrad"),
    KERAS: ("sgd", "adagrad"),
    TFRA: ("sgd", "adagrad"),
    FBGEMM: ("sgd", "adagrad", "row_wise_adagrad"),
}
TINY = (1000, 64)
SIZES = {"small": (1_000_000, 16), "large": (10_000_000, 64)}
TURN_SECONDS = 0.3

# (numerator, denominator, what, limit): the median ratio must be at most the limit.
GOALS = [
    (DIRECT, RAW, "lookup", 1.3),
    (DIRECT, RAW, "train", 1.0),
    (DIRECT, TFRA, "lookup", 0.5),
    (DIRECT, TFRA, "train", 0.5),
    (CACHED, DIRECT, "lookup", 1.5),
    (CACHED, DIRECT, "train", 1.5),
]
GOAL_THREADS = 1.7  # times as fast with two threads, at least
GOAL_MEMORY = 1.15  # times rows and slots, at most


class Worker:
    """One system in a process of its own (worker.py)."""

    def __init__(self, system: str, size: str, optimizer: str, threads: int, peers: Path) -> None:
        self.system = system
        python = peers / ENVIRONMENT[system] / "bin/python" if system in ENVIRONMENT else Path(sys.executable)
        rows, dim = TINY if size == "tiny" else SIZES[size]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
        if system == TFRA:
            environment["TF_USE_LEGACY_KERAS"] = "1"
        command = [python, HERE / "worker.py", system, rows, dim, optimizer, threads]
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ready = self._read()
        self.steps = {"lookup": 1, "train": 1}

    def _read(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with code {self._process.wait()}")
        return json.loads(line)

    def run(self, what: str, steps: int) -> dict:
        self._process.stdin.write(f"{what} {steps}\n")
        self._process.stdin.flush()
        return self._read()

    def warm_up(self, whats: list[str]) -> None:
        """Every step of the pool once, which fills caches and slots, and finds the steps of a turn."""
        for what in reversed(whats):
            self.run(what, 1)
            count = 1 if self.system == KERAS else workload.POOL  # O(table): one pass would take minutes
            self.run(what, count)
            last = self.run(what, count)
            self.steps[what] = max(1, min(2 * workload.POOL, round(TURN_SECONDS * count / last["seconds"])))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def workers(
    specs: dict[str, tuple[str, int]], size: str, optimizer: str, peers: Path
) -> Iterator[dict[str, Worker]]:
    """Started workers by label; specs has for each label the system and its threads."""
    started: dict[str, Worker] = {}
    try:
        for label, (system, threads) in specs.items():
            started[label] = Worker(system, size, optimizer, threads, peers)
        yield started
    finally:
        for worker in started.values():
            worker.close()


def measure(running: dict[str, Worker], whats: list[str], rounds: int) -> dict[str, dict[str, list[dict]]]:
    """{label: {what: turns}}: the workers take turns, in every other round in the opposite order."""
    for worker in running.values():
        worker.warm_up(whats)
    turns: dict = {label: {what: [] for what in whats} for label in running}
    for number in range(rounds):
        for what in whats:
            for label in sorted(running, reverse=bool(number % 2)):
                turns[label][what].append(running[label].run(what, running[label].steps[what]))
    return turns


def median(turns: list[dict], field: str) -> float:
    return statistics.median(turn[field] for turn in turns)


def ratio(above: list[dict], below: list[dict]) -> float:
    return statistics.median(a["cpu_ns"] / b["cpu_ns"] for a, b in zip(above, below, strict=True))


def run_pair(
    peer: str, size: str, optimizer: str, threads: int, rounds: int, peers: Path, result: dict
) -> None:
    """het_tf and one peer, turn by turn."""
    whats = ["lookup", "train"] if optimizer == "sgd" else ["train"]
    if peer == KERAS:  # its lookups are another thing once an update was made
        for what in whats:
            run_turns(peer, size, optimizer, threads, [what], 3, peers, result)
    else:
        run_turns(peer, size, optimizer, threads, whats, rounds, peers, result)


def run_turns(
    peer: str,
    size: str,
    optimizer: str,
    threads: int,
    whats: list[str],
    rounds: int,
    peers: Path,
    result: dict,
) -> None:
    specs = {DIRECT: (DIRECT, threads), peer: (peer, threads)}
    with workers(specs, size, optimizer, peers) as running:
        turns = measure(running, whats, rounds)
        for system, worker in running.items():
            result["versions"][system] = worker.ready["version"]
    for what in whats:
        name = what if what == "lookup" else optimizer
        here, there = turns[DIRECT][what], turns[peer][what]
        figure = {"size": size, "threads": threads, "step": name, "against": peer, "turns": len(here)}
        for side, of in (("het_tf", here), ("peer", there)):
            figure[side] = {
                "cpu_ns": median(of, "cpu_ns"),
                "wall_ns": median(of, "wall_ns"),
                "best_cpu_ns": min(turn["cpu_ns"] for turn in of),
                "best_wall_ns": min(turn["wall_ns"] for turn in of),
            }
        figure["ratio"] = ratio(here, there)
        result["figures"].append(figure)
        print(
            f"  {size} {threads} thread(s) {name:17}{peer:14}het_tf {figure['het_tf']['cpu_ns']:6.1f}"
            f"  peer {figure['peer']['cpu_ns']:7.1f} ns of CPU a row, ratio {figure['ratio']:5.2f}",
            flush=True,
        )


def run_scaling(size: str, optimizer: str, rounds: int, peers: Path, result: dict) -> None:
    """het_tf with one thread and with two, turn by turn."""
    whats = ["lookup", "train"] if optimizer == "sgd" else ["train"]
    with workers({"1": (DIRECT, 1), "2": (DIRECT, 2)}, size, optimizer, peers) as running:
        turns = measure(running, whats, 2 * rounds)
    for what in whats:
        one, two = ([turn["wall_ns"] for turn in turns[label][what]] for label in "12")
        entry = {
            "size": size,
            "step": what if what == "lookup" else optimizer,
            "best": min(one) / min(two),
            "median": statistics.median(a / b for a, b in zip(one, two, strict=True)),
            "turns": len(one),
        }
        result["two_threads"].append(entry)
        print(
            f"  {size} two threads {entry['step']:17}{entry['best']:5.2f} times as fast as one"
            f" (median {entry['median']:.2f})",
            flush=True,
        )


def run_memory(system: str, optimizer: str, peers: Path, result: dict) -> None:
    """Resident bytes of the large table, over those of its rows and slots.

    What the process takes with a table of 1,000 rows is subtracted: the runtime, and the benchmark itself.
    """
    resident = {}
    for size in ("tiny", "large"):
        with workers({system: (system, 1)}, size, optimizer, peers) as running:
            resident[size] = running[system].ready["rss"]
    rows, dim = SIZES["large"]
    slots = {"sgd": 0, "adagrad": dim, "row_wise_adagrad": 1}[optimizer]
    ratio = (resident["large"] - resident["tiny"]) / (4 * rows * (dim + slots))
    result["memory"].setdefault(optimizer, {})[system] = ratio
    print(f"  large {optimizer:17}{system:14}{ratio:.3f} of rows and slots", flush=True)


def goals(result: dict) -> list[dict]:
    """Each goal with what was measured."""
    lines = []

    def add(name: str, size: str, threads: int, *of: Any) -> None:
        words = f"{name}, {size}, {threads} thread{'s' * (threads > 1)}"
        lines.append(report.goal(words, *of))

    for figure in result["figures"]:
        what = "lookup" if figure["step"] == "lookup" else "train"
        for above, below, of, limit in GOALS:
            if of != what or figure["against"] not in (above, below):
                continue
            value = figure["ratio"] if above == DIRECT else 1 / figure["ratio"]
            add(f"{above} / {below}, {figure['step']}", figure["size"], figure["threads"], value, "<=", limit)
    for entry in result["two_threads"]:
        add(f"two threads over one, {entry['step']}", entry["size"], 2, entry["best"], ">=", GOAL_THREADS)
    for optimizer, by_system in result["memory"].items():
        add(f"memory over rows and slots, {optimizer}", "large", 1, by_system[DIRECT], "<=", GOAL_MEMORY)
    return lines


def save(result: dict, out: Path) -> None:
    """Adds what follows from the figures, and writes the file: also after each part of a long run."""
    result["machine"] |= report.machine()
    result["goals"] = goals(result)
    report.write(result, out)


def command(arguments: argparse.Namespace) -> str:
    words = ["python benchmarks/local_step/run.py"]
    words += ["--quick"] if arguments.quick else []
    words += ["--rounds", str(arguments.rounds)] if arguments.rounds else []
    words += ["--only", *map(repr, arguments.only)] if arguments.only else []
    return " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1e6 rows of 16 floats, few turns")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, help="turns of each system (default 7, quick: 4)")
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers", help="made by tools/peers.sh")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[CACHED, RAW, KERAS, TFRA, FBGEMM, SCALING, MEMORY],
        help="measure against these, and keep what the JSON file has of the others",
    )
    parser.add_argument("--out", type=Path, default=HERE / "result.json", help="the JSON file")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (4 if arguments.quick else 7)
    sizes = ["small"] if arguments.quick else arguments.sizes

    only = arguments.only or [*OPTIMIZERS, SCALING, MEMORY]
    available = list(OPTIMIZERS)
    for system, name in ENVIRONMENT.items():
        if not (arguments.peers / name / "bin/python").exists():
            print(f"{system} is left out: no environment {arguments.peers / name}; run tools/peers.sh")
            available.remove(system)
    systems = [system for system in available if system != DIRECT and system in only]
    result: dict = {
        "command": command(arguments),
        "machine": {"load_before": os.getloadavg()[0]},
        "workload": {"ids_a_step": workload.IDS, "zipf": workload.EXPONENT, "different_steps": workload.POOL},
        "versions": {},
        "figures": [],
        "two_threads": [],
        "memory": {},
    }
    if arguments.only and arguments.out.exists():
        before = json.loads(arguments.out.read_text())
        result["command"] = f"{before['command']}; {result['command']}"
        result["versions"], result["memory"] = before["versions"], before["memory"]
        result["figures"] = [
            f for f in before["figures"] if f["against"] not in only or f["size"] not in sizes
        ]
        result["two_threads"] = [
            e for e in before["two_threads"] if SCALING not in only or e["size"] not in sizes
        ]
    for size in sizes:
        for optimizer in OPTIMIZERS[DIRECT]:
            for threads in (1, 2):
                for peer in systems:
                    # Two threads show nothing new of other optimizers, nor of what costs O(table).
                    if threads == 2 and (optimizer != "sgd" or peer == KERAS):
                        continue
                    # Keras's Adagrad takes several copies of the table: more than 16 GB.
                    if peer == KERAS and (size, optimizer) == ("large", "adagrad"):
                        continue
                    if optimizer in OPTIMIZERS[peer]:
                        run_pair(peer, size, optimizer, threads, rounds, arguments.peers, result)
            if SCALING in only:
                run_scaling(size, optimizer, rounds, arguments.peers, result)
            save(result, arguments.out)
    if MEMORY in only and "large" in sizes:
        result["memory"] = {}
        for optimizer in OPTIMIZERS[DIRECT]:
            for system in available:
                if system != CACHED and optimizer in OPTIMIZERS[system]:
                    run_memory(system, optimizer, arguments.peers, result)
    save(result, arguments.out)
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
