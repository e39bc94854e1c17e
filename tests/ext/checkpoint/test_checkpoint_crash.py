"""A process killed during a save leaves only complete checkpoints.

What is saved with step n is the number n, in every value of the table and in every dense weight: a checkpoint
that is not of one moment shows.
"""

import os
import random
import re
import signal
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
import ranks
import tensorflow as tf

import het_tf
from het_tf import checkpoint

ROUNDS = max(6, int(20 * float(os.environ.get("HET_TEST_SCALE", "1"))))
ROWS, DIM = 30_000, 4
SEEN = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "shutil.rmtree",
        "fcntl.flock")  # fmt: skip
CHOSEN = [
    "manifest.json x",  # before the manifest is written
    "os.rename .tmp-ckpt-",  # before a checkpoint has its name
    "os.rename ckpt-",  # after that, and before an old one is removed
    "os.remove",  # while one is removed
]


def numbers(number):
    """Ids of the table: every 7th row is gone, another 7th each time."""
    return np.delete(np.arange(ROWS), np.s_[number % 7 :: 7])


def die_at(point, directory):
    """Ends this process: at the first event with a text in it, at the k-th event, or after some seconds."""
    seen = []

    def end(what):
        os.write(1, f"killed {what}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def hook(event, arguments):
        # Files of a tree that is removed are named without their directory.
        if event in SEEN and (event in ("os.remove", "os.rmdir") or directory in str(arguments[0])):
            what = f"{event} {' '.join(str(one).replace(directory + '/', '') for one in arguments[:2])}"
            seen.append(what)
            if len(seen) == point or (isinstance(point, str) and point in what):
                end(what)

    if isinstance(point, float):
        timer = threading.Timer(point, end, ["time"])
        timer.daemon = True
        timer.start()
    elif point is not None:
        sys.addaudithook(hook)


def save_on(point):
    """Restores the newest checkpoint, which must be whole, and saves on and on until it is killed."""
    place, step = ranks.place() / "c", 0
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD(1.0))
    dense = tf.keras.layers.Dense(2)
    model, table = tf.keras.Sequential([tf.keras.Input((), dtype="int64"), layer, dense]), het_tf.Table("t")
    model.compile("sgd", "mse")
    if checkpoint.latest(place) is not None:
        for path in checkpoint.checkpoints(place):
            checkpoint.verify(path)  # each that is seen is whole, its base included
        step = checkpoint.restore(place, model).step
        ids, rows = table.to_numpy()
        np.testing.assert_array_equal(ids, numbers(step))
        for found in (rows, *dense.get_weights()):
            assert (found == step).all(), (step, np.unique(found))
        print(f"restored {step}", flush=True)
    die_at(point, str(place))
    for _ in range(1 if point is None else 1000):
        step += 1
        table.assign(np.arange(ROWS), np.full((ROWS, DIM), step, np.float32))
        table.remove(np.arange(ROWS)[step % 7 :: 7])
        dense.set_weights([np.full(w.shape, step, np.float32) for w in dense.get_weights()])
        # Every third one is full, the others build on the one before.
        checkpoint.save(place, model, step=step, keep=2, since=None if step % 3 == 0 else "latest")
        print(f"saved {step}", flush=True)


def points():
    """Where to end: an event by its name or number, or after seconds, in native code, too; at last never."""
    rng = random.Random(1)
    yield from CHOSEN
    for number in range(ROUNDS - len(CHOSEN)):
        yield rng.randint(1, 150) if number % 2 else rng.uniform(0.0, 0.3)
    yield None


@pytest.mark.long
def test_killed_at_20_points_the_newest_checkpoint_is_whole(tmp_path):
    saved = leftovers = 0  # the newest that `save` has returned; rounds that left something
    killed = []
    for point in points():
        job = ranks.Job(tmp_path, partial(save_on, point=point), ranks=1, launcher="python")
        # A process that failed to restore, or found another number than it should, has ended with 1.
        assert job.end() == (0 if point is None else -signal.SIGKILL), (point, job.out)
        killed += re.findall("^killed (.*)", job.out, re.MULTILINE)
        for what, value in re.findall(r"^(saved|restored) (\d+)", job.out, re.MULTILINE):
            assert what == "saved" or int(value) in (saved, saved + 1), (point, job.out)  # it had its name
            saved = int(value)
        names = [path.name for path in (tmp_path / "c").iterdir()]
        leftovers += any(name.startswith(".tmp-") for name in names)
    assert len(killed) == ROUNDS and killed.count("time") > 2 and len(set(killed)) > 5, killed
    assert leftovers > 3, "most deaths leave something"
    assert not any(name.startswith(".tmp-") for name in names), "the last save has removed it"
    assert len(names) <= 5, "two, and what they build on"
