"""What all commands share: arguments, units, dates, the log of TensorFlow, and readers that have gone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from het_tf.python import show

ROOT = Path(__file__).resolve().parents[3]


def start(code: str, **streams: int) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**environment, "PYTHONPATH": f"{ROOT}:{ROOT}/tests/python/lib"}, text=True, **streams,
    )  # fmt: skip


def test_numbers_and_bytes_have_one_unit() -> None:
    """Bytes were counted by 1024 and called kB, so 64MB that were given came back as 61 MB."""
    assert [show.size(n) for n in (0, 999, 1000, 64e6, 1 << 30)] == [
        "0 B",
        "999 B",
        "1 kB",
        "64 MB",
        "1.07 GB",
    ]
    assert [show.number(n) for n in (12_345, 999_400, 999_700, 1e9)] == ["12.3k", "999k", "1M", "1G"]
    assert show.size(999_700) == "1 MB"  # 1e+03 kB


def test_dates_have_a_zone() -> None:
    """A time in seconds is a date; a count of steps, which a publisher may give too, is none."""
    assert show.date(1_700_000_000) == "2023-11-14 22:13:20Z"
    values = (1_700_000_000.5, 5000, {"day": 3}, None, True, 1e300)
    texts = ["2023-11-14 22:13:20Z", "5000", '{"day": 3}', "null", "true", "1e+300"]
    assert [show.when(value) for value in values] == texts


PIPES = {
    "print": "lambda _: print('answer') or 0",
    "much": "lambda _: print('answer\\n' * 100_000) or 0",
    "rich": "lambda _: show.show('answer') or 0",
    "an error": "lambda _: print('answer') or int('x')",
}


@pytest.mark.parametrize("kind", PIPES)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_nobody_reads_on(kind: str, stream: str) -> None:
    """A pipe is a ConnectionError too, which het-serve and het-publish printed: "Broken pipe"."""
    code = f"""
        import argparse, sys
        from het_tf.python import show
        parser = argparse.ArgumentParser(prog="het-test")
        sys.exit(show.run(parser, [], {PIPES[kind]}, ConnectionError, ValueError))
    """
    read, write = os.pipe()
    os.close(read)
    other = "stderr" if stream == "stdout" else "stdout"
    process = start(code, **{stream: write, other: subprocess.PIPE})
    os.close(write)
    _, err = process.communicate(timeout=60)
    silent = stream == "stderr" and kind != "an error"
    assert process.returncode == (0 if silent else 141)
    assert stream == "stderr" or err == ""


def test_a_command_whose_reader_has_gone() -> None:
    """The whole path of a command."""
    code = "import sys; from het_tf.python.ps.cli import main; sys.exit(main(['conf', '--module', 'het.so']))"
    process = start(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(timeout=60)) == ("", 141)


def test_commands_and_readers_do_not_need_tensorflow() -> None:
    """They start at once, and on hosts without it; het-ps needs no NumPy either."""
    code = """
        import os, sys
        from het_tf.python.ps.cli import main
        assert main(["status", "--ps", "redis://127.0.0.1:1"]) == 1
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "2"  # its log does not come before an answer
        assert not {"tensorflow", "keras", "numpy"} & set(sys.modules)
        import het_tf.python.placement.placement, het_tf.python.publishing.dense_store
        import het_tf.python.following.cli, het_tf.python.planner.cli, het_tf.python.releasing.cli
        from het_tf.python.following import native
        native._call()
        assert "tensorflow" not in sys.modules
    """
    done = start(code, stderr=subprocess.PIPE)
    (line,) = done.communicate(timeout=300)[1].splitlines()
    assert done.returncode == 0 and "no server answers: 127.0.0.1:1: connection refused" in line


@pytest.mark.long
def test_tensorflows_log_does_not_come_before_an_answer() -> None:
    """Its notes on the CPU came first."""
    code = """
        import argparse, sys
        from het_tf.python import show

        def answer(_):
            import tensorflow as tf
            print(int(tf.constant(1) + 1))
            return 0

        sys.exit(show.run(argparse.ArgumentParser(), [], answer))
    """
    done = start(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.communicate(timeout=300) == ("2\n", "") and done.returncode == 0
