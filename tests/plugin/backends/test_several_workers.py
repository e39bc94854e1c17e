"""Two ranks on PyTorch and on JAX, started by `het run` or by the variables of torchrun."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backends_lib import BACKEND

ROOT = Path(__file__).parents[3]
WORKER = ROOT / "tests/lib/backends_ranks.py"
SERVER = shutil.which("valkey-server") or shutil.which("redis-server")
CASES = ["fit", "batches", "merged", "loop", "nan", "shards", "differ", "saved", "layers"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND == "tensorflow", reason="tests/ext/workers are of TensorFlow"),
    pytest.mark.skipif(SERVER is None, reason="there is no redis-server nor valkey-server"),
]


def environment(**more):
    outside = {name: value for name, value in os.environ.items() if name != "HET_PS"}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/lib")]), "OMP_NUM_THREADS": "1"}
    return {**outside, **paths, "KERAS_BACKEND": BACKEND, "TF_CPP_MIN_LOG_LEVEL": "2", **more}


def started(*command, **more):
    """Runs a program; returns its status, and what all ranks have printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], env=environment(**more), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def het_run(*words, **more):
    return started("-m", "het_tf", "run", "--nproc", "2", *words, **more)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The folder and the output of one launch that has all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    return folder, het_run(WORKER, folder, *CASES)[1]


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_are_through(job, case):
    """The assertions of a case are in tests/lib/backends_ranks.py."""
    assert len(re.findall(rf"(^|\] ){case}: ok", job[1], re.MULTILINE)) == 2, job[1][-6000:]


def equals_the_union(folder, name):
    import backends_ranks

    found = [dict(np.load(folder / f"{name}{rank}.npz")) for rank in (0, 1)]
    for what, one in found[0].items():
        np.testing.assert_array_equal(one, found[1][what], err_msg=what)
    start = list(np.load(folder / "start.npz").values())
    expected = backends_ranks.union(name, start)
    assert np.abs(expected["weight0"] - start[0]).max() > 0.05 and "history/val_auc" in expected
    for what, one in found[0].items():
        np.testing.assert_allclose(one, expected[what], rtol=0, atol=2e-5, err_msg=what)


def test_two_ranks_equal_one_process_on_the_union_batch(job):
    folder, out = job
    assert (folder / "fit1.npz").exists(), out[-4000:]
    equals_the_union(folder, "fit")


def test_accumulate_makes_one_update_of_a_row_that_both_use(tmp_path):
    status, out = het_run(WORKER, tmp_path, "accumulate")
    assert status == 0, out[-6000:]
    equals_the_union(tmp_path, "accumulate")


# --- ranks that end, or do not fit together -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "others"),
    [("dies", r"rank 1 (has ended|is lost)"), ("raises", r"rank 1 has ended")],
)
def test_a_rank_that_is_lost_is_named_by_the_others(tmp_path, case, others):
    status, out = het_run(WORKER, tmp_path, case)
    assert status != 0
    cause = {"dies": "killed by SIGKILL", "raises": ".*OSError: the disk of rank 1 is full"}
    assert re.search(f"het run: rank 1 .* failed first: {cause[case]}", out), out[-4000:]
    assert re.search(rf"(Error|Exception).*{others}", out), out[-4000:]


@pytest.fixture
def server():
    """Address of a server with the het module."""
    from het_tf.ext.ps.python.redis_server import LocalServer

    running = LocalServer.start(unix=True)
    yield running.address
    running.stop()


