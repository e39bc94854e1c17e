"""Runs functions on ranks, which `het run`, horovodrun or torchrun starts, and gives back what they return.

    job = ranks.Job(folder, fit, functools.partial(ways, more=True))
    mine, other = job.values("fit")

A function stands in any file, such as that of the test, which each rank imports. It is known by its name, or
the argument `name` that it is given. Arguments are for JSON, values for pickle. With several ranks a function
finds no tables, here and at the server. An error ends the job.
"""

import datetime
import gc
import importlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from het_tf.ext.ps.python import programs
from het_tf.ext.ps.python.errors import ServerError

ROOT = Path(__file__).resolve().parents[2]

# Horovod's launcher itself, but it does not import TensorFlow to find out whether it can use Gloo.
_HOROVODRUN = """
from horovod.runner import launch
launch.gloo_built = lambda **_: True
launch.run_commandline()
"""


def missing(horovod: bool = True) -> str:
    """Why nothing can be launched here; "" if it can."""
    beside = Path(sys.executable).with_name("horovodrun")
    if horovod and not beside.exists() and not shutil.which("horovodrun"):
        return "horovodrun is missing: Horovod is not installed"
    try:
        return "" if programs.find_server() and programs.find_module() else "no server"
    except ServerError as error:
        return str(error)


SERVER = pytest.mark.skipif(bool(missing(False)), reason=missing(False) or "there is a server")
HOROVOD = pytest.mark.skipif(bool(missing()), reason=missing() or "there is Horovod")


def command(launcher: str, ranks: int, *words: object, python: str = sys.executable) -> list[str]:
    """The command line that runs `python WORDS...` on every rank. `launcher` "python": there is only one."""
    run = {
        "python": [],
        "het_tf": ["-m", "het_tf", "run", "--nproc", ranks],
        "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks],
        "horovod": ["-c", _HOROVODRUN, "-np", ranks, "-H", f"localhost:{ranks}", "--gloo", python],
    }[launcher]
    return [python, *map(str, (*run, *words))]


def environment(**more: str) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if name != "HET_PS"}
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/lib'}", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return {**outside, **paths, "OMP_NUM_THREADS": "1", "HOROVOD_CYCLE_TIME": "5", **more}


def launch(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS...` on two ranks of Horovod, and returns what both have printed."""
    return subprocess.run(
        command("horovod", 2, *words), env=environment(**variables),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
    )  # fmt: skip


def _parts(function: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    return (function.func, function.keywords) if isinstance(function, partial) else (function, {})


def _label(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    return arguments.get("name", function.__name__)


def calls(*functions: Callable[..., Any]) -> str:
    """The functions as a word for the command line of this program."""
    found = [_parts(one) for one in functions]
    return json.dumps([[one.__code__.co_filename, one.__name__, arguments] for one, arguments in found])


class Job:
    """One launch. A test waits until all ranks are through with its function.

    Args:
      place: The folder of the values, which functions find by `place()`.
      options: Words for the launcher.
    """

    def __init__(
        self, place: Path, *functions: Callable[..., Any], ranks: int = 2, launcher: str = "het_tf",
        options: tuple[object, ...] = (), python: str = sys.executable, **variables: str,
    ) -> None:  # fmt: skip
        self.place, self.ranks = place, ranks
        words = command(launcher, ranks, *options, __file__, place, calls(*functions), python=python)
        with (place / "out").open("w") as out:
            self._process = subprocess.Popen(words, env=environment(**variables), stdout=out, stderr=out)
        self._limit = threading.Timer(900, self._process.kill)  # of ranks that hang
        self._limit.start()

    @property
    def out(self) -> str:
        """What all ranks have printed."""
        return (self.place / "out").read_text(errors="replace")

    def values(self, name: str) -> list[Any]:
        """Waits until every rank is through with a function, and returns what it has returned on each."""
        paths = [self.place / f"{name}.{rank}.value" for rank in range(self.ranks)]
        while not all(path.exists() for path in paths):
            if self._process.poll() is not None and not all(path.exists() for path in paths):
                raise AssertionError(f"{name} did not end well:\n{self.out[-6000:]}")
            time.sleep(0.02)
        return [pickle.loads(path.read_bytes()) for path in paths]

    def end(self) -> int:
        """Waits for the end of the job and returns its status."""
        status = self._process.wait()
        self._limit.cancel()
        return status


def run(place: Path, function: Callable[..., Any], **options: Any) -> list[Any]:
    """Runs one function on ranks; returns what it has returned on each."""
    job = Job(place, function, **options)
    found = job.values(_label(*_parts(function)))
    assert job.end() == 0, job.out[-6000:]
    return found


def launched(
    place: Path, *functions: Callable[..., Any], said: tuple[str, ...] = (), **options: Any
) -> Iterator[Job]:
    """A job for a fixture that ends well: its server, too. `said`: words that the ranks print once."""
    job = Job(place, *functions, TMPDIR=str(place), **options)
    yield job
    assert job.end() == 0, job.out[-6000:]
    assert all(f"rank {rank} is done" in job.out for rank in range(job.ranks))
    for words in ("runs the parameter server of this job at unix://", *said):
        assert job.out.count(words) == 1, words
    assert "keeps the parameter server" not in job.out, "rank 0 should not wait"
    assert not servers_below(place) and not list(place.glob("het_ps_*"))


def servers_below(directory: Path) -> list[str]:
    """Command lines of servers whose socket lies below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if entry.name.isdigit() and "-server" in line and str(directory) in line:
            found.append(line)
    return found


# --- what runs on each rank -------------------------------------------------------------------------------


def place() -> Path:
    return Path(sys.argv[1])


def refused(kinds: Any, text: str) -> Any:
    return pytest.raises(kinds, match=re.escape(text))


def same(what: str, arrays: Any) -> None:
    """Asserts that the ranks hold equal arrays."""
    from het_tf.python.session import collective

    of_ranks = collective.gather([np.asarray(one).tolist() for one in arrays], "test.same")
    for one in of_ranks[1:]:
        for mine, other in zip(of_ranks[0], one, strict=True):
            np.testing.assert_array_equal(mine, other, err_msg=what)


def leave_nothing() -> None:
    """No tables, here and at the server, and the arguments of init that the job began with."""
    import keras

    import het_tf
    from het_tf.python.session import collective
    from het_tf.python.table import registry

    het_tf.flush(all_ranks=True)
    keys = registry.keys()
    if het_tf.workers.rank() == 0:
        collective.barrier()  # the others know of no table
        for namespace, name in keys:
            het_tf.Table(name, namespace).drop()
    for namespace in {"", *registry.namespaces()}:
        het_tf.reset(namespace)
    if het_tf.workers.rank() != 0:
        collective.barrier()
    keras.utils.clear_session()
    het_tf.init()
    collective.barrier()


def of_file(path: str, name: str) -> Callable[..., Any]:
    sys.path.append(str(Path(path).parent))
    return getattr(importlib.import_module(Path(path).stem), name)


def main() -> None:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        import torch

        # A rank that nobody meets ends the test.
        torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    import het_tf

    functions = [(of_file(path, name), arguments) for path, name, arguments in json.loads(sys.argv[2])]
    het_tf.init()
    rank = het_tf.workers.rank()
    gc.freeze()  # clear_session looks at all that is left, after each function
    for function, arguments in functions:
        value = function(**arguments)
        path = place() / f"{_label(function, arguments)}.{rank}"
        path.write_bytes(pickle.dumps(value))
        path.rename(f"{path}.value")
        if het_tf.workers.size() > 1:
            leave_nothing()
    print(f"rank {rank} is done")


if __name__ == "__main__":
    main()
