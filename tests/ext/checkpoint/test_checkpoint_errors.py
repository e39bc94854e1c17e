"""Saves and loads that are refused, fail or break off, in one process; and what is seen of them."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from checkpoint_lib import layer, same, tables, train, weights
from played_lib import Played

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest as manifest_lib
from het_tf.ext.checkpoint.python import reading, writing
from het_tf.ext.checkpoint.python.saving import moment
from het_tf.python.session import native, settings

keras = tf.keras
pytestmark = [pytest.mark.usefixtures("fresh")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -1}, "step is -1; give an integer of 0 or more"),
        ({"step": 1.5}, r"step is 1\.5"),
        ({"step": True}, "step is True"),
        ({"keep": 0}, "keep is 0; give an integer of 1 or more"),
    ],
)
def test_arguments_out_of_range_are_refused(tmp_path, options, message):
    layer("t")
    with pytest.raises(ValueError, match=message):
        checkpoint.save(tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()


def test_nothing_to_save_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no tables, and no model is given"):
        checkpoint.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    checkpoint.save(tmp_path, made)
    before = weights(made)
    made.set_weights([one + 1 for one in made.get_weights()])
    checkpoint.restore(tmp_path, made)
    assert all(np.array_equal(a, b) for a, b in zip(weights(made), before, strict=True))


def test_steps_grow(tmp_path):
    train(layer("t"), end=2)
    checkpoint.save(tmp_path, step=10)
    with pytest.raises(ValueError, match=r"step is 10, and .* has ckpt-00000010; give a later step"):
        checkpoint.save(tmp_path, step=np.int64(10))
    assert checkpoint.save(tmp_path, step=np.int64(11), keep=1).name == "ckpt-00000011"
    assert [one.name for one in checkpoint.checkpoints(tmp_path)] == ["ckpt-00000011"]


def test_a_table_that_is_cleared_meanwhile_fails_the_save(tmp_path, monkeypatch):
    train(layer("t"), end=2)
    write = writing.write_files

    def and_clear(*arguments):
        written = write(*arguments)
        het_tf.Table("t").clear()
        return written

    monkeypatch.setattr(writing, "write_files", and_clear)
    with pytest.raises(RuntimeError, match="'t' was cleared, loaded or dropped while it was saved"):
        checkpoint.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown(tmp_path, capsys):
    train(layer("t"), end=2)
    checkpoint.save(tmp_path, progress=True)
    checkpoint.restore(tmp_path, progress=True)
    shown = capsys.readouterr().out
    assert "saving into" in shown and "restoring" in shown and "rows" in shown
    checkpoint.save(tmp_path)
    checkpoint.restore(tmp_path)
    assert capsys.readouterr().out == ""


def test_tables_for_other_ways_of_saving(tmp_path):
    """The seam below: one process, a directory of one's own name, one of the tables."""
    a, b = layer("a"), layer("b")
    train(a), train(b)
    saved = tables()
    assert list(manifest_lib.read_manifest(moment.take(tmp_path / "side", "", "a")).tables) == ["a"]
    train(a, 50, 52), train(b, 50, 52)
    later = tables()
    moment.put_back(tmp_path / "side", "", "a")
    same(tables(), {"a": saved["a"], "b": later["b"]})


def test_load_keeps_unsent_updates_of_other_tables(tmp_path):
    def make(name):
        return het_tf.keras.Embedding(3, name=name, cache=het_tf.Cache(staleness=math.inf, rows=50))

    a, b = make("a"), make("b")
    train(a), train(b)
    moment.take(tmp_path / "side", "", "a")
    before = tables()
    train(b, 10, 12)
    assert het_tf.Table("b").stats()["cache"]["unsent_rows"] > 0
    moment.put_back(tmp_path / "side", "", "a")
    assert het_tf.Table("b").stats()["cache"]["discarded_ticks"] == 0
    found = tables()
    same({"a": found["a"]}, {"a": before["a"]})
    train(b, 12, 14)
    checkpoint.save(tmp_path / "c")
    het_tf.Table("a").drop()
    expected = tables()
    train(b, 14, 16)
    assert checkpoint.restore(tmp_path / "c", strict=False).only_in_checkpoint == ("a",)
    same(tables(), expected)