def by_variables(server, *words, backends=(BACKEND, BACKEND), size=2, **more):
    """Two processes with the variables of torchrun; returns their statuses and outputs."""
    launched = {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "HET_PS": server}
    pythons = {"tensorflow": os.environ.get("HET_TEST_TENSORFLOW", sys.executable)}
    processes = [
        subprocess.Popen(
            [pythons.get(backend, sys.executable), *map(str, words)],
            env=environment(**{**launched, "RANK": str(rank), **more, "KERAS_BACKEND": backend}),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, backend in enumerate(backends)
    ]  # fmt: skip
    outs = [one.communicate(timeout=300)[0] for one in processes]
    return [one.returncode for one in processes], outs


@pytest.mark.skipif(BACKEND != "jax", reason="test_modules_under_ddp_equal_one_process has torchrun itself")
def test_the_variables_of_torchrun_start_ranks(server, tmp_path):
    statuses, outs = by_variables(server, WORKER, tmp_path, "batches", HET_RUN_ID="variables")
    assert statuses == [0, 0] and all("batches: ok" in out for out in outs), outs


@pytest.mark.skipif(BACKEND != "torch", reason="of all backends: once, with PyTorch")
def test_another_backend_on_one_rank_is_named_on_both(server, tmp_path):
    other = "tensorflow" if "HET_TEST_TENSORFLOW" in os.environ else "jax"
    statuses, outs = by_variables(server, WORKER, tmp_path, "batches", backends=("torch", other))
    assert 0 not in statuses
    for out in outs:
        assert f"Keras' backend is 'torch' on rank 0 and '{other}' on rank 1; set KERAS_BACKEND" in out, out


def launched(monkeypatch, **variables):
    defaults = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in {**defaults, **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HET_PS", raising=False)


def test_ranks_without_a_server_are_refused(monkeypatch):
    import het_tf

    launched(monkeypatch)
    with pytest.raises(
        ValueError, match="torchrun runs 2 ranks, which share tables, and no parameter server"
    ):
        het_tf.init()
    with pytest.raises(
        ValueError, match='ps is "", the store inside each process, but torchrun runs 2 ranks'
    ):
        het_tf.init(ps="")


def test_ranks_of_which_het_tf_was_not_told_are_refused(monkeypatch):
    import het_tf

    launched(monkeypatch)
    with pytest.raises(
        RuntimeError, match=r"torchrun runs 2 ranks, but het_tf was not told; call het_tf\.init"
    ):
        het_tf.keras.Embedding(2, name="untold")


def test_ranks_of_horovodrun_are_refused(monkeypatch):
    import het_tf

    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    for name in ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"):
        monkeypatch.setenv(name, "0" if "RANK" in name else "2")
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_ADDR", "localhost")
    monkeypatch.setenv("HOROVOD_GLOO_RENDEZVOUS_PORT", "1")
    with pytest.raises(
        NotImplementedError, match=f"Keras' backend is '{BACKEND}', and het_tf uses Horovod on"
    ):
        het_tf.init(ps="unix:///nowhere")


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is JAX's")
def test_a_distribution_over_several_processes_is_refused(monkeypatch):
    import jax
    import keras

    import het_tf

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(keras.distribution, "distribution", object)
    with pytest.raises(
        NotImplementedError, match=r"'far' is used under keras\.distribution over 2 processes"
    ):
        het_tf.keras.Embedding(2, name="far")


def test_a_group_of_another_size_than_the_launcher_says_is_refused(monkeypatch):
    import het_tf
    from het_tf.ext.workers.python.backends import ops

    launched(monkeypatch)
    monkeypatch.setattr(ops, "group", lambda: (f"{BACKEND}.distributed", 0, 3))
    with pytest.raises(ValueError, match=r"distributed says rank 0 of 3, and torchrun says rank 0 of 2"):
        het_tf.init(ps="unix:///nowhere")


@pytest.mark.skipif(BACKEND != "torch", reason="torch.distributed")
def test_a_group_without_a_launcher_says_the_ranks(monkeypatch):
    """As torch.multiprocessing.spawn makes it; the group gives them a word for their run."""
    import torch

    import het_tf
    from het_tf.ext.workers.python import find
    from het_tf.ext.workers.python.backends import ops

    monkeypatch.setattr(ops, "group", lambda: ("torch.distributed", 1, 2))
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: "gloo")
    monkeypatch.setattr(torch.distributed, "broadcast", lambda word, _: word.copy_(torch.arange(8)))
    said = "torch.distributed: rank 1 of 2, 0 of 1 on its node, run 0001020304050607"
    assert str(find._of_group(None)) == said
    with pytest.raises(RuntimeError, match=r"torch\.distributed runs 2 ranks, but het_tf was not told"):
        het_tf.keras.Embedding(2, name="untold")
    with pytest.raises(ValueError, match=r"torch\.distributed runs 2 ranks, which share tables, and no par"):
        het_tf.init()


# --- DistributedDataParallel --------------------------------------------------------------------------------


@pytest.mark.skipif(BACKEND != "torch", reason="modules of PyTorch")
def test_modules_under_ddp_equal_one_process(server, tmp_path):
    """Two ranks, by torchrun itself; the cases are in tests/lib/ddp_worker.py."""
    import ddp_worker

    worker = ROOT / "tests/lib/ddp_worker.py"
    _, out = started(
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        worker,
        tmp_path,
        HET_PS=server,
    )
    assert out.count("through: ok") == 2, out[-6000:]
    for case in ddp_worker.CASES:
        found = [dict(np.load(tmp_path / f"{case}{rank}.npz")) for rank in (0, 1)]
        expected = ddp_worker.train(case)
        for name, one in found[0].items():
            np.testing.assert_array_equal(one, found[1][name], err_msg=name)
            np.testing.assert_allclose(one, expected[name], rtol=0, atol=2e-6, err_msg=f"{case} {name}")
