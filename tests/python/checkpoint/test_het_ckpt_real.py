"""het-ckpt on checkpoints that training has written, and training on those that het-ckpt has."""

from __future__ import annotations

import json

import checkpoint_lib
import numpy as np
import pytest
from het_ckpt_lib import het_ckpt
from safetensors.numpy import load_file

import het_tf
from het_tf import checkpoint
from het_tf.python.checkpoint.rowfile import RowFile

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh")]


def saved(place):
    """A model that has trained, and a full checkpoint with two increments on it."""
    model = checkpoint_lib.model()
    paths = []
    for step in range(3):
        checkpoint_lib.fit(model, 3 * step, 3 * step + 3)
        if step == 2:
            removed = het_tf.table("item").remove(range(20, 25))
            assert removed
        paths.append(checkpoint.save(place, model, step=step, since="latest"))
    return model, paths


def arrays(path, place):
    het_ckpt("to-npz", path, place / "x.npz", "--slots", "--force")
    with np.load(place / "x.npz") as found:
        order = np.argsort(found["item/ids"])
        return {name.rpartition("/")[2]: found[name][order] for name in found}


def test_what_is_in_the_files_is_what_is_in_the_table(tmp_path):
    _, paths = saved(tmp_path / "run")
    table = het_tf.table("item").scan()
    found = arrays(paths[-1], tmp_path)
    for name in ("ids", "clocks", "last_used", "counts"):
        np.testing.assert_array_equal(found[name], table[name])
    np.testing.assert_array_equal(np.hstack([found["values"], found["slots"]]), table["rows"])
    het_ckpt("verify", paths[-1])  # every checksum of the plugin, and the partition of every key
    document = json.loads(het_ckpt("inspect", tmp_path / "run", "--json").out)
    (item,) = document["tables"]
    assert item["rows"] == len(table["ids"]) and 0 < item["own_removed"] <= 5 and not item["complete"]
    assert item["applies"] == het_tf.table("item").applies
    assert len(document["chain"]) == 3 and document["dense"]["tensors"]


def test_a_merged_checkpoint_restores_as_the_chain_does(tmp_path):
    model, paths = saved(tmp_path / "run")
    expected, dense = checkpoint_lib.tables(), checkpoint_lib.weights(model)
    het_ckpt("merge", tmp_path / "whole/ckpt-00000002", paths[-1])
    assert "0        0        0" in het_ckpt("diff", paths[-1], tmp_path / "whole", "--exit-code").out
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
    assert checkpoint.read_manifest(last).base["name"] == "ckpt-00000002"
    checkpoint_lib.fit(model, 20, 22)
    checkpoint.restore(last, model)
    checkpoint_lib.same(checkpoint_lib.tables(), after)


def test_merged_increments_are_an_increment(tmp_path):
    model, paths = saved(tmp_path / "run")
    expected = checkpoint_lib.tables()
    het_ckpt("merge", tmp_path / "run/ckpt-00000009", paths[2], paths[1])
    assert checkpoint.read_manifest(tmp_path / "run/ckpt-00000009").base["name"] == paths[0].name
    checkpoint_lib.fit(model, 20, 22)
    checkpoint.restore(tmp_path / "run/ckpt-00000009", model)
    checkpoint_lib.same(checkpoint_lib.tables(), expected)


def test_the_safetensors_package_reads_what_the_plugin_writes(tmp_path):
    _, paths = saved(tmp_path / "run")
    keys = 0
    for path in [one for place in paths for one in place.glob("*.safetensors")]:
        theirs = load_file(path)
        if path.name.startswith("rows"):
            ours = RowFile(path)
            assert theirs.keys() == ours.tensors.keys()
            for name, tensor in theirs.items():
                np.testing.assert_array_equal(tensor, ours.column(*name.rsplit("/", 1)))
            keys += len(theirs["item/keys"])
        else:
            assert {one.shape for one in theirs.values()}
    assert keys == sum(one.rows for one in map(checkpoint.read_manifest, paths))


@pytest.mark.parametrize("file", ["rows-00003", "dense", "manifest"])
def test_het_ckpt_and_the_plugin_see_the_same_damage(tmp_path, file):
    model, paths = saved(tmp_path / "run")
    (path,) = paths[0].glob(f"{file}*")
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=file):
        checkpoint.restore(paths[0], model)
    assert file in het_ckpt("verify", paths[2], status=1).err
