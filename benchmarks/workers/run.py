"""What do the connections of het_tf's ranks cost beside Horovod's?

    python benchmarks/workers/run.py [--rounds N] [--steps N] [--kills N] [--out FILE]

Two ranks under horovodrun have their mesh beside Horovod, so both work in the same two processes, in
turns on the same tensors: an all-reduce of dense gradients of 1 kB to 10 MB, and steps of a model with 26
fields. Figures are medians over rounds. Then a rank of three is killed, and what is measured is the time
until the others have failed with its number in their error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/lib")]

from benchmarks import report

SIZES = {"1 kB": 250, "100 kB": 25_000, "1 MB": 250_000, "10 MB": 2_500_000}
TENSORS = 10  # that an all-reduce has
SAMPLES, FIELDS, NUMBERS = 256, 26, 13


def play(out: Path, rounds: int, steps: int) -> None:
    """One rank: measures both in turns; rank 0 writes."""
    import numpy as np
    import tensorflow as tf

    import het_tf
    from het_tf.ext.workers.python.mesh_tensors import TensorMesh
    from het_tf.python.session import collective, settings

    het_tf.init()
    horovod = settings.workers()
    mesh: Any = object.__new__(TensorMesh)  # the same connections; it averages by itself
    mesh.__dict__.update(horovod.__dict__)
    both = {"horovod": horovod, "het_tf": mesh}

    def seconds(call: Any, times: int) -> float:
        collective.barrier()
        begin = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - begin) / times

    exchanges = []
    for name, floats in SIZES.items():
        values = [tf.random.normal([floats // TENSORS]) for _ in range(TENSORS)]

        def reduce(workers: Any, values: Any = values, name: str = name) -> Any:
            step = tf.function(lambda: workers.mean(values, f"benchmark.{name.replace(' ', '')}"))
            return lambda: step()[0].numpy()

        calls = {kind: reduce(workers) for kind, workers in both.items()}
        taken: dict[str, list[float]] = {kind: [] for kind in both}
        for turn in range(rounds + 2):
            for kind, call in calls.items():
                mean = seconds(call, 5)
                if turn >= 2:
                    taken[kind].append(mean)
        exchanges.append({"size": name, **ratio(taken)})

    rng = np.random.default_rng(horovod.rank)
    ids = {f"C{i}": rng.zipf(1.2, 40 * SAMPLES) % 100_000 for i in range(1, FIELDS + 1)}
    dense = {f"I{i}": rng.random(40 * SAMPLES, np.float32) for i in range(1, NUMBERS + 1)}
    data = tf.data.Dataset.from_tensor_slices(({**ids, **dense}, rng.integers(0, 2, 40 * SAMPLES)))
    data = data.batch(SAMPLES).cache().repeat()
    models: dict[str, Any] = {}
    for kind, workers in both.items():
        settings.current.workers = workers
        tf.keras.utils.set_random_seed(1)
        with het_tf.namespace(kind):
            inputs = {
                **{name: tf.keras.Input((), dtype="int64", name=name) for name in ids},
                **{name: tf.keras.Input((), name=name) for name in dense},
            }
            table = het_tf.TableConfig("fields", 16)
            rows = het_tf.keras.EmbeddingCollection({name: het_tf.FeatureConfig(table) for name in ids})(
                {name: inputs[name] for name in ids}
            )
            numbers = tf.keras.ops.stack([inputs[name] for name in dense], axis=1)
            hidden = tf.keras.layers.Concatenate()([*rows.values(), numbers])
            for width in (256, 128):
                hidden = tf.keras.layers.Dense(width, "relu")(hidden)
            model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
        het_tf.workers.distribute(model)
        model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True))
        models[kind] = model

    taken = {kind: [] for kind in both}
    for turn in range(rounds + 1):
        for kind, model in models.items():
            settings.current.workers = both[kind]
            batches = iter(data)  # `fit` itself exchanges before and after
            each = []
            for _ in range(steps):
                x, y = next(batches)
                begin = time.perf_counter()
                model.train_on_batch(x, y)
                each.append(time.perf_counter() - begin)
            if turn:
                taken[kind].append(statistics.median(each))
    if horovod.rank == 0:
        out.write_text(json.dumps({"exchanges": exchanges, "steps": [ratio(taken)]}))


def ratio(taken: dict[str, list[float]]) -> dict[str, float]:
    """Medians in milliseconds, and the median of the rounds' ratios with its quartiles."""
    ratios = [ours / theirs for ours, theirs in zip(taken["het_tf"], taken["horovod"], strict=True)]
    first, middle, third = statistics.quantiles(ratios, n=4)
    return {
        **{f"{kind}_ms": 1e3 * statistics.median(values) for kind, values in taken.items()},
        "ratio": middle,
        "ratio_first_quartile": first,
        "ratio_third_quartile": third,
    }


