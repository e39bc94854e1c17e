"""How long does it take from a click to a served row, and what does it cost?

    python benchmarks/publishing/run.py [--rows N] [--rate R] [--seconds S] [--out FILE]

One machine: a parameter server, a trainer, `het serve follow`, and a process that serves the SavedModel. The
trainer ticks `rate` random rows of N a second, in 20 steps a second, with `Cache(push_max_age=0.3)`. A tenth
of them are probes: their gradient was applied at a time t, and a serving process looks them up until the new
value is there. Another process asks the parameter server for the same probes, which divides the delay into
the way to the server and the way from there. All times are CLOCK_BOOTTIME of the machine. Each watcher looks
every few milliseconds, which is part of the figures.

Bytes are the server's own counts (`INFO`). Then no row changes for a while: the cost of a poll. Then requests
with a new version twice a second, and without, in turns. Last, all rows change while the follower is stopped:
the time to catch up, beside an export of the same table and its load.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import report

DIM, STEPS, PROBES, TABLE = 16, 20, 0.1, "item"
MAX_AGE, POLL = 0.3, 0.1
PATIENCE = 20.0  # seconds until a probe counts as lost
CHUNK = 1 << 17
HET = Path(sys.executable).with_name("het")


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def model_of(server: str, push_max_age: float | None) -> tuple[Any, Any]:
    """The trained model, and its layer: rows that begin at 0, and count the ticks in their first float."""
    import tensorflow as tf

    import het_tf

    het_tf.init(ps=server)
    inputs = tf.keras.Input((), dtype="int64", name="id")
    cache = het_tf.Cache(rows=1 << 20, push_max_age=push_max_age)
    layer = het_tf.keras.Embedding(
        DIM, name=TABLE, optimizer=het_tf.optimizers.SGD(1.0), cache=cache,
        initializer=het_tf.initializers.Zeros(),
    )  # fmt: skip
    rows = layer(inputs)
    outputs = {"rows": rows, "score": tf.keras.layers.Dense(1)(rows)}
    return tf.keras.Model(inputs, outputs), layer


# --- the processes ----------------------------------------------------------------------------------------


def trainer(server: str, orders: Any, answers: Any, probes: list[Any], rows: int) -> None:
    """Carries out orders: (name, arguments) -> an answer."""
    import numpy as np
    import tensorflow as tf

    import het_tf

    model, layer = model_of(server, MAX_AGE)
    table = het_tf.Table(TABLE)
    counts = np.zeros(rows, np.float32)
    rng = np.random.default_rng(1)

    def fill(value: float) -> None:
        for start in range(0, rows, CHUNK):
            ids = np.arange(start, min(start + CHUNK, rows))
            table.assign(ids, np.full((len(ids), DIM), value, np.float32))
        counts[:] = value

    def export(path: str, follow: bool) -> float:
        how = het_tf.serving.Follow(server, max_age=5.0) if follow else None
        begin = now()
        het_tf.export(model, path, het_tf.serving.Native(follow=how), verbose=False)
        if not follow:
            loaded = tf.saved_model.load(path)
            loaded.signatures["serving_default"](id=tf.constant([0], tf.int64))
        return now() - begin

    @tf.function
    def step(ids: Any) -> None:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_sum(layer(ids)[:, 0])
        variables = layer.trainable_variables
        het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))

    def train(seconds: float, rate: int) -> dict[str, float]:
        each = max(1, rate // STEPS)
        changed: set[int] = set()
        begin = now()
        steps = int(seconds * STEPS)
        for number in range(steps):
            time.sleep(max(0.0, begin + number / STEPS - now()))
            ids = rng.choice(rows, each, replace=False)
            step(tf.constant(ids))
            applied = now()
            counts[ids] += 1
            changed.update(ids.tolist())
            some = ids[: max(1, int(each * PROBES))]
            for one in probes:
                one.put([(int(key), float(counts[key]), applied) for key in some])
        return {"seconds": now() - begin, "distinct_rows": len(changed), "rows": steps * each}

    def publish() -> int:
        # Other dense weights each time: equal ones are not stored again.
        model.layers[-1].kernel.assign_add(tf.ones_like(model.layers[-1].kernel))
        return het_tf.publish(model).number

    known = {"fill": fill, "export": export, "train": train, "publish": publish}
    answers.put("ready")
    for name, arguments in iter(orders.get, None):
        answers.put(known[name](*arguments))


def watcher(read_of: Any, probes: Any, delays: Any, stop: Any) -> None:
    """Reads rows of pending probes until they have the value, and returns the delays when it stops."""
    read = read_of()
    pending: dict[int, list[tuple[float, float]]] = {}
    took: list[float] = []
    delays.put("ready")
    end = float("inf")
    while not (stop.is_set() and probes.empty() and not pending) and now() < end:
        if stop.is_set() and end == float("inf"):
            end = now() + PATIENCE
        with contextlib.suppress(queue.Empty):
            while True:
                for key, value, applied in probes.get_nowait():
                    pending.setdefault(key, []).append((value, applied))
        if pending:
            keys = list(pending)
            values = read(keys)
            seen = now()
            for key, value in zip(keys, values, strict=True):
                waiting = pending[key]
                took += [seen - applied for wanted, applied in waiting if value >= wanted]
                pending[key] = [one for one in waiting if value < one[0]]
                if not pending[key]:
                    del pending[key]
        time.sleep(0.004)
    delays.put((took, sum(map(len, pending.values()))))


class Served:
    """Reads by the SavedModel."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        import tensorflow as tf

        import het_tf.keras  # noqa: F401

        loaded = tf.saved_model.load(self.path)
        serve = loaded.signatures["serving_default"]
        self.loaded = loaded
        return lambda keys: serve(id=tf.constant(keys, tf.int64))["rows"][:, 0].numpy()


