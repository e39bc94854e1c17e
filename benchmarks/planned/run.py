"""How much of the wait for a far server does het_tf.lookahead hide?

    python benchmarks/planned/run.py [--latency MS] [--compute MS] [--steps N] [--repeats K] [--out FILE]

A redis-server with the module behind a relay that holds every byte back, so that a round trip takes at
least `latency`. A worker trains batches of 256 samples x 26 ids of a Zipf stream, 16 floats a row, with a
cache of a tenth of the rows; between lookup and gradient it sleeps for `compute`, as a worker does whose
dense part runs on an accelerator. Planned steps and others take turns. Figures are medians: of the lookup as
TensorFlow sees it, and of the step beyond `compute`.
"""

from __future__ import annotations

import argparse
import math
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
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/lib")]

from benchmarks import report
from benchmarks.local_step import workload

SAMPLES, FEATURES, DIM, ROWS = 256, 26, 16, 100_000
WARM = 20  # steps that are not counted
# arguments of het_tf.Cache by name; and whether all batches are the same, so that all rows are cached
SETTINGS = {
    "default": ({}, False),
    "unbounded": ({"staleness": math.inf}, False),
    "default, all rows cached": ({}, True),
    "0": ({"staleness": 0}, False),
}


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


def steps(address: str, cache: dict, same: bool, planned: bool, compute: float, count: int) -> dict:
    """Milliseconds of each counted lookup, and of each step beyond `compute`; how many were planned."""
    import tensorflow as tf

    import het_tf

    het_tf.reset()
    het_tf.init(ps=address, threads=1)
    name = f"t{time.monotonic_ns()}"
    layer = het_tf.keras.Embedding(DIM, name=name, cache=het_tf.Cache(rows=ROWS // 10, **cache))
    ids = workload.zipf_ids((WARM + count) * SAMPLES * FEATURES, ROWS, seed=1)
    dataset = tf.data.Dataset.from_tensor_slices(ids.reshape(-1, FEATURES)).batch(SAMPLES)
    if same:
        dataset = dataset.take(1).repeat(WARM + count)
    lookups, times = [], []
    for x in het_tf.lookahead(dataset, layer) if planned else dataset.prefetch(32):
        start = time.perf_counter()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, training=True))
            lookups.append((time.perf_counter() - start) * 1e3)
            time.sleep(compute)
        het_tf.apply(
            zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True)
        )
        times.append((time.perf_counter() - start - compute) * 1e3)
    return {"lookup": lookups[WARM:], "step": times[WARM:], "planned": het_tf.Table(name).stats()["planned"]}


def measure(address: str, arguments: argparse.Namespace) -> list[dict]:
    runs = []
    for staleness, (cache, same) in SETTINGS.items():
        found: dict[bool, list[dict]] = {False: [], True: []}
        for _ in range(arguments.repeats):
            for planned in (False, True):
                found[planned].append(
                    steps(address, cache, same, planned, arguments.compute / 1e3, arguments.steps)
                )
        run: dict = {"staleness": staleness}
        for planned, name in ((False, "without"), (True, "planned")):
            for what in ("lookup", "step"):
                run[f"{what}_ms_{name}"] = statistics.median(ms for one in found[planned] for ms in one[what])
        run["share_planned"] = found[True][-1]["planned"] / (WARM + arguments.steps)
        runs.append(run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--latency", type=float, default=1.0, help="round trip, milliseconds")
    parser.add_argument("--compute", type=float, default=25.0, help="of a step, milliseconds")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    parser.add_argument("--relay", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.relay:
        return relay(arguments.relay, arguments.latency / 1e3)

    import redis_lib
    import tensorflow as tf

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
        "command": " ".join(["python benchmarks/planned/run.py", *sys.argv[1:]]),
        "settings": {"latency_ms": arguments.latency, "compute_ms": arguments.compute},
        "runs": runs,
        "machine": report.machine(),
        "versions": {"tensorflow": tf.__version__},
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
