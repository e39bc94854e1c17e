"""Checkpoints of tables at Redis servers: other numbers of shards, resumed training, servers that die."""

from __future__ import annotations

import contextlib
import os
import time

import numpy as np
import pytest
import redis_lib
from checkpoint_lib import fit, layer, model, same, step, tables, train, weights

import het_tf
from het_tf import checkpoint
from het_tf.python.checkpoint import reading
from het_tf.python.session import native

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(redis_lib.missing()), reason=redis_lib.missing() or "there is a server"),
    pytest.mark.usefixtures("fresh"),
]


@contextlib.contextmanager
def store(place, shards):
    """A store of so many servers, 0: in this process; empty, and used from now on."""
    het_tf.reset()
    place.mkdir()
    if shards == 0:
        het_tf.init(ps="")
        yield None
    elif shards == 1:
        with redis_lib.running(place) as server:
            het_tf.init(ps=server.address)
            yield server
    else:
        with redis_lib.cluster(place, shards) as cluster:
            het_tf.init(ps=cluster.address)
            yield cluster


def test_4_shards_2_8_embedded_and_1_hold_the_same(tmp_path):
    """Values, slots, clocks, counts, times of last use; each store saves for the next, increments too."""

    def layers():
        return layer("a", 4, "Adam"), layer("b", 3, "RowWiseAdagrad")

    expected = None
    for number, shards in enumerate((4, 2, 8, 0, 1)):
        with store(tmp_path / f"store{number}", shards):
            a, b = layers()
            if expected is None:
                train(a)
                train(b, ids=2000, batch=3000)
            else:
                train(a, 90, 92)  # rows that are to go
                found = checkpoint.restore(tmp_path / f"c{number - 1}")
                same(tables(), expected)
                same_rows = {name: len(expected[name]["ids"]) for name in expected}
                assert {name: het_tf.table(name).size for name in same_rows} == same_rows
                assert found.base is not None, "a base and an increment"
            base = checkpoint.save(tmp_path / f"c{number}")
            step(a, np.arange(50), number)  # the store goes on from what was restored
            het_tf.table("b").remove(tables()["b"]["ids"][:11])
            checkpoint.save(tmp_path / f"c{number}", since=base)
            expected = tables()
            assert len(checkpoint.read_manifest(base).tables["a"]["epochs"]) == (16 if shards == 0 else 64)


def test_an_increment_on_a_checkpoint_of_another_number_of_partitions(tmp_path, server):
    """16 partitions in this process, 64 at Redis, and back."""
    train(layer("t"))
    checkpoint.save(tmp_path)
    het_tf.reset()
    het_tf.init(ps=server.address)
    made = layer("t")
    checkpoint.restore(tmp_path)
    ids = het_tf.table("t").to_numpy()[0]
    step(made, ids[:9], 3)
    het_tf.table("t").remove(ids[20:24])
    path = checkpoint.save(tmp_path, since="latest")
    found = checkpoint.read_manifest(path)
    assert found.partitions == 64
    assert (found.tables["t"]["rows"], found.tables["t"]["removed"], found.tables["t"]["complete"]) == (
        9,
        4,
        False,
    )
    expected = tables()
    redis_lib.leave()
    layer("t")
    checkpoint.restore(tmp_path)
    same(tables(), expected)


@pytest.mark.parametrize("of", ["whole numbers", "RowWiseAdagrad", "Adam"])
def test_training_goes_on_as_if_it_had_not_stopped(tmp_path, server, of):
    whole = of == "whole numbers"
    found = []
    for interrupted in (False, True):
        assert server.command("FLUSHALL").startswith(b"+OK")
        het_tf.reset()
        het_tf.init(ps=server.address)
        made = model(of, whole)
        fit(made, 0, 5)
        if interrupted:
            checkpoint.save(tmp_path, made, step=5)
            fit(made, 100, 103)
            het_tf.reset()  # the process forgets, the server does not
            made = model(of, whole)
            checkpoint.restore(tmp_path, made)
        fit(made, 5, 10)
        found.append((weights(made), tables()))
    (dense, table), (dense_again, table_again) = found
    same(table_again, table, ("ids", "clocks", "counts"))
    compare = (
        np.testing.assert_array_equal if whole else lambda a, b: np.testing.assert_allclose(a, b, 1e-6, 1e-7)
    )
    compare(table_again["item"]["rows"], table["item"]["rows"])
    for a, b in zip(dense, dense_again, strict=True):
        compare(b, a)


def test_caches_of_the_process_believe_nothing_after_a_restore(tmp_path, server):
    het_tf.init(ps=server.address)
    made = het_tf.keras.Embedding(3, name="t", cache=het_tf.Cache(staleness=None, rows=1000))
    train(made)
    checkpoint.save(tmp_path)
    saved = tables()
    train(made, 10, 20)  # in the cache, and not sent
    checkpoint.restore(tmp_path)
    ids = saved["t"]["ids"]
    np.testing.assert_array_equal(made(ids, training=True), saved["t"]["rows"][:, :3])
    same(tables(), saved)


def test_a_server_that_dies_fails_the_save_and_leaves_the_last_one(tmp_path, monkeypatch):
    call = native.call
    with redis_lib.running(tmp_path / "server") as server:
        het_tf.init(ps=server.address, timeout=1.0, deadline=2.0)
        train(layer("t"))
        path = checkpoint.save(tmp_path / "c")

        def kill(function, *arguments):
            if function == "HetSaveRows" and "rows-00007" in arguments[1]:
                server.kill()
            return call(function, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(native, "call", kill)
            with pytest.raises((ConnectionError, TimeoutError)):
                checkpoint.save(tmp_path / "c")
        assert list((tmp_path / "c").iterdir()) == [path]
        assert checkpoint.verify(tmp_path / "c").path == path


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


def test_a_loader_that_died_holds_the_tables_for_a_while_and_says_so(tmp_path, server):
    het_tf.init(ps=server.address)
    train(layer("t"), end=3)
    path = checkpoint.save(tmp_path)
    native.call("HetLoadBegin", "", '{"loader": "gone", "seconds": 8}')
    native.call("HetReset", "")  # as if its process had died
    het_tf.python.layer.registry.forget("")
    layer("t")
    with pytest.raises((RuntimeError, ValueError), match="gone loads since"):
        checkpoint.restore(path)
    saved = None
    for _ in range(300):
        try:
            checkpoint.restore(path)
        except (RuntimeError, ValueError):
            time.sleep(0.1)
            continue
        saved = tables()
        break
    assert saved is not None and len(saved["t"]["ids"])


def test_an_increment_after_a_server_came_back_from_an_older_state(tmp_path):
    """The lost updates come again with other gradients: the clocks are the base's, the rows are not."""
    with store(tmp_path / "server", 1) as server:
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


def test_what_is_half_loaded_is_not_saved(tmp_path, server):
    """Another process has begun a load: a save waits for it."""
    het_tf.init(ps=server.address, timeout=1, deadline=3)
    train(layer("t"), end=3)
    keys = [word for word in server.command("KEYS", "*").decode().split() if word[:1] not in "$*"]
    loading = [server.command("HET.TABLE", key, "BEGIN", "other", "60").startswith(b"+OK") for key in keys]
    assert any(loading)
    with pytest.raises((ConnectionError, TimeoutError), match="is being loaded by other"):
        checkpoint.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
