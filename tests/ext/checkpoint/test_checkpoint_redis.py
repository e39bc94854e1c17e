"""Checkpoints of tables at Redis servers: other numbers of shards, resumed training, servers that die."""

import os
import time

import numpy as np
import pytest
import redis_lib
from checkpoint_lib import layer, remove_after_first_file, same, step, tables, train

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest, reading
from het_tf.python.session import native

pytestmark = redis_lib.MARKS


def test_removals_beyond_max_tombstones_during_an_increment_make_it_whole(tmp_path, server, monkeypatch):
    """One file is an increment, the next ones cannot be: with the base, removed rows would come back."""
    assert server.command("CONFIG", "SET", "het.max-tombstones", "2").startswith(b"+OK")
    het_tf.init(ps=server.address)
    made = layer("t")
    step(made, np.arange(2000), 1)
    checkpoint.save(tmp_path)
    step(made, np.arange(300), 2)
    remove_after_first_file(monkeypatch, "t", np.arange(100, 2000))
    with pytest.warns(het_tf.HetWarning, match="'t' is written whole, .*het.max-tombstones"):
        path = checkpoint.save(tmp_path, since="latest")
    found = manifest.read_manifest(path)
    assert found.base is None and found.tables["t"]["complete"]
    assert checkpoint.verify(path).path == path
    expected = tables()
    assert len(expected["t"]["ids"]) == 100
    redis_lib.leave()
    layer("t")
    checkpoint.restore(path)
    same(tables(), expected)


@pytest.mark.long
def test_a_long_load_keeps_the_tables(tmp_path, server, monkeypatch):
    """The mark of the load would end after three seconds; the load takes six, and renews it."""
    het_tf.init(ps=server.address)
    train(layer("t"))
    saved = tables()
    checkpoint.save(tmp_path)
    call = native.call
    begun = []

    def slowly(function, *arguments):
        if function == "HetLoadRows":
            time.sleep(6 / 16 * len(os.sched_getaffinity(0)))
        begun.append(function == "HetLoadBegin")
        return call(function, *arguments)

    monkeypatch.setattr(reading, "_SECONDS", 3)
    monkeypatch.setattr(native, "call", slowly)
    checkpoint.restore(tmp_path)
    same(tables(), saved)
    assert sum(begun) > 2


@pytest.mark.long
def test_increment_after_server_lost_updates(tmp_path):
    """The lost updates come again with other gradients: the clocks are the base's, the rows are not."""
    with redis_lib.running(tmp_path / "server") as server:
        het_tf.init(ps=server.address)
        made = layer("t")
        step(made, [1, 2, 3], 1)
        assert server.command("SAVE").startswith(b"+OK")
        step(made, [1, 2, 3], 2)
        base = checkpoint.save(tmp_path / "c")
        server.kill()
        server.start()
        step(made, [1, 2, 3], 3)
        after = checkpoint.save(tmp_path / "c", since=base)
        saved = tables()
        checkpoint.restore(after)
        same(tables(), saved)
