"""het ckpt on checkpoints that training has written, and training on those that het ckpt has."""

from __future__ import annotations

import json

import checkpoint_lib
import numpy as np
import pytest
from het_ckpt_lib import het_ckpt, merged

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest as manifest_lib

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]


def saved(place):
    """A model that has trained, and a full checkpoint with two increments on it."""
    model = checkpoint_lib.model()
    paths = []
    for step in range(3):
        checkpoint_lib.fit(model, 3 * step, 3 * step + 3)
        if step == 2:
            removed = het_tf.Table("item").remove(range(20, 25))
            assert removed
        paths.append(checkpoint.save(place, model, step=step, since="latest"))
    return model, paths


def test_files_and_table_have_equal_rows(tmp_path):
    _, paths = saved(tmp_path / "run")
    table = het_tf.Table("item").scan()
    columns = [table[name].tolist() for name in ("ids", "clocks", "rows", "last_used", "counts")]
    expected = {key: tuple(row) for key, *row in zip(*columns, strict=True)}
    found = merged(tmp_path / "whole", paths[-1])["item"]
    assert {
        key: (clock, value + slots, *use) for key, (clock, value, slots, *use) in found.items()
    } == expected
    het_ckpt("verify", paths[-1])  # every checksum of the plugin, and the partition of every key
    document = json.loads(het_ckpt("inspect", tmp_path / "run", "--json").out)
    (item,) = document["tables"]
    assert 0 < item["rows"] and 0 < item["removed"] <= 5 and not item["complete"]
    assert item["applies"] == het_tf.Table("item").updates
    assert len(document["chain"]) == 3 and document["dense"]["tensors"]


def test_a_merged_checkpoint_restores_as_the_chain_does(tmp_path):
    model, paths = saved(tmp_path / "run")
    expected, dense = checkpoint_lib.tables(), checkpoint_lib.weights(model)
    het_ckpt("merge", tmp_path / "whole/ckpt-00000002", paths[-1])
    checkpoint.verify(tmp_path / "whole")
    checkpoint_lib.fit(model, 20, 22)
    checkpoint.restore(tmp_path / "whole", model)
    checkpoint_lib.same(checkpoint_lib.tables(), expected)
    for one, other in zip(checkpoint_lib.weights(model), dense, strict=True):
        np.testing.assert_array_equal(one, other)
    # Training goes on, and a merged checkpoint is one to build on.
    checkpoint_lib.fit(model, 9, 11)
    after = checkpoint_lib.tables()
    last = checkpoint.save(tmp_path / "whole", model, since="latest")
    assert manifest_lib.read_manifest(last).base["name"] == "ckpt-00000002"
    checkpoint_lib.fit(model, 20, 22)
    checkpoint.restore(last, model)
    checkpoint_lib.same(checkpoint_lib.tables(), after)
