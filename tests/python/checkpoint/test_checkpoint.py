"""Saving and restoring of tables and models in one process."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from checkpoint_lib import files, fit, layer, model, same, step, tables, train, weights

import het_tf
from het_tf import checkpoint
from het_tf.python.checkpoint import reading, rowfile, rows, writing
from het_tf.python.session import native, runtime

keras = tf.keras
pytestmark = [pytest.mark.tf215, pytest.mark.usefixtures("fresh")]
OPTIMIZERS = ["SGD", "Momentum", "RMSProp", "Adam", "Adagrad", "RowWiseAdagrad", "FTRL"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_everything_of_a_table_comes_back(tmp_path, name):
    layer("a", 5, name), layer("b/x y", 1, name)
    train(layer("a", 5, name))
    train(layer("b/x y", 1, name), ids=3000, batch=3000, end=2)
    saved = tables()
    applies = het_tf.table("a").applies
    path = checkpoint.save(tmp_path / "c", step=7)
    assert path == tmp_path / "c" / "ckpt-00000007" == checkpoint.latest(tmp_path / "c")
    het_tf.reset()
    a = layer("a", 5, name)
    layer("b/x y", 1, name)
    train(a, 50, 60)  # what was there goes
    found = checkpoint.restore(tmp_path / "c")
    same(tables(), saved)
    assert (found.path, found.step, found.namespace) == (path, 7, "")
    assert {one: found.tables[one]["rows"] for one in found.tables} == {
        one: len(saved[one]["ids"]) for one in saved
    }
    assert het_tf.table("a").applies == applies == 10
    np.testing.assert_array_equal(
        a(saved["a"]["ids"], training=False), het_tf.table("a").lookup(saved["a"]["ids"])
    )


def test_a_table_behind_a_cache_is_saved_with_what_it_holds_back(tmp_path):
    def make():
        return het_tf.keras.Embedding(3, name="t", cache=het_tf.Cache(staleness=None, rows=50))

    train(make())
    assert het_tf.table("t").stats()["cache"]["unsent_rows"] > 0
    checkpoint.save(tmp_path)
    saved = tables()
    train(make(), 10, 20)
    assert het_tf.table("t").stats()["cache"]["unsent_rows"] > 0
    checkpoint.restore(tmp_path)
    same(tables(), saved)
    ids = saved["t"]["ids"]
    np.testing.assert_array_equal(make()(ids, training=False), het_tf.table("t").lookup(ids))


def test_numpy_alone_reads_the_files(tmp_path):
    train(layer("item", 4, "Adam"))
    path = checkpoint.save(tmp_path)
    manifest = checkpoint.read_manifest(path)
    read = [rowfile.RowFile(path / file["name"]) for file in manifest.files]
    assert [one.bytes for one in read] == [file["bytes"] for file in manifest.files]
    names = {"ids": "keys", "clocks": "clocks", "last_used": "last_used", "counts": "counts"}
    expected = tables()["item"]
    found = {
        column: np.concatenate([one.column("item", name) for one in read]) for column, name in names.items()
    }
    found["rows"] = np.concatenate(
        [np.concatenate([one.column("item", name) for name in ("values", "slots")], axis=1) for one in read]
    )
    order = np.argsort(found["ids"])
    same({"item": {column: value[order] for column, value in found.items()}}, {"item": expected})


def test_namespaces_are_apart(tmp_path):
    for namespace in ("", "one"):
        with het_tf.namespace(namespace):
            train(layer("item"), end=3 if namespace else 5)
    outside, inside = tables(), tables("one")
    checkpoint.save(tmp_path / "outside")
    checkpoint.save(tmp_path / "inside", namespace="one")
    with het_tf.namespace("two"):
        layer("item")
    checkpoint.restore(tmp_path / "inside", namespace="two")
    same(tables("two"), inside)
    with het_tf.namespace("two"):
        checkpoint.restore(tmp_path / "outside")
    same(tables("two"), outside)
    same(tables(), outside)
    same(tables("one"), inside)


def test_the_clock_of_a_row_that_was_removed_does_not_go_back(tmp_path):
    """It goes on from the table's floor; else an increment or a cache would take another row for this one."""
    made = layer("t")
    train(made)
    ids = het_tf.table("t").to_numpy()[0]
    het_tf.table("t").remove(ids[:20])
    checkpoint.save(tmp_path)
    step(made, ids[:20], 3)
    expected = tables()
    assert expected["t"]["clocks"][np.isin(expected["t"]["ids"], ids[:20])].min() > 10
    het_tf.reset()
    made = layer("t")
    checkpoint.restore(tmp_path)
    step(made, ids[:20], 3)
    found = tables()
    same(found, expected, ("ids", "rows"))
    again = np.isin(expected["t"]["ids"], ids[:20])
    np.testing.assert_array_equal(found["t"]["clocks"][~again], expected["t"]["clocks"][~again])
    assert (found["t"]["clocks"][again] >= expected["t"]["clocks"][again]).all()