def kills(server: str, runs: int) -> None:
    """Prints for each run the seconds from the kill of rank 1 of three to the others' errors, which name it.

    The ranks are forks of this process, which has imported TensorFlow and used nothing of it.
    """
    import tensorflow as tf

    import het_tf
    from het_tf.python.session import settings

    def rank_of(run: int, rank: int, out: int) -> None:
        os.environ |= {
            "HET_PS": server,
            "HET_RANK": str(rank),
            "HET_WORLD_SIZE": "3",
            "HET_RUN_ID": f"kill{run}",
        }
        het_tf.init()
        workers = settings.workers()
        workers.sum(tf.ones([1000]), "step")
        os.write(out, b"ready\n")
        try:
            while True:
                workers.sum(tf.ones([1000]), "step")
        except tf.errors.UnavailableError as error:
            os.write(out, f"{'rank 1 is lost' in str(error)} {time.time()}\n".encode())

    for run in range(runs):
        ranks = []
        for rank in range(3):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                rank_of(run, rank, writing)
                os._exit(0)
            os.close(writing)
            ranks.append((child, os.fdopen(reading)))
        for _, said in ranks:
            assert said.readline() == "ready\n"
        time.sleep(0.037 * (run % 5))
        begin = time.time()
        os.kill(ranks[1][0], signal.SIGKILL)
        others = [said.readline().split() for _, said in (ranks[0], ranks[2])]
        for child, said in ranks:
            os.waitpid(child, 0)
            said.close()
        seconds = max(float(at) for _, at in others) - begin
        print(json.dumps({"seconds": seconds, "named": all(one == "True" for one, _ in others)}), flush=True)


def main() -> None:
    import ranks
    import redis_lib

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (default %(default)s)")
    parser.add_argument("--steps", type=int, default=40, help="steps of a turn (default %(default)s)")
    parser.add_argument("--kills", type=int, default=50, help="ranks to kill (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kills-at", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        play(arguments.play, arguments.rounds, arguments.steps)
        return
    if arguments.kills_at:
        kills(arguments.kills_at, arguments.kills)
        return
    if ranks.missing():
        sys.exit(ranks.missing())
    with tempfile.TemporaryDirectory() as directory:
        played = Path(directory) / "played.json"
        done = ranks.launch(
            __file__, "--play", played, "--rounds", arguments.rounds, "--steps", arguments.steps,
            HOROVOD_CYCLE_TIME="1",
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stdout)
        result: dict[str, Any] = json.loads(played.read_text())
        with redis_lib.running(Path(directory)) as server:
            words = [sys.executable, __file__, "--kills-at", server.address, "--kills", str(arguments.kills)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            lost = [json.loads(line) for line in done.stdout.splitlines()]
            redis_lib.leave()
    result["kills"] = [
        {
            "kills": len(lost),
            "named": sum(one["named"] for one in lost),
            "seconds_median": statistics.median(one["seconds"] for one in lost),
            "seconds_most": max(one["seconds"] for one in lost),
        }
    ]
    result["goals"] = [
        report.goal("step of two ranks, of Horovod's", result["steps"][0]["ratio"], "<=", 1.1),
        report.goal("all-reduce of 10 MB, of Horovod's", result["exchanges"][-1]["ratio"], "<=", 1.5),
        report.goal("kills that all others name", result["kills"][0]["named"], ">=", len(lost)),
        report.goal(
            "seconds from a kill to the error of the others", result["kills"][0]["seconds_most"], "<=", 5
        ),
    ]
    import tensorflow as tf

    result |= {
        "command": " ".join(["python benchmarks/workers/run.py", *sys.argv[1:]]),
        "machine": report.machine(),
        "versions": {"tensorflow": tf.__version__},
    }
    report.finish(result, arguments.out, __file__)


if __name__ == "__main__":
    main()
