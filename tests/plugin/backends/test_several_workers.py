"""Two ranks on each backend, started by `het run` or by the variables of torchrun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import ranks
import ranks_cases
from backends_lib import BACKEND, elsewhere, on_jax, on_tensorflow, on_torch

import het_tf

pytestmark = [pytest.mark.slow, ranks.SERVER]
ONLY = ["nan", "shards", "accumulate"] if BACKEND != "tensorflow" else []
CASES = ["fit", "batches", "metrics", "loop", "differ", "layers", "saved", *ONLY]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One launch that has all cases."""
    place = tmp_path_factory.mktemp("ranks")
    job = ranks.Job(place, *(getattr(ranks_cases, name) for name in CASES))
    yield job
    assert job.end() == 0, job.out[-6000:]


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_are_through(job, case):
    """The assertions of a case are in tests/lib/ranks_cases.py."""
    of_ranks = job.values(case)
    if case in ("fit", "accumulate"):
        ranks_cases.equals_the_union(case, of_ranks)


# --- ranks that end, or do not fit together ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("victim", "how", "others", "cause"),
    [
        (1, "kill", "rank 1 (has ended|is lost)", ".* failed first: killed by SIGKILL"),
        pytest.param(0, "kill", "rank 0 (has ended|is lost)", ".* failed first: killed by SIGKILL",
                     marks=[pytest.mark.long, on_tensorflow]),
        pytest.param(1, "stop", "rank 1 is lost: nothing has come from it for 2 s; its process is stopped",
                     ".* is stopped", marks=on_tensorflow),
        pytest.param(1, "error", "rank 1 has ended", ".* failed first: .*OSError: the disk of rank 1 is full",
                     marks=[pytest.mark.long] if BACKEND == "tensorflow" else []),
    ],
)  # fmt: skip
def test_a_rank_that_is_lost_is_named_and_leaves_nothing(tmp_path, victim, how, others, cause):
    """A rank that is stopped ended a job of Horovod after 48 s, with an error that named no rank."""
    die = partial(ranks_cases.die, victim=victim, how=how)
    job = ranks.Job(tmp_path, die, options=("--timeout", 2), TMPDIR=str(tmp_path))
    assert job.end() != 0
    assert re.search(f"het run: rank {victim} {cause}", job.out), job.out[-4000:]
    assert re.search(rf"(Error|Exception)[\s\S]*{others}", job.out), job.out[-4000:]
    assert f"rank {1 - victim} is done" not in job.out and "runs the parameter server of this job" in job.out
    assert not ranks.servers_below(tmp_path) and not list(tmp_path.glob("het_ps_*"))


@pytest.fixture
def server():
    """Address of a server with the het module."""
    from het_tf.ext.ps.python.redis_server import LocalServer

    with LocalServer.start(unix=True) as running:
        yield running.address