# --- with a model ------------------------------------------------------------------------------------------


def resumed(tmp_path, make, begin=6, end=12):
    """Weights and tables of uninterrupted training, and of training that was saved and restored half-way."""
    found = []
    for interrupted in (False, True):
        het_tf.reset()
        made = make()
        fit(made, 0, begin)
        if interrupted:
            checkpoint.save(tmp_path, made, step=begin)
            fit(made, 100, 103)  # what comes after the checkpoint is forgotten
            het_tf.reset()
            made = make()
            fit(made, 200, 201)
            assert checkpoint.restore(tmp_path, made).step == begin
        fit(made, begin, end)
        found.append((weights(made), tables()))
    return found


def test_training_goes_on_bit_for_bit(tmp_path):
    (dense, table), (dense_again, table_again) = resumed(tmp_path, lambda: model(whole=True))
    assert np.any(table["item"]["rows"]) and any(np.any(one) for one in dense)
    same(table_again, table, ("ids", "clocks", "counts", "rows"))
    for a, b in zip(dense, dense_again, strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adam", "RowWiseAdagrad", "FTRL"])
def test_training_goes_on_with_every_optimizer(tmp_path, name):
    """Slots, the dense Adam with its step, and the applies of a schedule that falls fast."""
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    (dense, table), (dense_again, table_again) = resumed(tmp_path, lambda: model(name, rate=schedule))
    same(table_again, table, ("ids", "clocks", "counts"))
    np.testing.assert_allclose(table_again["item"]["rows"], table["item"]["rows"], rtol=1e-6, atol=1e-7)
    for a, b in zip(dense, dense_again, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7)


def test_tables_alone_and_what_a_model_needs(tmp_path):
    made = model()
    fit(made, 0, 3)
    checkpoint.save(tmp_path / "tables")
    with pytest.raises(ValueError, match="saved without a model and has no dense weights"):
        checkpoint.restore(tmp_path / "tables", made)
    checkpoint.save(tmp_path / "both", made)
    before = weights(made)
    saved = tables()
    fit(made, 3, 5)
    after = weights(made)
    checkpoint.restore(tmp_path / "both")
    same(tables(), saved)
    assert all(np.array_equal(a, b) for a, b in zip(weights(made), after, strict=True))
    checkpoint.restore(tmp_path / "both", made)
    assert all(np.array_equal(a, b) for a, b in zip(weights(made), before, strict=True))
    with pytest.raises(TypeError, match="give a Keras model"):
        checkpoint.save(tmp_path / "no", "model")
    with het_tf.namespace("apart"):
        other = het_tf.keras.Embedding(2, name="other")
    mixed = keras.Sequential([keras.Input((), dtype="int64"), other])
    with pytest.raises(ValueError, match="are in 'apart': its dense weights would be saved without them"):
        checkpoint.save(tmp_path / "no", mixed, namespace="")
    assert not (tmp_path / "no").exists()
    checkpoint.save(tmp_path / "apart", mixed)
    assert checkpoint.read_manifest(checkpoint.latest(tmp_path / "apart")).namespace == "apart"


def test_a_model_that_does_not_fit_changes_no_table(tmp_path):
    made = model()
    fit(made, 0, 3)
    checkpoint.save(tmp_path, made)
    fit(made, 3, 4)
    before = tables()
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(9)])
    other.compile("adam", "mse")
    with pytest.raises(ValueError, match="build and compile the model"):
        checkpoint.restore(tmp_path, other)
    same(tables(), before)


# --- which tables ------------------------------------------------------------------------------------------


