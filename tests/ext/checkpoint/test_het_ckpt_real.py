"""het ckpt verify on a checkpoint that training has written."""

from __future__ import annotations

import checkpoint_lib
import pytest
from het_ckpt_lib import content, het_ckpt

import het_tf
from het_tf import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]


def test_files_and_table_have_equal_rows(tmp_path):
    model = checkpoint_lib.model()
    checkpoint_lib.fit(model, 0, 6)
    assert het_tf.Table("item").remove(range(20, 25))
    path = checkpoint.save(tmp_path / "run", model)
    table = het_tf.Table("item").scan()
    columns = [table[name].tolist() for name in ("ids", "clocks", "rows", "last_used", "counts")]
    expected = {key: tuple(row) for key, *row in zip(*columns, strict=True)}
    found = content(path)["item"]
    assert {
        key: (clock, value + slots, *use) for key, (clock, value, slots, *use) in found.items()
    } == expected
    het_ckpt("verify", path)  # every checksum of the plugin, and the partition of every key