class Stored:
    """Reads at the parameter server."""

    def __init__(self, server: str) -> None:
        self.server = server

    def __call__(self) -> Any:
        model_of(self.server, None)
        import het_tf

        table = het_tf.Table(TABLE)
        return lambda keys: table.lookup(keys, stored=True)[:, 0]


def requests(path: str, seconds: float, answers: Any, go: Any) -> None:
    """Sends requests for so many seconds, each time that it is told; answers the wall times."""
    import numpy as np
    import tensorflow as tf

    import het_tf.keras  # noqa: F401

    loaded = tf.saved_model.load(path)
    serve = loaded.signatures["serving_default"]
    rng = np.random.default_rng(2)
    ids = [tf.constant(rng.integers(0, 1 << 20, 256)) for _ in range(64)]
    for one in ids:
        serve(id=one)
    answers.put("ready")
    while go.get():
        took = []
        end = now() + seconds
        number = 0
        while now() < end:
            begin = time.perf_counter()
            serve(id=ids[number % 64])
            took.append(time.perf_counter() - begin)
            number += 1
        answers.put(took)


# --- what is measured -------------------------------------------------------------------------------------


class Bench:
    """The processes of one run."""

    def __init__(self, server: Any, rows: int, directory: Path) -> None:
        from het_tf.ext.ps.python import address as addresses
        from het_tf.ext.ps.python.node import Node

        self.server, self.rows = server.address, rows
        self.path = str(directory / "model")
        self.node = Node.of(addresses.parse(self.server))
        self.context = multiprocessing.get_context("spawn")
        self.orders, self.answers = self.context.Queue(), self.context.Queue()
        self.probes = [self.context.Queue(), self.context.Queue()]
        self.trainer = self.context.Process(
            target=trainer, args=(self.server, self.orders, self.answers, self.probes, rows), daemon=True
        )
        self.trainer.start()
        self.answer()

    def order(self, name: str, *arguments: Any) -> Any:
        self.orders.put((name, arguments))
        return self.answer()

    def answer(self) -> Any:
        while True:
            try:
                return self.answers.get(timeout=1)
            except queue.Empty:
                if not self.trainer.is_alive():
                    raise RuntimeError("the trainer has ended") from None

    def info(self) -> dict[str, int]:
        info = self.node.info("het", "stats")
        return {
            "pages": int(info["het_changes_pages"]),
            "chunk_bytes": int(info["het_changes_bytes"]),
            "net": int(info["total_net_input_bytes"]) + int(info["total_net_output_bytes"]),
        }

    def since(self, before: dict[str, int]) -> dict[str, int]:
        return {name: value - before[name] for name, value in self.info().items()}

    @contextlib.contextmanager
    def follower(self) -> Iterator[None]:
        self.following = process = subprocess.Popen([HET, "serve", "follow", self.path, "--poll", str(POLL)])
        try:
            while subprocess.run([HET, "serve", "status", self.path], capture_output=True).returncode != 0:
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait()


def quantiles(seconds: list[float], lost: int) -> dict[str, float]:
    if lost:
        raise RuntimeError(f"{lost} updates did not come, beside {len(seconds)}")
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"probes": len(ordered), "p50_s": at(0.5), "p99_s": at(0.99), "most_s": ordered[-1]}