def test_other_tables_are_refused_or_left_out(tmp_path):
    train(layer("both"), end=3)
    train(layer("old"), end=3)
    saved = tables()
    checkpoint.save(tmp_path)
    het_tf.reset()
    train(layer("both"), 5, 6)
    train(layer("new"), 5, 6)
    before = tables()
    with pytest.raises(ValueError, match=r"only the checkpoint has 'old', only this process has 'new'"):
        checkpoint.restore(tmp_path)
    same(tables(), before)
    found = checkpoint.restore(tmp_path, strict=False)
    assert (found.only_in_checkpoint, found.only_live) == (("old",), ("new",))
    same(tables(), {"both": saved["both"], "new": before["new"]})


def test_a_table_of_another_kind_is_refused_and_unchanged(tmp_path):
    train(layer("t", 4, "Adagrad"), end=3)
    saved = tables()
    checkpoint.save(tmp_path)
    het_tf.reset()
    train(layer("t", 5, "Adam", seed=3), end=2)
    before = tables()
    with pytest.raises(
        ValueError, match=r"(?s)table 't':.*dim +4 +5\n.*optimizer\.name +\"adagrad\" +\"adam\""
    ) as caught:
        checkpoint.restore(tmp_path)
    assert "seed" in str(caught.value)
    same(tables(), before)
    het_tf.reset()
    train(layer("t", 4, "Adam"), end=2)
    with pytest.raises(ValueError, match="give slots=False"):
        checkpoint.restore(tmp_path)
    checkpoint.restore(tmp_path, slots=False)
    found = tables()["t"]
    for column in ("ids", "clocks", "counts", "last_used"):
        np.testing.assert_array_equal(found[column], saved["t"][column])
    np.testing.assert_array_equal(found["rows"][:, :4], saved["t"]["rows"][:, :4])
    assert not found["rows"][:, 4:].any(), "the moments of Adam begin at 0"
    het_tf.reset()
    layer("t", 4, "Adagrad", l2=0.5, max_norm=2.0)
    checkpoint.restore(tmp_path)
    same(tables(), saved)


# --- increments --------------------------------------------------------------------------------------------


def test_an_increment_has_what_has_moved_and_what_was_removed(tmp_path):
    made = layer("t")
    train(layer("still"), end=2)
    train(made)
    first = checkpoint.save(tmp_path, since="latest")  # there is none: all rows
    assert checkpoint.read_manifest(first).base is None
    states = [tables()]
    ids = het_tf.table("t").to_numpy()[0]
    het_tf.table("t").remove(ids[:7])
    step(made, ids[10:15], 77)
    step(made, [10**9, ids[0]], 78)  # a new row, and one that was removed
    states.append(tables())
    second = checkpoint.save(tmp_path, since=first)
    manifest = checkpoint.read_manifest(second)
    assert manifest.base == {"name": first.name, "id": checkpoint.read_manifest(first).id}
    entry = manifest.tables["t"]
    assert (entry["rows"], entry["removed"], entry["complete"]) == (7, 6, False)
    assert manifest.tables["still"]["rows"] == 0
    step(made, ids[12:20], 79)
    het_tf.table("t").remove([10**9])
    states.append(tables())
    third = checkpoint.save(tmp_path, since=manifest)
    assert checkpoint.read_manifest(third).tables["t"]["rows"] == 8
    assert checkpoint.read_manifest(third).tables["t"]["removed"] == 1
    for path, state in zip([first, second, third], states, strict=True):
        train(made, 30, 32)
        checkpoint.restore(path)
        same(tables(), state)
    assert checkpoint.verify(third).path == third
    # keep counts increments; what they build on stays.
    fourth = checkpoint.save(tmp_path, since="latest", keep=1)
    assert checkpoint.list(tmp_path) == [first, second, third, fourth]
    fifth = checkpoint.save(tmp_path, keep=1)
    assert checkpoint.list(tmp_path) == [fifth]


def test_after_a_restore_increments_go_on(tmp_path):
    made = layer("t")
    train(made)
    first = checkpoint.save(tmp_path)
    het_tf.reset()
    made = layer("t")
    checkpoint.restore(first)
    step(made, [1, 2, 3], 5)
    second = checkpoint.save(tmp_path, since="latest")
    manifest = checkpoint.read_manifest(second)
    assert manifest.base is not None and manifest.tables["t"]["rows"] == 3
    state = tables()
    het_tf.reset()
    made = layer("t")
    checkpoint.restore(second)
    same(tables(), state)


