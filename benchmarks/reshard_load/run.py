"""What does `het ps reshard --by load` do for shards of which one has most of the work?

    python benchmarks/reshard_load/run.py [--seconds S] [--out FILE]

Four shards with as many partitions each, and two worker processes that train all the while; how many of their
ids lie in a partition follows Zipf's law by its number, so that the first shard has most. Measured are
the shards' busy time (`INFO het`, `busy_us`) over S seconds, the slowest one's beside the mean: as the
servers came up, after `het ps reshard` (which counts partitions) and after `het ps reshard --by load`. The
workers' steps are counted in the S seconds before that move, while it goes on, and in those behind it; and
every update is looked for at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/lib")]

from het_ckpt_lib import partition

import het_tf
from benchmarks import report
from het_tf.ext.checkpoint.python.row_files import place_of
from het_tf.ext.ps.python import layout
from het_tf.ext.ps.python.errors import ServerError
from het_tf.python import cli

SHARDS, PARTITIONS, DIM = 4, 64, 16
POOL = 8192  # rows of each partition
BATCH = 4096
# Partition p has rows of TABLES[p % 8], and of no other one.
_NAMES = {place_of(name, PARTITIONS)["first"]: name for name in map("rows{}".format, range(100))}
TABLES = [_NAMES[first] for first in range(8)]
LIMIT = 1.1
WINDOW = 0.25  # seconds, of the slowest of which the dip is


def layer() -> het_tf.keras.EmbeddingCollection:
    sgd = het_tf.optimizers.SGD(1.0)
    tables = [het_tf.TableConfig(name, DIM, sgd, initializer="zeros") for name in TABLES]
    features = {table.name: het_tf.FeatureConfig(table) for table in tables}
    return het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(rows=0, wire="float32"))


def work(address: str, directory: Path, seed: int) -> None:
    """Trains until DIRECTORY/stop is there: the time of each step, and how often each row was updated."""
    import tensorflow as tf

    het_tf.init(ps=address)
    embed, rng = layer(), np.random.default_rng(seed)
    pools = np.load(directory / "pools.npy")
    weights = 1 / np.arange(1, PARTITIONS + 1)
    count, times = np.zeros((len(TABLES), int(pools.max()) + 1), np.int64), []
    while not (directory / "stop").exists():
        partition = rng.choice(PARTITIONS, BATCH, p=weights / weights.sum())
        keys, of = pools[partition, rng.integers(0, POOL, BATCH)], partition % len(TABLES)
        ids = {name: tf.constant(keys[of == i]) for i, name in enumerate(TABLES)}
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(rows) for rows in embed(ids, training=True).values()])
        het_tf.apply(
            zip(tape.gradient(loss, embed.trainable_variables), embed.trainable_variables, strict=True)
        )
        np.add.at(count, (of, keys), 1)
        times.append(time.monotonic())
        (directory / f"ready-{seed}").touch()
    het_tf.flush()
    np.savez(directory / f"done-{seed}", times=times, count=count)


def free_port(directory: Path) -> int:
    for port in range(12000, 20000, 2 * SHARDS):
        with contextlib.suppress(ServerError):
            layout.check_ports(asked := layout.Layout(directory, SHARDS, port=port), asked.members)
            return port
    raise SystemExit("no free ports from 12000 to 20000")


def busy(servers: layout.Layout, seconds: float) -> float:
    """The busy time of the slowest shard in the next seconds, beside the mean."""

    def look() -> np.ndarray:
        return np.array([int(servers.node(m).info("het")["het_busy_us"]) for m in servers.members])

    before = look()
    time.sleep(seconds)
    took = look() - before
    print("  busy time beside the mean:", (took / took.mean()).round(2), file=sys.stderr)
    return float(took.max() / took.mean())


def het_ps(*words: object) -> None:
    assert cli.main(["ps", *map(str, words)]) == 0, words


def steps_in(times: np.ndarray, begin: float, end: float) -> float:
    return float(((times >= begin) & (times < end)).sum() / (end - begin))


def measure(directory: Path, seconds: float) -> dict:
    port = free_port(directory / "ps")
    het_ps("up", "--dir", directory / "ps", "--shards", SHARDS, "--port", port, "--appendfsync", "no")
    servers = layout.need(directory / "ps")
    workers = []
    try:
        address = servers.address().url()
        het_tf.init(ps=address)
        tables = layer()
        node = servers.node(servers.members[0])
        stat = node.ask("HET.STAT", node.ask("KEYS", "het::*")[0])
        seed = int(dict(zip(stat[::2], stat[1::2], strict=True))["hash_seed"])
        ids = np.arange(2 * POOL * 8)
        of = [
            np.array([partition(key, table, PARTITIONS, seed) for key in range(len(ids))]) for table in TABLES
        ]
        pools = [ids[of[p % len(TABLES)] == p][:POOL] for p in range(PARTITIONS)]
        np.save(directory / "pools.npy", np.stack(pools))
        command = [sys.executable, __file__, "--worker", address, str(directory)]
        workers = [subprocess.Popen([*command, str(seed)]) for seed in (1, 2)]
        while len([*directory.glob("ready-*")]) < 2:
            assert all(worker.poll() is None for worker in workers), "a worker ended before its first step"
            time.sleep(0.1)
        time.sleep(seconds)  # until all rows are there
        shares = {"at first": busy(servers, seconds)}
        het_ps("reshard", "--ps", address)
        shares["by count"] = busy(servers, seconds)
        called = time.monotonic()
        het_ps("reshard", "--ps", address, "--by", "load", "--interval", seconds)
        moving, moved = called + seconds, time.monotonic()
        shares["by load"] = busy(servers, seconds)
        later = time.monotonic()
        (directory / "stop").touch()
        failed = sum(worker.wait(120) != 0 for worker in workers)
        done = [np.load(directory / f"done-{seed}.npz") for seed in (1, 2)]
        times, count = np.concatenate([one["times"] for one in done]), sum(one["count"] for one in done)
        keys = np.arange(count.shape[1])
        lost = sum(
            int((het_tf.Table(name).lookup(keys)[:, 0] != -of).sum())
            for name, of in zip(TABLES, count, strict=True)
        )
        rate = steps_in(times, called, moving)
        windows = [steps_in(times, at, at + WINDOW) for at in np.arange(moving, moved, WINDOW / 5)]
        del tables
        return {
            "slowest_over_mean": shares,
            "move_seconds": moved - moving,
            "rows": int((count > 0).sum()),
            "rows_that_are_off": lost,
            "workers_that_failed": failed,
            "steps_per_second": rate,
            "steps_while_moving": steps_in(times, moving, moved) / rate,
            "slowest_window_while_moving": min(windows) / rate,
            "steps_after": steps_in(times, moved, later) / rate,
        }
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
        het_tf.reset()
        het_tf.init(ps="")
        cli.main(["ps", "down", "--dir", str(directory / "ps"), "--no-save", "--force"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        address, directory, seed = arguments.worker
        return work(address, Path(directory), int(seed))
    with tempfile.TemporaryDirectory() as directory:
        measured = measure(Path(directory), arguments.seconds)
    shares = measured["slowest_over_mean"]
    steps = {"by count": 1.0, "by load": measured["steps_after"]}
    off, failed = measured["rows_that_are_off"], measured["workers_that_failed"]
    result = {
        "command": "python benchmarks/reshard_load/run.py",
        "measured": measured,
        "layouts": [
            {"slots lie": name, "slowest_over_mean": shares[of], "steps": steps.get(of)}
            for name, of in (("as they came up", "at first"), ("by count",) * 2, ("by load",) * 2)
        ],
        "goals": [
            report.goal("slowest shard over the mean, by load", shares["by load"], "<=", LIMIT),
            report.goal("rows with a lost or doubled update", off, "<=", 0),
            report.goal("workers that failed", failed, "<=", 0),
        ],
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
