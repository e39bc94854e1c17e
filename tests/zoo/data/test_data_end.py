"""A process that ends while tf.data's threads read ahead in Python ends at once, whichever way it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# The reader is always inside an element, and without the interpreter, when the process ends: where nothing
# ends the pass before the interpreter ends, each of these hangs each time.
PROGRAM = """
import itertools, signal, sys, threading, time
import numpy as np
from het_tf.zoo.data.examples import Examples, to_tf_dataset

one = Examples({"a": np.arange(4)}, {}, np.zeros((4, 0), np.float32), np.zeros(4, np.float32))
reading = threading.Event()

def epoch(number):
    for step in itertools.count():
        reading.set()
        time.sleep(0.02)
        yield one

def iterate():
    train = iter(to_tf_dataset(epoch, one, None, 4).prefetch(10**6))
    next(train)
    return train

def bad_line():
    from het_tf.zoo.data import criteo
    train = iterate()
    for _ in criteo(sys.argv[2]).to_tf(8):
        pass

def interrupt():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    train = iterate()
    reading.clear()
    assert reading.wait(300)
    signal.raise_signal(signal.SIGINT)

globals()[sys.argv[1]]()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "code", "says"),
    [
        ("bad_line", 1, "day.tsv, line 301: has 1 fields, not 40"),
        pytest.param("interrupt", -signal.SIGINT, "KeyboardInterrupt", marks=pytest.mark.long),
    ],
)
def test_the_process_ends_beside_a_thread_that_reads(way: str, code: int, says: str, tmp_path: Path) -> None:
    good = "\t".join(["1"] * 14 + ["68fd1e64"] * 26)
    (tmp_path / "day.tsv").write_text("\n".join([good] * 300 + ["bad"] + [good] * 300))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, "-c", PROGRAM, way, str(tmp_path / "day.tsv")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    assert says in done.stderr
