"""What ranks write: lines with their rank, bars, the end that is kept, and the reason found in it."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import launch_lib
import pytest

from het_tf.ext.workers.python.launch.output import Output, last_words, left_by


def passed(data: list[bytes], prefix: bytes | None, log: Path | None = None) -> bytes:
    """What comes out of an Output that is given these pieces."""
    source, sink = os.pipe()
    shown = os.memfd_create("terminal")
    output = Output(os.fdopen(source, "rb", buffering=0), shown, prefix, log)
    for piece in data:
        os.write(sink, piece)
        assert output.read()
    os.close(sink)
    output.close()
    os.lseek(shown, 0, os.SEEK_SET)
    with os.fdopen(shown, "rb") as file:
        return file.read()


LINES = [
    ([b"a", b"b\nc", b"d\n"], b"[1] ", b"[1] ab\n[1] cd\n"),
    ([b"no end"], b"[1] ", b"[1] no end\n"),
    ([b"\r10 %\r20 %", b"\r100 %\n"], b"[1] ", b"[1] 100 %\n"),
    ([b"dos\r\n\n"], b"[1] ", b"[1] dos\n[1] \n"),
    ([b"a", b"b\n"], b"", b"ab\n"),
    ([b"\r10 %", b"\r20 %"], None, b"\r10 %\r20 %"),
]


@pytest.mark.parametrize(("pieces", "prefix", "shown"), LINES)
def test_lines(pieces: list[bytes], prefix: bytes | None, shown: bytes, tmp_path: Path) -> None:
    assert passed(pieces, prefix, tmp_path / "log") == shown
    assert (tmp_path / "log").read_bytes() == b"".join(pieces)


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    assert passed([b"x" * 60_000] * 4, b"[1] ").count(b"[1] ") > 1


TRACEBACK = """\
noise
Traceback (most recent call last):
  File "/a/train.py", line 3, in <module>
    f()
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/a/train.py", line 5, in <module>
    g()
  File "/v/lib/python3.11/site-packages/keras/x.py", line 9, in g
    raise ValueError("no")
ValueError: no
and why
"""


IN_A_GRAPH = """\
Traceback (most recent call last):
  File "/a/train.py", line 5, in <module>
    fit()
tensorflow.python.InternalError: Graph execution error:

Detected at node het_tf.gradient.1 defined at (most recent call last):
  File "/a/train.py", line 5, in <module>

  File "/v/lib/python3.11/site-packages/keras/x.py", line 9, in fit

rank 1 has ended
\t [[{{node het_tf.gradient.1}}]] [Op:__inference_one_step_on_data_531]
"""


IN_A_CALLBACK = """\
Traceback (most recent call last):
  File "/a/train.py", line 5, in <module>
    fit()
jax.errors.JaxRuntimeError: INTERNAL: CpuCallback error: Traceback (most recent call last):
  File "/a/train.py", line 5, in <module>
  File "/v/lib/python3.11/site-packages/jax/x.py", line 9, in callback
ConnectionError: rank 1 has ended, but this rank waits for it in collective gradient
--------------------
JAX has removed its internal frames
"""


LAST_WORDS = [
    (IN_A_CALLBACK,
     "jax.errors.JaxRuntimeError: INTERNAL: CpuCallback error: ConnectionError: rank 1 has ended, but "
     "this rank waits for it in collective gradient (train.py, line 5)",
     "JAX has removed its internal frames"),
    (IN_A_GRAPH, "tensorflow.python.InternalError: rank 1 has ended (train.py, line 5)",
     "\t [[{{node het_tf.gradient.1}}]] [Op:__inference_one_step_on_data_531]"),
    (TRACEBACK, "ValueError: no (train.py, line 5)", "and why"),
    ("terminate called\n\n", "terminate called", ""),
    ("Traceback (most recent call last):\n  File", "", "  File"),
    ("", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "last"), LAST_WORDS)
def test_last_words(text: str, line: str, last: str) -> None:
    """The last traceback of a chain is the one that ended the program; its place is the user's own."""
    found, block = last_words(text.encode())
    assert found == line
    assert block.rpartition("\n")[2] == last and "first" not in block


def test_a_failure_of_a_rank_that_has_left() -> None:
    assert [left_by(text.encode()) for text in (IN_A_CALLBACK, TRACEBACK, "")] == [1, None, None]


@pytest.mark.slow
def test_rank_0_has_the_terminal(tmp_path: Path) -> None:
    """A progress bar asks whether it writes to one."""
    master, slave = pty.openpty()
    code = "import os, sys; os.environ['HET_RANK'] == '0' and print(sys.stdout.isatty(), end='\\r50 %\\r')"
    command = [sys.executable, "-m", "het_tf", "run", "--nproc", "2", sys.executable, "-c", code]
    streams = {"stdin": slave, "stdout": slave, "stderr": subprocess.PIPE}
    done = subprocess.run(command, env=launch_lib.environment(), **streams)
    os.close(slave)
    assert done.returncode == 0, done.stderr
    assert os.read(master, 4096) == b"True\r50 %\r"
    os.close(master)
