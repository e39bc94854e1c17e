"""A process that gets Ctrl-C while its server stands still: python interrupted_worker.py DIR.

Times are so long that only the signal can end a wait. It prints what each call raised, and "usable" whenever
training went on afterwards without a wrong row; nothing catches the last Ctrl-C.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import redis_lib
import tensorflow as tf

import het_tf

NEVER = 3600.0
IDS = np.arange(8).reshape(4, 2)


def handler() -> int:
    """The address of the process's handler of SIGINT: another one while a call may wait for a server."""
    action = (ctypes.c_uint64 * 32)()
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    return int(action[0])


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
PYTHONS = handler()


def unread(port: int) -> bool:
    """Whether bytes for a server wait in the kernel: somebody waits for its answer."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    to = f":{port:04X}"
    return any(words[1].endswith(to) and int(words[4].split(":")[1], 16) > 0 for words in lines)


def interrupted(server: redis_lib.Server, port: int, call: Callable[[], object]) -> str:
    """Calls while the server stands still, with one SIGINT once it is asked; returns what was raised."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)

    def press() -> None:
        looks = 0  # in a row that found the call waiting: calls of het_tf's own thread are short
        while looks < 10:
            looks = looks + 1 if unread(port) and handler() != PYTHONS else 0
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
        server.process.send_signal(signal.SIGCONT)


def check(layer: het_tf.keras.Embedding) -> None:
    """Training goes on, and each row is that of the updates before."""
    table = het_tf.Table("t")
    before = table.lookup(IDS.ravel())
    redis_lib.count(layer, IDS.ravel(), counts := np.zeros((8, 1)))
    np.testing.assert_array_equal(table.lookup(IDS.ravel()), before - counts)
    print("usable", flush=True)


def main(directory: Path) -> None:
    port = redis_lib.free_port()
    server = redis_lib.Server(directory, "--port", str(port), "--bind", "127.0.0.1")
    server.start()
    assert server.process is not None
    (directory / "server").write_text(str(server.process.pid))
    store = het_tf.Store(f"redis://127.0.0.1:{port}", timeout=NEVER, deadline=NEVER)
    het_tf.init(ps=store)
    layer = redis_lib.counter(staleness=0)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), layer, keras.layers.Flatten()])
    model.compile("sgd", lambda y, x: tf.reduce_sum(x))
    graph = tf.function(layer)
    table = het_tf.Table("t")
    ones = np.ones((4, 2), np.float32)
    train = lambda: model.fit(IDS, IDS, batch_size=4, verbose=0)  # noqa: E731
    train()
    graph(IDS)
    calls = {
        "fit": train,
        "eager": lambda: layer(IDS),
        "function": lambda: graph(IDS),
        "lookup": lambda: table.lookup(IDS[:, 0]),
        "assign": lambda: table.assign(IDS[:, 0], ones),
        "save": lambda: het_tf.checkpoint.save(directory / "checkpoint", model),
    }
    for name, call in calls.items():
        print(name, interrupted(server, port, call), flush=True)
        rows = table.lookup(IDS.ravel())
        assert np.all(rows == rows[:, :1]), f"half of a row: {rows}"
    check(layer)
    pressed = []  # by a handler of the program's own; the call ends all the same
    pythons = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    print("handler", interrupted(server, port, calls["eager"]), pressed, flush=True)
    signal.signal(signal.SIGINT, pythons)
    check(layer)
    het_tf.reset()
    het_tf.init(ps="")
    print("init", interrupted(server, port, lambda: het_tf.init(ps=store)), flush=True)
    het_tf.init(ps=store)
    check(redis_lib.counter(staleness=0))
    # Nobody catches it; what is unsent cannot be sent.
    redis_lib.count(redis_lib.counter("lazy", staleness=1000), IDS.ravel(), np.zeros((8, 2)))
    server.process.send_signal(signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(NEVER)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
