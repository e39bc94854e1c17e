"""Checkpoints with the changes since an earlier one."""

import os

import numpy as np
import pytest
import redis_lib
from checkpoint_lib import layer, same, step, tables, train

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest

pytestmark = [pytest.mark.usefixtures("fresh")]


def test_increment_has_updates_and_removals(tmp_path):
    made = layer("t")
    train(layer("still"), end=2)
    train(made)
    first = checkpoint.save(tmp_path, since="latest")  # there is none: all rows
    assert manifest.read_manifest(first).base is None
    ids = het_tf.Table("t").to_numpy()[0]
    het_tf.Table("t").remove(ids[:7])
    step(made, ids[10:15], 77)
    step(made, [10**9, ids[0]], 78)  # a new row, and one that was removed
    found = manifest.read_manifest(checkpoint.save(tmp_path, since=first))
    assert found.base == {"name": first.name, "id": manifest.read_manifest(first).id}
    entry = found.tables["t"]
    assert (entry["rows"], entry["removed"], entry["complete"]) == (7, 6, False)
    assert found.tables["still"]["rows"] == 0
    step(made, ids[12:20], 79)
    het_tf.Table("t").remove([10**9])
    entry = manifest.read_manifest(checkpoint.save(tmp_path, since=found)).tables["t"]
    assert (entry["rows"], entry["removed"]) == (8, 1)


def test_cleared_or_new_table_is_written_whole(tmp_path):
    made, other = layer("t"), layer("other")
    train(made), train(other)
    first = checkpoint.save(tmp_path)
    het_tf.Table("t").clear()
    step(made, [1, 2], 3)
    step(layer("young"), [5], 3)
    state = tables()
    second = checkpoint.save(tmp_path, since=first)
    whole = {name: one["complete"] for name, one in manifest.read_manifest(second).tables.items()}
    assert whole == {"t": True, "other": False, "young": True}
    train(made, 50, 52), train(other, 50, 52)
    checkpoint.restore(second)
    same(tables(), state)
    # Values without slots are another table than that of the checkpoint, though its clocks are the same.
    checkpoint.restore(second, slots=False)
    assert manifest.read_manifest(checkpoint.save(tmp_path, since=second)).base is None


def new_layers():
    return {"a": layer("a", 2, "Adam"), "b": layer("b", 3, "SGD")}


SEEDS = range(1, max(2, int(4 * float(os.environ.get("HET_TEST_SCALE", "1")))))


@pytest.mark.parametrize("where", ["here", pytest.param("at a server", marks=redis_lib.SERVER)])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS)])
def test_any_history_of_saves_and_restores_comes_back(tmp_path, request, where, seed):
    """Full ones and increments on any earlier one, between updates, removals, clearings and restores.

    Half-way the tables move from this process, which has 16 partitions, to a server, which has 64, and in the
    end back.
    """
    rng = np.random.default_rng(seed)
    made = new_layers()
    states = {}
    increments, moved = 0, False
    for number in range(60):
        if where == "at a server" and number == 30:
            last = checkpoint.save(tmp_path)
            states[last] = tables()
            het_tf.reset()
            het_tf.init(ps=request.getfixturevalue("server").address)
            made = new_layers()
            checkpoint.restore(last)
            step(made["a"], [1, 2], number)
            path = checkpoint.save(tmp_path, since=last)
            states[path] = tables()
            moved = manifest.read_manifest(path).base["name"] == last.name
        there = checkpoint.checkpoints(tmp_path)
        name = str(rng.choice(["a", "b"]))
        action = rng.choice(
            ["step", "remove", "save", "increment", "restore", "clear"], p=[0.3, 0.15, 0.1, 0.3, 0.12, 0.03]
        )
        if action == "step":
            step(made[name], rng.integers(0, 300, 40), number)
        elif action == "remove":
            het_tf.Table(name).remove(rng.integers(0, 300, 20))
        elif action == "clear":
            het_tf.Table(name).clear()
        elif action == "restore" and there:
            path = there[rng.integers(len(there))]
            checkpoint.restore(path)
            same(tables(), states[path])
        elif action in ("save", "increment"):
            since = there[rng.integers(len(there))] if there and action == "increment" else None
            path = checkpoint.save(tmp_path, since=since, keep=int(rng.integers(3, 9)))
            states[path] = tables()
            increments += manifest.read_manifest(path).base is not None
    assert increments >= 5
    assert moved == (where == "at a server"), "an increment on a base of other partitions"
    if moved:
        redis_lib.leave()
        new_layers()
    for path in checkpoint.checkpoints(tmp_path):
        checkpoint.verify(path)
        checkpoint.restore(path)
        same(tables(), states[path])
