"""Ctrl-C while a call waits for a server that stands still: KeyboardInterrupt, and the session goes on.

Times are so long that only the signal can end a wait.
"""

import ctypes
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pytest
import ranks
import redis_lib
import tensorflow as tf

import het_tf

pytestmark = redis_lib.MARKS
NEVER = 3600.0
IDS = np.arange(8).reshape(4, 2)


def handler():
    """The address of the process's handler of SIGINT: another one while a call may wait for a server."""
    action = (ctypes.c_uint64 * 32)()
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    return int(action[0])


def unread(port):
    """Whether bytes for a server wait in the kernel: somebody waits for its answer."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    to = f":{port:04X}"
    return any(words[1].endswith(to) and int(words[4].split(":")[1], 16) > 0 for words in lines)


def interrupted(port, server, pythons, call):
    """Calls while the server stands still, with one SIGINT once it is asked; returns what was raised."""
    os.kill(server, signal.SIGSTOP)

    def press():
        looks = 0  # in a row that found the call waiting: calls of het_tf's own thread are short
        while looks < 10:
            looks = looks + 1 if unread(port) and handler() != pythons else 0
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        call()
        return "nothing"
    except BaseException as error:
        return type(error).__name__
    finally:
        thread.join()
        os.kill(server, signal.SIGCONT)


def check(layer):
    """Training goes on, and each row is that of the updates before."""
    table = het_tf.Table("t")
    before = table.lookup(IDS.ravel())
    redis_lib.count(layer, IDS.ravel(), counts := np.zeros((8, 1)))
    np.testing.assert_array_equal(table.lookup(IDS.ravel()), before - counts)


def interrupt(port, server):
    """Interrupts each way to wait; returns what each has raised."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin without
    raised = partial(interrupted, port, server, handler())
    store = het_tf.Store(f"redis://127.0.0.1:{port}", timeout=NEVER, deadline=NEVER)
    het_tf.init(ps=store)
    layer = redis_lib.counter(staleness=0)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), layer, keras.layers.Flatten()])
    model.compile("sgd", lambda y, x: tf.reduce_sum(x))
    graph, table = tf.function(layer), het_tf.Table("t")
    train = lambda: model.fit(IDS, IDS, batch_size=4, verbose=0)  # noqa: E731
    train()
    graph(IDS)
    calls = {
        "fit": train,
        "eager": lambda: layer(IDS),
        "function": lambda: graph(IDS),
        "lookup": lambda: table.lookup(IDS[:, 0]),
        "assign": lambda: table.assign(IDS[:, 0], np.ones((4, 2), np.float32)),
        "save": lambda: het_tf.checkpoint.save(ranks.place() / "checkpoint", model),
    }
    found = {}
    for name, call in calls.items():
        found[name] = raised(call)
        rows = table.lookup(IDS.ravel())
        assert np.all(rows == rows[:, :1]), f"half of a row: {rows}"
    check(layer)
    pressed = []  # by a handler of the program's own; the call ends all the same
    pythons = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    found["handler"] = raised(calls["eager"]), pressed
    signal.signal(signal.SIGINT, pythons)
    check(layer)
    het_tf.reset()
    het_tf.init(ps="")
    found["init"] = raised(lambda: het_tf.init(ps=store))
    het_tf.init(ps=store)
    check(redis_lib.counter(staleness=0))
    return found


def wait_unsent(server):
    """Nobody catches the signal; what is unsent cannot be sent."""
    redis_lib.count(redis_lib.counter("lazy", staleness=1000), IDS.ravel(), np.zeros((8, 2)))
    os.kill(server, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(NEVER)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A process that is interrupted in each way, at last where nothing catches it."""
    place, port = tmp_path_factory.mktemp("interrupts"), redis_lib.free_port()
    with redis_lib.running(place / "server", "--port", str(port), "--bind", "127.0.0.1") as server:
        of = {"server": server.process.pid}
        functions = partial(interrupt, port=port, **of), partial(wait_unsent, **of)
        yield ranks.Job(place, *functions, ranks=1, launcher="python")


# Would catch: an op that waits on (the process ends only with the test's limit), the RuntimeError that
# pybind11 makes of a signal within TensorFlow's exception, a lost signal, and a row that was sent in part.
def test_calls_end_and_later_ones_work(job):
    names = ("fit", "eager", "function", "lookup", "assign", "save", "init")
    # A handler of the program's own is called, too, and connecting ends.
    wanted = {**dict.fromkeys(names, "KeyboardInterrupt"), "handler": ("CancelledError", [1])}
    assert job.values("interrupt") == [wanted]


# The flush at the exit would wait for an hour.
def test_a_program_that_is_interrupted_ends(job):
    assert job.end() == -signal.SIGINT
    assert "KeyboardInterrupt" in job.out
    assert "updates of the namespace '' that were not sent yet are lost" in job.out
