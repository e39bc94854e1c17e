"""How much of the wait for a far server does het_tf.prefetch hide?

    python benchmarks/prefetch.py [--latency MS] [--compute MS] [--steps N] [--repeats K] [--out FILE]

A redis-server with the module behind a relay that holds every byte back, so that a round trip takes at
least `latency`. A worker trains batches of 256 samples x 26 ids of a Zipf stream, 16 floats a row, with a
cache of a tenth of the rows; between lookup and gradient it sleeps for `compute`, as a worker does whose
dense part runs on an accelerator. The same steps with the prefetch and without take turns; the figure is
the median of a step's time beyond `compute`, which is what the worker waits.

With staleness None a lookup whose rows are all there asks nothing. With a finite one it still asks the server
whether they are fresh, one round trip, whoever fetched them: there only the transfer of the rows is hidden,
unless the rows are checked ahead, too.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks/local"), str(ROOT / "tests/python/lib")]

SAMPLES, FEATURES, DIM, ROWS = 256, 26, 16, 100_000
WARM = 20  # steps that are not counted
# staleness, whether rows are checked ahead, and whether all batches are the same, so that all rows are cached
SETTINGS = (
    (None, False, False),
    (100, False, False),
    (100, True, False),
    (0, False, False),
    (100, False, True),
    (100, True, True),
)


def carry(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Hands bytes on, each after `seconds`."""
    waiting: deque[tuple[float, bytes]] = deque()
    there = threading.Condition()

    def deliver() -> None:
        while True:
            with there:
                there.wait_for(lambda: waiting)
                due, data = waiting.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    threading.Thread(target=deliver, daemon=True).start()
    while True:
        data = source.recv(1 << 18)
        with there:
            waiting.append((time.monotonic() + seconds, data))
            there.notify()
        if not data:
            return


def relay(path: str, round_trip: float) -> None:
    """Prints its port and carries connections to the Unix socket `path` until it is killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        for pair in ((client, server), (server, client)):
            threading.Thread(target=carry, args=(*pair, round_trip / 2), daemon=True).start()


def steps(
    address: str, staleness: int | None, same: bool, prefetched: dict | None, compute: float, count: int
) -> dict:
    """Milliseconds of each counted step beyond `compute`, and the cache's counters.

    `prefetched` is what het_tf.prefetch is given beyond the dataset and the layer; None: there is none.
    """
    import tensorflow as tf
    import workload

    import het_tf

    het_tf.reset()
    het_tf.init(ps=address, threads=1)
    name = f"t{time.monotonic_ns()}"
    layer = het_tf.keras.Embedding(
        DIM,
        name=name,
        cache=het_tf.Cache(staleness=staleness, rows=ROWS // 10, wire="float32"),
        optimizer=het_tf.optimizers.SGD(0.1),
    )
    ids = workload.zipf_ids((WARM + count) * SAMPLES * FEATURES, ROWS, seed=1)
    dataset = tf.data.Dataset.from_tensor_slices(ids.reshape(-1, FEATURES)).batch(SAMPLES)
    if same:
        dataset = dataset.take(1).repeat(WARM + count)
    if prefetched is None:
        dataset = dataset.prefetch(1)
    else:
        dataset = het_tf.prefetch(dataset, layer, **prefetched)
    times = []
    for x in dataset:
        start = time.perf_counter()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, training=True))
            time.sleep(compute)
        tape.gradient(loss, layer.trainable_variables)
        times.append((time.perf_counter() - start - compute) * 1e3)
    return {"ms": times[WARM:], "cache": het_tf.table(name).stats()["cache"]}


def measure(address: str, arguments: argparse.Namespace) -> list[dict]:
    runs = []
    for staleness, check_ahead, same in SETTINGS:
        found: dict[bool, list[dict]] = {False: [], True: []}
        for _ in range(arguments.repeats):
            for on in (False, True):
                prefetched = {"check_ahead": check_ahead} if on else None
                found[on].append(
                    steps(address, staleness, same, prefetched, arguments.compute / 1e3, arguments.steps)
                )
        waits = {on: statistics.median(ms for run in of for ms in run["ms"]) for on, of in found.items()}
        cache = found[True][-1]["cache"]
        runs.append({
            "staleness": staleness,
            "check_ahead": check_ahead,
            "same": same,
            "without_ms": waits[False],
            "with_ms": waits[True],
            "ratio": waits[False] / waits[True],
            "fetched_ahead": cache["prefetched"] / max(1, cache["miss_pull"]),
            "unused": cache["prefetch_unused"] / max(1, cache["prefetched"]),
        })  # fmt: skip
    return runs


def table(runs: list[dict]) -> list[str]:
    """Lines of Markdown."""
    lines = [
        "| staleness | wait a step without | with | ratio | missing rows fetched ahead | fetched in vain |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for run in runs:
        staleness = "unbounded" if run["staleness"] is None else run["staleness"]
        staleness = f"{staleness}, checked ahead" if run["check_ahead"] else staleness
        staleness = f"{staleness}, all rows cached" if run["same"] else staleness
        fetched = "-" if run["same"] else f"{run['fetched_ahead']:.0%}"
        lines.append(
            f"| {staleness} | {run['without_ms']:.2f} ms | {run['with_ms']:.2f} ms | {run['ratio']:.2f} "
            f"| {fetched} | {run['unused']:.1%} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--latency", type=float, default=1.0, help="round trip, milliseconds")
    parser.add_argument("--compute", type=float, default=25.0, help="of a step, milliseconds")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/prefetch.json")
    parser.add_argument("--relay", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.relay:
        return relay(arguments.relay, arguments.latency / 1e3)

    import redis_lib
    import tensorflow as tf
    from ps_throughput import processor

    if redis_lib.missing():
        sys.exit(redis_lib.missing())
    with (
        tempfile.TemporaryDirectory() as directory,
        redis_lib.running(Path(directory)) as server,
        subprocess.Popen(
            [sys.executable, __file__, "--relay", str(server.socket), "--latency", str(arguments.latency)],
            stdout=subprocess.PIPE,
            text=True,
        ) as between,
    ):
        try:
            assert between.stdout is not None
            runs = measure(f"redis://127.0.0.1:{int(between.stdout.readline())}", arguments)
        finally:
            redis_lib.leave()
            between.kill()
    result = {
        "command": "python benchmarks/prefetch.py " + " ".join(sys.argv[1:]),
        "settings": {"latency_ms": arguments.latency, "compute_ms": arguments.compute},
        "runs": runs,
        "table": table(runs),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "load_after": os.getloadavg()[0]},
        "versions": {"tensorflow": tf.__version__},
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(result["table"]))


if __name__ == "__main__":
    main()
