"""Row files by only the management calls: the files of a checkpoint without its manifest."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import het_tf
from het_tf.ext.checkpoint.python.row_files import verify_rows
from het_tf.python.session import native

pytestmark = pytest.mark.usefixtures("fresh")

NAMES = ["item", 'a "quoted"/näme']


def declare(**cache):
    """The two tables of these tests."""
    for name, dim in zip(NAMES, (7, 1), strict=True):
        spec = {"name": name, "dim": dim, "optimizer": {"name": "adam"}}
        native.call("HetCreateTable", "", json.dumps(spec), json.dumps(cache))


def fill():
    for i, name in enumerate(NAMES):
        table = het_tf.Table(name)
        ids = np.arange(-50, 1000 * (i + 1), dtype=np.int64)
        table.assign(ids, np.random.default_rng(i).normal(size=(len(ids), table.dim)))
        table.remove(ids[::10])


def rows():
    """All rows of all tables, sorted by id."""
    return {name: het_tf.Table(name).scan() for name in NAMES}


def info():
    return json.loads(native.call("HetStoreInfo", ""))


def save(directory, groups=2):
    directory.mkdir()
    partitions = info()["partitions"]
    entries = {}
    for group in range(groups):
        path = str(directory / f"rows-{group}")
        request = {"tables": NAMES, "partitions": list(range(group, partitions, groups)), "since": None}
        entries[path] = native.call("HetSaveRows", "", path, json.dumps(request))
    return entries


def assert_same(got, wanted):
    for name in NAMES:
        assert len(wanted[name]["ids"]) > 0
        for column, values in wanted[name].items():
            np.testing.assert_array_equal(got[name][column], values, err_msg=f"{name} {column}")


def test_the_safetensors_package_reads_it(tmp_path):
    declare()
    fill()
    before = rows()
    for entry in save(tmp_path / "one", groups=1):
        tensors = load_file(entry)
        order = np.argsort(tensors["item/keys"])
        np.testing.assert_array_equal(tensors["item/keys"][order], before["item"]["ids"])
        np.testing.assert_array_equal(tensors["item/values"][order], before["item"]["rows"][:, :7])
        np.testing.assert_array_equal(tensors["item/slots"][order], before["item"]["rows"][:, 7:])


def test_what_is_refused(tmp_path):
    declare()
    fill()
    before = rows()
    entries = save(tmp_path / "one", groups=1)
    ((path, entry),) = entries.items()
    with pytest.raises(OSError, match=r"cannot create .*rows-0.*File exists"):
        native.call("HetSaveRows", "", path, json.dumps({"tables": NAMES, "partitions": [0], "since": None}))
    with pytest.raises(OSError, match=r"cannot create .*: No such file or directory"):
        nowhere = str(tmp_path / "nowhere" / "rows")
        native.call("HetSaveRows", "", nowhere, json.dumps({"tables": NAMES, "partitions": [0]}))
    with pytest.raises(LookupError, match=r"no table 'no' .*item"):
        native.call("HetSaveRows", "", path + "x", json.dumps({"tables": ["no"], "partitions": [0]}))
    with pytest.raises(ValueError, match=r"partition 16 cannot be saved; the store has .* 0 to 15"):
        native.call("HetSaveRows", "", path + "x", json.dumps({"tables": NAMES, "partitions": [16]}))
    with pytest.raises(RuntimeError, match="HetLoadBegin"):
        native.call("HetLoadRows", "", path, json.dumps({"tables": {}}))
    native.call("HetLoadBegin", "", json.dumps({"loader": "test", "seconds": 60}))
    with pytest.raises(RuntimeError, match="a checkpoint is being restored"):
        het_tf.Table("item").lookup([1])
    with pytest.raises(RuntimeError, match="is being loaded by 'test'"):
        native.call("HetLoadBegin", "", json.dumps({"loader": "another", "seconds": 60}))
    native.call("HetLoadAbort", "")
    assert_same(rows(), before)
    damaged = json.loads(entry)
    damaged["tensors"]["item/values"]["xxh3"] = "00000000"
    with pytest.raises(ValueError, match=r"rows-0' is damaged: 'item/values', bytes \d+ to \d+, has"):
        verify_rows(path, damaged)