def by_variables(server, place, *functions, backends=(BACKEND, BACKEND)):
    """Two processes with the variables of torchrun; returns their statuses and outputs."""
    launched = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "HET_RUN_ID": "variables"}
    pythons = {"tensorflow": os.environ.get("HET_TEST_TENSORFLOW", sys.executable)}
    processes = [
        subprocess.Popen(
            [pythons.get(backend, sys.executable), ranks.__file__, place, ranks.calls(*functions)],
            env=ranks.environment(**launched, RANK=str(rank), HET_PS=server, KERAS_BACKEND=backend),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, backend in enumerate(backends)
    ]  # fmt: skip
    outs = [one.communicate(timeout=300)[0] for one in processes]
    return [one.returncode for one in processes], outs


@on_jax  # test_modules_under_ddp_equal_one_process has torchrun itself
def test_the_variables_of_torchrun_start_ranks(server, tmp_path):
    statuses, outs = by_variables(server, tmp_path, ranks_cases.batches)
    assert statuses == [0, 0], outs


@on_torch  # of all backends: once
def test_another_backend_on_one_rank_is_named_on_both(server, tmp_path):
    other = "tensorflow" if "HET_TEST_TENSORFLOW" in os.environ else "jax"
    statuses, outs = by_variables(server, tmp_path, ranks_cases.batches, backends=("torch", other))
    assert 0 not in statuses
    for out in outs:
        assert f"Keras' backend is 'torch' on rank 0 and '{other}' on rank 1; set KERAS_BACKEND" in out, out


def embedding():
    het_tf.keras.Embedding(2, name="t")


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
HOROVODRUN = {
    "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "localhost", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1",
}  # fmt: skip


@elsewhere
@pytest.mark.parametrize(
    ("variables", "call", "error", "words"),
    [
        (TORCHRUN, het_tf.init, ValueError, "torchrun runs 2 ranks, which share tables, and no para"),
        (TORCHRUN, partial(het_tf.init, ps=""), ValueError, 'ps is "", the store inside each process, but '),
        (TORCHRUN, embedding, RuntimeError, r"torchrun runs 2 ranks, but het_tf was not told"),
        (HOROVODRUN, partial(het_tf.init, ps="unix:///nowhere"), NotImplementedError,
         f"Keras' backend is '{BACKEND}', and het_tf uses Horovod on"),
    ],
)  # fmt: skip
def test_ranks_that_cannot_train_together_are_refused(monkeypatch, variables, call, error, words):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HET_PS", raising=False)
    with pytest.raises(error, match=words):
        call()


@on_jax
def test_a_distribution_over_several_processes_is_refused(monkeypatch):
    import jax
    import keras

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(keras.distribution, "distribution", object)
    with pytest.raises(NotImplementedError, match=r"'t' is used under keras\.distribution over 2 processes"):
        embedding()


@elsewhere
def test_a_group_of_another_size_than_the_launcher_says_is_refused(monkeypatch):
    from het_tf.ext.workers.python.backends import ops

    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ops, "group", lambda: (f"{BACKEND}.distributed", 0, 3))
    with pytest.raises(ValueError, match=r"distributed says rank 0 of 3, and torchrun says rank 0 of 2"):
        het_tf.init(ps="unix:///nowhere")


@on_torch
def test_a_group_without_a_launcher_says_the_ranks(monkeypatch):
    """As torch.multiprocessing.spawn makes it; the group gives them a word for their run."""
    import torch

    from het_tf.ext.workers.python import find
    from het_tf.ext.workers.python.backends import ops

    monkeypatch.setattr(ops, "group", lambda: ("torch.distributed", 1, 2))
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "gloo")
    monkeypatch.setattr(torch.distributed, "broadcast", lambda word, _: word.copy_(torch.arange(8)))
    said = "torch.distributed: rank 1 of 2, 0 of 1 on its node, run 0001020304050607"
    assert str(find._of_group(None)) == said
    with pytest.raises(RuntimeError, match=r"torch\.distributed runs 2 ranks, but het_tf was not told"):
        embedding()
    with pytest.raises(ValueError, match=r"torch\.distributed runs 2 ranks, which share tables, and no par"):
        het_tf.init()


@on_torch
def test_modules_under_ddp_equal_one_process(server, tmp_path):
    """Two ranks, by torchrun itself; the refusals are in tests/lib/ddp_worker.py."""
    import ddp_worker

    functions = [partial(ddp_worker.train, name=case) for case in ddp_worker.CASES]
    job = ranks.Job(tmp_path, *functions, ddp_worker.refusals, launcher="torchrun", HET_PS=server)
    for case in ddp_worker.CASES:
        mine, other = job.values(case)
        expected = ddp_worker.train(case)
        for name, one in mine.items():
            np.testing.assert_array_equal(one, other[name], err_msg=name)
            np.testing.assert_allclose(one, expected[name], rtol=0, atol=2e-6, err_msg=f"{case} {name}")
    job.values("refusals")
    assert job.end() == 0
