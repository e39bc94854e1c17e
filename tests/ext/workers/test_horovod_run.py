"""Two ranks under horovodrun: one that dies, and the example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import horovod_lib
import pytest
import redis_lib

pytestmark = [pytest.mark.slow, horovod_lib.RANKS]
EXAMPLE = horovod_lib.ROOT / "examples" / "wide_deep.py"


@pytest.mark.parametrize(
    ("victim", "how", "code"),
    [
        (0, "kill", 137),
        pytest.param(1, "kill", 137, marks=pytest.mark.long),
        pytest.param(1, "error", 1, marks=pytest.mark.long),
    ],
)
def test_dead_rank_ends_job_and_server(victim, how, code, tmp_path):
    done = horovod_lib.launch(
        horovod_lib.WORKER, tmp_path, f"die:{victim}:{how}", TMPDIR=str(tmp_path), timeout=300
    )
    assert done.returncode != 0
    assert f"Process {victim} exit with status code {code}" in done.stdout, done.stdout[-3000:]
    assert f"rank {1 - victim} is done" not in done.stdout
    if how == "error":
        assert "ValueError: the data is bad here" in done.stdout
    for _ in range(100):  # the server's keeper looks every now and then
        if not horovod_lib.servers_below(tmp_path) and not list(tmp_path.glob("het_ps_*")):
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {horovod_lib.servers_below(tmp_path)}, {list(tmp_path.iterdir())}")


@pytest.mark.long
def test_a_rank_that_is_stopped_ends_the_job(tmp_path):
    """Rank 0 kept the server for the stopped rank, which can send nothing, after its own step had failed."""
    seconds = {f"HOROVOD_{name}_SECONDS": "6" for name in ("STALL_SHUTDOWN_TIME", "STALL_CHECK_TIME")}
    done = horovod_lib.launch(
        horovod_lib.WORKER, tmp_path, "die:1:stop", TMPDIR=str(tmp_path), timeout=300,
        HOROVOD_GLOO_TIMEOUT_SECONDS="6", **seconds,
    )  # fmt: skip
    assert done.returncode != 0
    assert "rank 1 is stopped (SIGSTOP); the parameter server of this job stops" in done.stdout
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is" not in done.stdout
    assert not horovod_lib.servers_below(tmp_path)


def auc_of(text: str) -> float:
    found = re.findall(r"test AUC (\d\.\d{4})", text)
    assert len(found) == 1, text[-4000:]
    return float(found[0])


@pytest.mark.long
def test_the_example_prints_on_rank_0_alone():
    done = horovod_lib.launch(EXAMPLE, "--epochs", 1)
    assert done.returncode == 0, done.stdout[-4000:]
    assert auc_of(done.stdout) > 0.89
    assert "[0]<stdout>:" in done.stdout and "[1]<stdout>:" not in done.stdout
    epochs = re.findall(r"<stdout>:(\d+)/\d+ .*val_auc", done.stdout)
    assert epochs == ["91"], "each rank has half of the 183 batches, and one tells"


@pytest.mark.long
def test_census_on_two_ranks_reaches_single_process_auc(tmp_path):
    command = [sys.executable, str(EXAMPLE), "--staleness", "100"]
    environment = {**os.environ, "PYTHONPATH": str(horovod_lib.ROOT)}
    single = auc_of(
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    )
    with redis_lib.cluster(tmp_path, 2) as cluster:
        done = horovod_lib.launch(EXAMPLE, "--staleness", 100, HET_PS=cluster.address)
    assert done.returncode == 0, done.stdout[-4000:]
    double = auc_of(done.stdout)
    print(f"test AUC: one process {single:.4f}, two ranks on two shards {double:.4f}")
    assert double > single - 0.003