def click_to_served(bench: Bench, seconds: float, rate: int) -> dict[str, Any]:
    stop = bench.context.Event()
    watchers = []
    for name, read_of, probes in (
        ("served", Served(bench.path), bench.probes[0]),
        ("stored", Stored(bench.server), bench.probes[1]),
    ):
        delays = bench.context.Queue()
        process = bench.context.Process(target=watcher, args=(read_of, probes, delays, stop), daemon=True)
        process.start()
        watchers.append((name, delays, process))
    for _, delays, _ in watchers:
        delays.get()
    before = bench.info()
    trained = bench.order("train", seconds, rate)
    stop.set()
    found = {name: quantiles(*delays.get()) for name, delays, _ in watchers}
    spent = bench.since(before)
    for _, _, process in watchers:
        process.join()
    rows_bytes = trained["distinct_rows"] * (DIM * 4 + 8)
    return {
        "rate": trained["rows"] / trained["seconds"],
        "delays": [
            {"from": "the update at the worker", "to": "the served row", **found["served"]},
            {"from": "the update at the worker", "to": "the row at the server", **found["stored"]},
        ],
        "feed": {
            "distinct_rows": trained["distinct_rows"],
            "chunk_bytes": spent["chunk_bytes"],
            "of_rows": spent["chunk_bytes"] / rows_bytes,
        },
    }


def idle(bench: Bench, seconds: float) -> dict[str, float]:
    time.sleep(1)
    before = bench.info()
    time.sleep(seconds)
    spent = bench.since(before)
    return {"polls": spent["pages"], "bytes_a_poll": spent["net"] / max(1, spent["pages"])}


def catch_up(bench: Bench, directory: Path, turns: int) -> dict[str, float]:
    """While the follower is stopped, all rows change; then it goes on."""
    from het_tf.ext.serving.python.following import live, target

    followed = target.read(Path(bench.path))
    follow, export = [], []
    for turn in range(turns):
        process = bench.following
        process.send_signal(signal.SIGSTOP)
        bench.order("fill", 1e6 + turn)
        begin = now()
        process.send_signal(signal.SIGCONT)
        # Every partition has completed a scan that began after `begin`.
        while (age := live.read(followed).age) is None or age > now() - begin:
            time.sleep(0.005)
        follow.append(now() - begin)
        path = str(directory / f"again{turn}")
        export.append(bench.order("export", path, False))
        shutil.rmtree(path)
    follow_s, export_s = statistics.median(follow), statistics.median(export)
    return {
        "rows": bench.rows,
        "follow_s": follow_s,
        "export_s": export_s,
        "of_export": statistics.median(f / e for f, e in zip(follow, export, strict=True)),
    }


def flips(bench: Bench, seconds: float, turns: int) -> dict[str, Any]:
    answers, go = bench.context.Queue(), bench.context.Queue()
    process = bench.context.Process(target=requests, args=(bench.path, seconds, answers, go), daemon=True)
    process.start()
    answers.get()
    took: dict[bool, list[float]] = {False: [], True: []}
    versions = 0
    for turn in range(2 * turns):
        flipping = turn % 2 == 1
        go.put(True)
        end = now() + seconds
        while flipping and now() < end - 0.5:
            bench.order("publish")
            versions += 1
            time.sleep(0.5)
        took[flipping] += answers.get()
    go.put(False)
    process.join()
    tail = {flipping: sorted(of)[int(0.999 * len(of))] for flipping, of in took.items()}
    return {
        "versions": versions,
        "requests": len(took[True]),
        "p999_without_s": tail[False],
        "p999_with_s": tail[True],
        "added_s": tail[True] - tail[False],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2000, help="changed rows a second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import het_tf
    from het_tf.ext.ps.python.redis_server import LocalServer

    with tempfile.TemporaryDirectory() as name, LocalServer.start() as server:
        directory = Path(name)
        bench = Bench(server, options.rows, directory)
        bench.order("fill", 0.0)
        bench.order("export", bench.path, True)
        with bench.follower():
            result = click_to_served(bench, options.seconds, options.rate)
            result["idle"] = idle(bench, 5)
            result["flips"] = flips(bench, 5, options.turns)
            result["catch_up"] = catch_up(bench, directory, options.turns)
        bench.orders.put(None)
        bench.trainer.join()
    served = result["delays"][0]
    result["goals"] = [
        report.goal("click to served row, p99, s", served["p99_s"], "<=", 1.0),
        report.goal("click to served row, p50, s", served["p50_s"], "<=", 0.4),
        report.goal("feed bytes of distinct changed rows x (row + 8)", result["feed"]["of_rows"], "<=", 1.2),
        report.goal("bytes of a poll of an idle partition", result["idle"]["bytes_a_poll"], "<=", 200),
        report.goal(
            "catching up, over exporting the table and loading it", result["catch_up"]["of_export"], "<=", 1.0
        ),
        report.goal("added to a request by versions, p99.9, s", result["flips"]["added_s"], "<=", 0.001),
    ]
    result["setting"] = {"rows": options.rows, "dim": DIM, "push_max_age": MAX_AGE, "poll": POLL}
    result["machine"] = report.machine()
    result["versions"] = {"het_tf": het_tf.__version__}
    result["command"] = "python benchmarks/publishing/run.py"
    report.finish(result, options.out, __file__)


if __name__ == "__main__":
    main()
