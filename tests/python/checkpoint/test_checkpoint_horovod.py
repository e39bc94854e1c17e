"""Checkpoints of several ranks: all write and read, an error of one is one of all, other numbers of ranks."""

from __future__ import annotations

import horovod_lib
import numpy as np
import pytest
from checkpoint_lib import fit, model, tables, weights

import het_tf
from het_tf import checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(horovod_lib.missing()), reason=horovod_lib.missing() or "there is Horovod"),
]
WORKER = horovod_lib.LIB / "checkpoint_worker.py"


def launch(case, place, ranks, said):
    done = horovod_lib.launch(WORKER, case, place, ranks=ranks)
    assert done.returncode == 0, done.stdout[-6000:]
    assert done.stdout.count(said) == ranks, done.stdout[-3000:]


def test_from_2_ranks_to_1_process_and_to_3(tmp_path, fresh):
    launch("save", tmp_path, 2, "saved and restored")
    made = model(whole=True)
    fit(made, 0, 1)
    found = checkpoint.restore(tmp_path / "c", made)
    assert found.step == 7 and found.base is not None and found.partitions == 64
    later = np.load(tmp_path / "later0.npz")
    table = tables()["item"]
    for name in ("ids", "clocks", "counts", "rows"):
        np.testing.assert_array_equal(table[name], later[name])
    for number, one in enumerate(weights(made)):
        np.testing.assert_array_equal(one, later[f"w{number}"])
    # One process saves, and three ranks restore.
    het_tf.reset()
    made = model(whole=True)
    checkpoint.restore(tmp_path / "c", made)
    (tmp_path / "c").rename(tmp_path / "of_two")
    checkpoint.restore(tmp_path / "of_two" / "ckpt-00000004", made)
    checkpoint.save(tmp_path / "c", made, step=4)
    checkpoint.restore(tmp_path / "of_two", made)
    checkpoint.save(tmp_path / "c", made, step=7)
    launch("load", tmp_path, 3, "restored")


def test_an_error_of_one_rank_is_one_of_all(tmp_path):
    launch("fail", tmp_path, 2, "errors are known to all")
