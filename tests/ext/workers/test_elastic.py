"""Workers that die: elastic jobs go on without them. Static ones end: test_horovod_run.py."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import elastic_worker
import horovod_lib
import pytest
import redis_lib

import het_tf

ROOT = Path(het_tf.__file__).parent.parent
DEADLINE = 120  # seconds of a whole job; it takes about 20

pytestmark = [pytest.mark.long, horovod_lib.RANKS]


def launch(out: Path, given: dict, *arguments: str) -> tuple[int, str]:
    """Runs a job; returns its exit status and what it printed. None of its processes is left."""
    command = [
        sys.executable, "-m", "horovod.runner.launch", "--gloo", "--gloo-timeout-seconds", "60", *arguments,
        sys.executable, str(Path(elastic_worker.__file__)), json.dumps({"out": str(out), **given}),
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    log = out / "log"
    with log.open("w") as file:
        job = subprocess.Popen(
            command, env=environment, cwd=out, stdout=file, stderr=file, start_new_session=True
        )
        try:
            job.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job hangs:\n{log.read_text()[-6000:]}")
        finally:
            left = [pid for pid in workers(out) if alive(pid)]
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    assert left == [], "workers outlived the job"
    return job.returncode, log.read_text()


def workers(out: Path) -> list[int]:
    return [int(file.name) for file in out.iterdir() if file.name.isdigit()]


def alive(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return "elastic_worker" in command


def lines(out: Path) -> list[list[dict]]:
    """Returns the log of each worker, the longest first."""
    logs = [[json.loads(line) for line in (out / str(pid)).read_text().splitlines()] for pid in workers(out)]
    return sorted(logs, key=len, reverse=True)


def elastic(tmp_path: Path, given: dict, hosts: str) -> tuple[list[list[dict]], dict]:
    """A job on hosts that are this machine under different names; what they are stands in a file."""
    out = tmp_path / "out"
    out.mkdir()
    script = tmp_path / "discover"
    (out / "hosts").write_text(hosts)
    script.write_text(f"#!/bin/sh\ncat {out}/hosts\n")
    script.chmod(0o755)
    with redis_lib.running(tmp_path / "redis") as server:
        status, log = launch(
            out, {"ps": server.address, **given},
            "-np", str(hosts.count(":")), "--min-np", "1", "--max-np", "2",
            "--host-discovery-script", str(script),
            "--network-interface", "lo", "--elastic-timeout", "60",
        )  # fmt: skip
    assert (out / "done").exists(), log[-6000:]
    assert status == 0, log[-6000:]
    return lines(out), json.loads((out / "done").read_text())


@pytest.mark.parametrize(
    "given",
    [
        {"victim": 1, "dies_at": 10, "accumulate": False, "stale": True},
        {"victim": 0, "dies_at": 10, "accumulate": True, "keras": True},
    ],
    ids=["plain", "accumulate_and_rank_0"],
)
def test_a_worker_is_killed_and_the_other_goes_on(tmp_path, given):
    logs, done = elastic(tmp_path, given, "localhost:1\n127.0.0.1:1\n")
    survivor, victim = logs
    assert [line["step"] for line in victim] == list(range(1, 11))
    # Back to the last commit, at step 8, then without the other to the end.
    assert [line["step"] for line in survivor] == [*range(1, 11), *range(9, elastic_worker.STEPS + 1)]
    assert [line["size"] for line in survivor] == [2] * 10 + [1] * (elastic_worker.STEPS - 8)
    assert done["step"] == done["iterations"] == done["applies"] == elastic_worker.STEPS
    # The row keeps the steps that were taken back. Gradients were halved while there were two workers, and
    # only then; what a worker did of the step in which the other died is half a step at most.
    assert done["scale"] == 1.0
    steps = 10 + elastic_worker.STEPS - 8
    assert -steps - 0.5 <= done["row"][0] <= -steps + (4.5 if given.get("stale") else 0)
    if given.get("stale"):
        # SGD of several workers reads by age and holds nothing back; one worker does (docs/concepts.md).
        assert survivor[0]["bounds"] == [{"most": 3, "of_age": 0.1}, {"most": 0, "of_age": 1.0}]
        assert survivor[-1]["bounds"] == [4, 4]


def test_joining_worker_continues_at_others_step(tmp_path):
    logs, done = elastic(tmp_path, {"grows_at": 8, "accumulate": True, "keras": True}, "localhost:1\n")
    first, second = logs
    assert [line["step"] for line in first] == list(range(1, elastic_worker.STEPS + 1))
    assert [line["size"] for line in first] == [1] * 8 + [2] * (elastic_worker.STEPS - 8)
    assert [line["step"] for line in second] == list(range(9, elastic_worker.STEPS + 1))
    assert done["step"] == done["iterations"] == done["applies"] == elastic_worker.STEPS
    assert done["scale"] == 0.5 and done["row"][0] == -elastic_worker.STEPS
