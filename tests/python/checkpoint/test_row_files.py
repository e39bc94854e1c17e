"""Row files by the management calls alone: what a checkpoint is made of, without its manifest."""

from __future__ import annotations

import json

import numpy as np
import pytest
import redis_lib
from safetensors.numpy import load_file

import het_tf
from het_tf.python.session import native

pytestmark = [pytest.mark.tf215, pytest.mark.usefixtures("fresh")]

NAMES = ["item", 'a "quoted"/näme']


def declare(cache=None):
    """The two tables of these tests."""
    for name, dim in zip(NAMES, (7, 1), strict=True):
        spec = {"name": name, "dim": dim, "optimizer": {"name": "adam"}}
        native.call("HetCreateTable", "", json.dumps(spec), json.dumps({"cache": cache}))


def fill():
    for i, name in enumerate(NAMES):
        table = het_tf.table(name)
        ids = np.arange(-50, 1000 * (i + 1), dtype=np.int64)
        table.assign(ids, np.random.default_rng(i).normal(size=(len(ids), table.dim)))
        table.remove(ids[::10])


def rows():
    """All rows of all tables, sorted by id."""
    return {name: het_tf.table(name).scan() for name in NAMES}


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


def load(entries, floors=None):
    for path, entry in entries.items():
        native.call("HetVerifyRows", path, entry)
    native.call("HetLoadBegin", "", json.dumps({"loader": "test", "seconds": 60}))
    for name in NAMES:
        native.call("HetLoadClear", "", name)
    for path in entries:
        request = {"tables": {name: {"to": name, "slots": True} for name in NAMES}}
        native.call("HetLoadRows", "", path, json.dumps(request))
    commit = {"clock_floors": floors or {}, "applies": {"item": 17}}
    native.call("HetLoadCommit", "", json.dumps(commit))


def assert_same(got, wanted):
    for name in NAMES:
        assert len(wanted[name]["ids"]) > 0
        for column, values in wanted[name].items():
            np.testing.assert_array_equal(got[name][column], values, err_msg=f"{name} {column}")


def test_there_and_back(tmp_path):
    declare()
    fill()
    before, epochs = rows(), info()["tables"]["item"]["epochs"]
    entries = save(tmp_path / "one")
    het_tf.table("item").assign([5], np.full((1, 7), 9.0))
    het_tf.table("item").clear()
    load(entries, floors={"item": 77})
    assert_same(rows(), before)
    after = info()
    assert after["tables"]["item"]["clock_floor"] == 77
    assert after["tables"]["item"]["applies"] == 17
    assert not set(after["tables"]["item"]["epochs"]) & set(epochs)


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


@pytest.mark.slow
def test_from_this_process_to_a_server_and_back(tmp_path, server):
    declare()
    fill()
    before = rows()
    entries = save(tmp_path / "one", groups=3)
    het_tf.reset()
    het_tf.init(ps=server.address)
    declare(cache={"capacity": 100})
    load(entries, floors={"item": 99})
    assert_same(rows(), before)
    assert info()["tables"]["item"]["clock_floor"] == 99
    again = save(tmp_path / "two", groups=5)
    redis_lib.leave()
    declare()
    load(again)
    assert_same(rows(), before)


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
    with pytest.raises(ValueError, match="partition 16 is to be saved; the store has the partitions 0 to 15"):
        native.call("HetSaveRows", "", path + "x", json.dumps({"tables": NAMES, "partitions": [16]}))
    with pytest.raises(RuntimeError, match="HetLoadBegin"):
        native.call("HetLoadRows", "", path, json.dumps({"tables": {}}))
    native.call("HetLoadBegin", "", json.dumps({"loader": "test", "seconds": 60}))
    with pytest.raises(RuntimeError, match="a checkpoint is being restored"):
        het_tf.table("item").lookup([1])
    with pytest.raises(RuntimeError, match="is being loaded by 'test'"):
        native.call("HetLoadBegin", "", json.dumps({"loader": "another", "seconds": 60}))
    native.call("HetLoadAbort", "")
    assert_same(rows(), before)
    native.call("HetVerifyRows", path, "")
    damaged = json.loads(entry)
    damaged["tensors"]["item/values"]["xxh3"] = "00000000"
    with pytest.raises(ValueError, match=r"rows-0' is damaged: tensor 'item/values' \(bytes \d+ to \d+\)"):
        native.call("HetVerifyRows", path, json.dumps(damaged))
