"""Fixtures of the tests of checkpoints."""

import numpy as np
import pytest
from het_ckpt_lib import Table, rows, write


@pytest.fixture
def chain(tmp_path):
    """A full checkpoint and two increments in tmp_path/run; returns their paths."""
    place = tmp_path / "run"
    user = {"name": "user/é", "dim": 2, "slots": 0}
    dense = [{"model/kernel": np.full((3, 2), step, np.float32)} for step in range(3)]
    full = write(
        place / "ckpt-00000001", [Table(rows(range(-50, 150))), Table(rows(range(30), 1, 2, 0), **user)],
        dense=dense[0],
    )  # fmt: skip
    second = write(
        place / "ckpt-00000002",
        [Table(rows(range(10, 20), 3), [0, 1, 2], False), Table({}, [], False, **user)],
        full, files=2, step=8, dense=dense[1],
    )  # fmt: skip
    third = write(
        place / "ckpt-00000003",
        [Table(rows([1, 12, 500], 4), [13], False), Table(rows([7], 9, 2, 0), **user)],
        second, files=4, step=9, dense=dense[2],
    )  # fmt: skip
    return [full, second, third]