def test_a_load_that_breaks_off_says_what_to_do(tmp_path, monkeypatch):
    made = layer("t")
    train(made)
    saved = tables()
    path = checkpoint.save(tmp_path)
    call = native.call

    def fail(function, *arguments):
        if function == "HetLoadRows" and "rows-00005" in arguments[1]:
            raise ConnectionError("the server is gone")
        return call(function, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(native, "call", fail)
        with pytest.raises(
            ConnectionError, match=r"half-way, and the tables 't' may hold a part .*restore again"
        ):
            checkpoint.restore(path)
    checkpoint.restore(path)
    same(tables(), saved)
    train(made, 10, 11)


def test_rank_failing_at_commit_tells_others(tmp_path, monkeypatch):
    """Else they wait for it in the next exchange."""
    train(layer("t"))
    path = checkpoint.save(tmp_path)
    said = []
    two = Played()

    def others(value):
        said.append(value[2])
        return [(value[0], [], "")]

    two.others = others

    def gone(_):
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(settings.current, "workers", two)
    monkeypatch.setattr(reading, "store_info", gone)
    with pytest.raises(ConnectionError, match="is gone"):
        checkpoint.restore(path)
    assert "is gone" in said[-1]


@pytest.mark.long
def test_a_table_is_streamed(tmp_path):
    """Saving and restoring take buffers, and no second table; also where a full table is replaced."""
    layer("t", 64, "SGD")
    table, rows_of_piece = het_tf.Table("t"), 100_000
    for begin in range(0, 10 * rows_of_piece, rows_of_piece):
        table.assign(np.arange(begin, begin + rows_of_piece), np.ones((rows_of_piece, 64), np.float32))
    allowed = table.bytes // 10 + (48 << 20)
    assert table.bytes > 250 << 20, "much more than what is allowed"
    # The library says where its own memory ends; Python's is traced.
    native.call("HetSetAllocLimit", native.call_int("HetAllocatedBytes") + allowed)
    try:
        for action in (
            lambda: checkpoint.save(tmp_path),
            lambda: checkpoint.save(tmp_path, since="latest"),
            lambda: checkpoint.verify(tmp_path),
            lambda: checkpoint.restore(tmp_path),
        ):
            tracemalloc.start()
            action()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < allowed, (peak, allowed)
    finally:
        native.call("HetSetAllocLimit", 2**63 - 1)
    assert table.size == 10 * rows_of_piece


@pytest.mark.parametrize("function", ["HetLoadBegin", "HetLoadClear", "HetLoadRows", "HetLoadCommit"])
def test_process_can_load_after_interrupted_load(tmp_path, monkeypatch, function):
    a = layer("a")
    train(a)
    saved = tables()
    checkpoint.save(tmp_path)
    call = native.call

    def interrupted(name, *arguments):
        answer = call(name, *arguments)
        if name == function:
            monkeypatch.setattr(native, "call", call)
            raise KeyboardInterrupt  # Python raises it when the call is over
        return answer

    monkeypatch.setattr(native, "call", interrupted)
    told = None if function == "HetLoadBegin" else "restore again before"
    with pytest.raises(KeyboardInterrupt, match=told):
        checkpoint.restore(tmp_path)
    checkpoint.restore(tmp_path)
    same(tables(), saved)
    train(a, 10, 12)


@pytest.mark.parametrize("value", [None, 5])
def test_what_is_no_path_is_named(value):
    layer("a")
    with pytest.raises(TypeError, match=f"directory is {value}; give a path"):
        checkpoint.save(value)
    with pytest.raises(TypeError, match=f"path is {value}; give a path"):
        checkpoint.restore(value)
    with pytest.raises(TypeError, match=f"filepath is {value}; give a path"):
        het_tf.callbacks.Checkpoint(value)


def test_tables_that_differ_get_the_remedy_that_fits(tmp_path):
    a = layer("a")
    train(a)
    checkpoint.save(tmp_path)
    layer("b")
    with pytest.raises(ValueError, match="only this process has 'b'; give strict=False"):
        checkpoint.restore(tmp_path)
    het_tf.reset()
    layer("b")
    with pytest.raises(ValueError, match=r"make the layers that use them first, with the same names$"):
        checkpoint.restore(tmp_path)