def test_a_table_that_was_cleared_or_made_anew_is_written_whole(tmp_path):
    made, other = layer("t"), layer("other")
    train(made), train(other)
    first = checkpoint.save(tmp_path)
    het_tf.table("t").clear()
    step(made, [1, 2], 3)
    step(layer("young"), [5], 3)
    state = tables()
    second = checkpoint.save(tmp_path, since=first)
    found = checkpoint.read_manifest(second)
    assert {name: one["complete"] for name, one in found.tables.items()} == {
        "t": True,
        "other": False,
        "young": True,
    }
    train(made, 50, 52), train(other, 50, 52)
    checkpoint.restore(second)
    same(tables(), state)
    # Values without slots are another table than that of the checkpoint, though its clocks are the same.
    checkpoint.restore(second, slots=False)
    assert checkpoint.read_manifest(checkpoint.save(tmp_path, since=second)).base is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(max(2, int(4 * float(os.environ.get("HET_TEST_SCALE", "1"))))))
def test_any_history_of_saves_and_restores_comes_back(tmp_path, seed):
    """Full ones and increments on any earlier one, between updates, removals, clearings and restores."""
    rng = np.random.default_rng(seed)
    made = {"a": layer("a", 2, "Adam"), "b": layer("b", 3, "SGD")}
    states = {}
    increments = 0
    for number in range(60):
        there = checkpoint.list(tmp_path)
        name = str(rng.choice(["a", "b"]))
        action = rng.choice(
            ["step", "remove", "save", "increment", "restore", "clear"], p=[0.3, 0.15, 0.1, 0.3, 0.12, 0.03]
        )
        if action == "step":
            step(made[name], rng.integers(0, 300, 40), number)
        elif action == "remove":
            het_tf.table(name).remove(rng.integers(0, 300, 20))
        elif action == "clear":
            het_tf.table(name).clear()
        elif action == "restore" and there:
            path = there[rng.integers(len(there))]
            checkpoint.restore(path)
            same(tables(), states[path])
        elif action in ("save", "increment"):
            since = there[rng.integers(len(there))] if there and action == "increment" else None
            path = checkpoint.save(tmp_path, since=since, keep=int(rng.integers(3, 9)))
            states[path] = tables()
            increments += checkpoint.read_manifest(path).base is not None
    assert increments >= 5
    for path in checkpoint.list(tmp_path):
        checkpoint.verify(path)
        checkpoint.restore(path)
        same(tables(), states[path])


def test_since_must_be_a_checkpoint_of_the_directory(tmp_path):
    train(layer("t"), end=2)
    path = checkpoint.save(tmp_path / "a")
    elsewhere = checkpoint.save(tmp_path / "b")
    before = files(tmp_path)
    with pytest.raises(ValueError, match="an increment and what it builds on are in one directory"):
        checkpoint.save(tmp_path / "a", since=elsewhere)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        checkpoint.save(tmp_path / "a", since=path.with_name("ckpt-00000099"))
    with pytest.raises(ValueError, match="since is 3; give the path"):
        checkpoint.save(tmp_path / "a", since=3)
    with het_tf.namespace("n"):
        train(layer("t"), end=2)
        with pytest.raises(ValueError, match="is of the namespace '', not of 'n'"):
            checkpoint.save(tmp_path / "a", since=path)
    assert files(tmp_path) == before


def test_a_base_that_is_missing_is_an_error_and_changes_nothing(tmp_path):
    made = layer("t")
    train(made, end=3)
    first = checkpoint.save(tmp_path)
    step(made, [1], 5)
    checkpoint.save(tmp_path, since=first)
    first.rename(tmp_path / "away")
    train(made, 4, 5)
    before = tables()
    with pytest.raises(FileNotFoundError, match=r"holds what has changed since ckpt-00000001, .* is missing"):
        checkpoint.restore(tmp_path)
    same(tables(), before)


# --- arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -1}, "step is -1; give an integer from 0"),
        ({"step": 1.5}, r"step is 1\.5"),
        ({"step": True}, "step is True"),
        ({"keep": 0}, "keep is 0; give an integer from 1"),
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
    assert [one.name for one in checkpoint.list(tmp_path)] == ["ckpt-00000011"]


