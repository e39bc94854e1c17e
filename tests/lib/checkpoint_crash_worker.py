"""Saves until it is killed, again and again: `python checkpoint_crash_worker.py DIRECTORY ROUNDS SEED`.

Each round is a child of this process, which has TensorFlow loaded and has not used it. It restores the newest
checkpoint, checks that it is whole, and saves one after the other until it kills itself with SIGKILL: at
something that Python does to the directory (an audit hook sees opening, renaming, removing), chosen by its
name in the first rounds and by its number later, or after a random time, which also hits what the native
library does. In the last round it is not killed.

What is saved with step n is the number n, in every value of the table and in every dense weight: a checkpoint
that is not of one moment shows.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import tensorflow as tf

import het_tf
from het_tf import checkpoint

ROWS, DIM = 30_000, 4
SEEN = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir", "shutil.rmtree",
        "fcntl.flock")  # fmt: skip
REMOVALS = ("os.remove", "os.rmdir")
CHOSEN = [
    "manifest.json x",  # before the manifest is written
    "os.rename .tmp-ckpt-",  # before a checkpoint has its name
    "os.rename ckpt-",  # after that, and before an old one is removed
    "os.remove",  # while one is removed
]


def make():
    """A table and a dense weight."""
    keras = tf.keras
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD(1.0))
    model = keras.Sequential([keras.Input((), dtype="int64"), layer, keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def fill(model, number):
    """All of the table and of the weights become `number`; every 7th row goes, another 7th each time."""
    ids = np.arange(ROWS)
    het_tf.Table("t").assign(ids, np.full((ROWS, DIM), number, np.float32))
    het_tf.Table("t").remove(ids[number % 7 :: 7])
    model.layers[-1].set_weights(
        [np.full(w.shape, number, np.float32) for w in model.layers[-1].get_weights()]
    )


def check(model, number):
    """AssertionError unless everything is what `fill(model, number)` has made."""
    ids, rows = het_tf.Table("t").to_numpy()
    expected = np.delete(np.arange(ROWS), np.s_[number % 7 :: 7])
    np.testing.assert_array_equal(ids, expected)
    assert (rows == number).all(), (number, np.unique(rows))
    for weight in model.layers[-1].get_weights():
        assert (weight == number).all(), (number, weight)


class Killer:
    """Ends this process: at the first event with a text in it, at the k-th event, or after some seconds."""

    def __init__(self, directory, point, report):
        self.directory, self.point, self.report = str(directory), point, report
        self.seen = 0

    def arm(self):
        if isinstance(self.point, float):
            threading.Thread(target=self.later, daemon=True).start()
        elif self.point is not None:
            sys.addaudithook(self.hook)

    def later(self):
        time.sleep(self.point)
        self.end("time")

    def hook(self, event, arguments):
        # Files of a tree that is removed are named without their directory.
        if event not in SEEN or (event not in REMOVALS and self.directory not in str(arguments[0])):
            return
        self.seen += 1
        what = f"{event} {' '.join(str(one).replace(self.directory + '/', '') for one in arguments[:2])}"
        if self.seen == self.point or (isinstance(self.point, str) and self.point in what):
            self.end(what)

    def end(self, what):
        os.write(self.report, f"killed {what}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def child(directory, point, report):
    """One round."""
    killer = Killer(directory, point, report)
    model = make()
    step = 0
    if checkpoint.latest(directory) is not None:
        for path in checkpoint.checkpoints(directory):
            checkpoint.verify(path)  # each that is seen is whole, its base included
        step = checkpoint.restore(directory, model).step
        check(model, step)
        os.write(report, f"restored {step}\n".encode())
    killer.arm()
    for _ in range(1 if point is None else 1000):
        step += 1
        fill(model, step)
        # Every third one is full, the others build on the one before.
        checkpoint.save(directory, model, step=step, keep=2, since=None if step % 3 == 0 else "latest")
        os.write(report, f"saved {step}\n".encode())


def points(rounds, rng):
    """Where to end: an event by its name, by its number, or after seconds."""
    yield from CHOSEN
    for number in range(rounds - len(CHOSEN)):
        yield rng.randint(1, 150) if number % 2 else rng.uniform(0.0, 0.3)
    yield None


def played(directory, point):
    """Plays a round in a child; returns the words of what it said, and its exit status."""
    out, report = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(out)
        code = 1
        try:
            child(directory, point, report)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(report)
    with os.fdopen(out) as lines:
        said = [line.split(maxsplit=1) for line in lines]
    return said, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main():
    directory, rounds = Path(sys.argv[1]), int(sys.argv[2])
    saved = leftovers = 0  # the newest that `save` has returned; rounds that left something
    killed = []
    for point in points(rounds, random.Random(int(sys.argv[3]))):
        said, code = played(directory, point)
        # A process that failed to restore, or found another number than it should, has ended with 1.
        assert code == (0 if point is None else -signal.SIGKILL), (point, code, said)
        for what, value in said:
            if what == "killed":
                killed.append(value)
                continue
            assert what == "saved" or int(value) in (saved, saved + 1), (
                point,
                said,
            )  # it had its name already
            saved = int(value)
        names = [path.name for path in directory.iterdir()]
        leftovers += any(name.startswith(".tmp-") for name in names)
    assert len(killed) == rounds and killed.count("time\n") > 2 and len(set(killed)) > 5, killed
    assert leftovers > 3, "most deaths leave something"
    assert not any(name.startswith(".tmp-") for name in names), "the last save has removed it"
    assert len(names) <= 5, "two, and what they build on"


if __name__ == "__main__":
    main()
