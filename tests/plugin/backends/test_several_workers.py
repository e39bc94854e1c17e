"""Two ranks on each backend of Keras, started by `het run` or by the variables of torchrun."""

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
CASES = ["fit", "batches", "loop", "nan", "shards", "differ", "saved"]

pytestmark = [
    pytest.mark.slow,
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


def test_two_ranks_equal_one_process_on_the_union_batch(job):
    import backends_ranks

    folder, out = job
    assert (folder / "fit1.npz").exists(), out[-4000:]
    found = [dict(np.load(folder / f"fit{rank}.npz")) for rank in (0, 1)]
    for name, one in found[0].items():
        np.testing.assert_array_equal(one, found[1][name], err_msg=name)
    start = list(np.load(folder / "start.npz").values())
    expected = backends_ranks.union(start)
    assert np.abs(expected["weight0"] - start[0]).max() > 0.05 and "history/val_auc" in expected
    for name, one in found[0].items():
        np.testing.assert_allclose(one, expected[name], rtol=0, atol=2e-5, err_msg=name)