def test_a_table_that_is_cleared_meanwhile_fails_the_save(tmp_path, monkeypatch):
    train(layer("t"), end=2)
    write = writing.write_files

    def and_clear(*arguments):
        written = write(*arguments)
        het_tf.table("t").clear()
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
    """The seam below: one process, a directory of one's own name, some of the tables."""
    a, b = layer("a"), layer("b")
    train(a), train(b)
    saved = tables()
    document = rows.write_tables(tmp_path / "side", "", ["a"])
    assert [one["name"] for one in document["tables"]] == ["a"]
    assert [one.name for one in tmp_path.iterdir()] == ["side"]
    with pytest.raises(FileExistsError, match="side is there already"):
        rows.write_tables(tmp_path / "side", "")
    with pytest.raises(ValueError, match="no table 'c'"):
        rows.write_tables(tmp_path / "other", "", ["c"])
    assert [one.name for one in tmp_path.iterdir()] == ["side"]
    train(a, 50, 52), train(b, 50, 52)
    later = tables()
    found = rows.read_tables(tmp_path / "side", "", ["a"])
    assert found.document == document
    same(tables(), {"a": saved["a"], "b": later["b"]})
    with pytest.raises(ValueError, match="only this process has 'b'"):
        rows.read_tables(tmp_path / "side", "")


def test_a_load_leaves_other_tables_with_what_their_caches_held_back(tmp_path):
    def make(name):
        return het_tf.keras.Embedding(3, name=name, cache=het_tf.Cache(staleness=None, rows=50))

    a, b = make("a"), make("b")
    train(a), train(b)
    rows.write_tables(tmp_path / "side", "", ["a"])
    before = tables()
    train(b, 10, 12)
    assert het_tf.table("b").stats()["cache"]["unsent_rows"] > 0
    rows.read_tables(tmp_path / "side", "", ["a"])
    assert het_tf.table("b").stats()["cache"]["discarded_ticks"] == 0
    found = tables()
    same({"a": found["a"]}, {"a": before["a"]})
    train(b, 12, 14)
    checkpoint.save(tmp_path / "c")
    het_tf.table("a").drop()
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


def test_a_rank_that_fails_at_the_end_of_a_load_tells_the_others(tmp_path, monkeypatch):
    """Else they wait for it in the next exchange."""
    train(layer("t"))
    path = checkpoint.save(tmp_path)
    said = []

    class Two:
        rank = staticmethod(lambda: 0)
        size = staticmethod(lambda: 2)

        @staticmethod
        def allgather_object(value, name=None):
            said.append(value[1])
            return [value, (value[0], None)]

    def gone(_):
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(runtime._settings, "hvd", Two)
    monkeypatch.setattr(reading, "store_info", gone)
    with pytest.raises(ConnectionError, match="is gone"):
        checkpoint.restore(path)
    assert said[-1] is not None and "is gone" in said[-1][1]


def test_a_load_that_the_user_interrupts_can_be_done_again(tmp_path, monkeypatch):
    train(layer("t"))
    saved = tables()
    path = checkpoint.save(tmp_path)
    call = native.call

    def interrupt(function, *arguments):
        if function == "HetLoadRows":
            raise KeyboardInterrupt
        return call(function, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(native, "call", interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.restore(path)
    checkpoint.restore(path)
    same(tables(), saved)


def memory(which: str) -> int:
    """VmRSS, now, or VmHWM, the most since `reset_peak`, in bytes."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(which)]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_a_table_is_streamed(tmp_path):
    """Saving and restoring take buffers, and no second table; also where a full table is replaced."""
    layer("t", 64, "SGD")
    table, rows_of_piece = het_tf.table("t"), 100_000
    for begin in range(0, 10 * rows_of_piece, rows_of_piece):
        table.assign(np.arange(begin, begin + rows_of_piece), np.ones((rows_of_piece, 64), np.float32))
    allowed = table.bytes // 10 + (48 << 20)
    assert table.bytes > 250 << 20, "much more than what is allowed"
    for action in (
        lambda: checkpoint.save(tmp_path),
        lambda: checkpoint.save(tmp_path, since="latest"),
        lambda: checkpoint.verify(tmp_path),
        lambda: checkpoint.restore(tmp_path),
    ):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS")
        action()
        assert memory("VmHWM") - before < allowed, (memory("VmHWM") - before, allowed)
    assert table.size == 10 * rows_of_piece


@pytest.mark.parametrize("function", ["HetLoadBegin", "HetLoadClear", "HetLoadRows", "HetLoadCommit"])
def test_after_a_load_that_was_interrupted_this_process_can_load_again(tmp_path, monkeypatch, function):
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
    with pytest.raises(ValueError, match="make the layers that use them first, with the same names, or give"):
        checkpoint.restore(tmp_path)
