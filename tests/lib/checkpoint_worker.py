"""Cases of ranks that save and restore together (ranks_worker.py)."""

from __future__ import annotations

import numpy as np
from checkpoint_lib import fit, model, tables, weights
from horovod_worker import refused

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python.model import dense
from het_tf.python.session import collective, native


def make(workers, whole=True):
    made = het_tf.workers.distribute(model(whole=whole))
    het_tf.workers.broadcast(made)
    return made


def batches(workers, made, begin, end):
    """Each rank has batches of its own."""
    fit(made, 1000 * workers.rank + begin, 1000 * workers.rank + end)
    het_tf.flush(all_ranks=True)


def state(made):
    """Rows and dense weights; the same on all ranks."""
    found = tables()["item"]
    dense_weights = {f"w{number}": one for number, one in enumerate(weights(made))}
    applies = {"applies": np.int64(het_tf.Table("item").updates)}
    return {name: found[name] for name in ("ids", "clocks", "counts", "rows")} | dense_weights | applies


def equal(found, expected, what):
    assert sorted(found) == sorted(expected), (sorted(found), sorted(expected))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{what}: {name}")


def save(workers, place):
    """Two ranks train, save, go on; a second job of them continues from the checkpoint and ends equal."""
    made = make(workers)
    batches(workers, made, 0, 4)
    calls = []
    native_call, native.call = native.call, None

    def count(function, *arguments):
        calls.append(function)
        return native_call(function, *arguments)

    native.call = count
    path = checkpoint.save(place / "c", made, step=4)
    native.call = native_call
    assert calls.count("HetSaveRows") == 8, "each rank writes half of the 16 files"
    assert calls.count("HetMarkDurable") == 1
    expected = state(made)
    np.savez(place / f"saved{workers.rank}.npz", **expected)
    batches(workers, made, 4, 7)
    uninterrupted = state(made)
    batches(workers, made, 20, 22)
    assert checkpoint.restore(place / "c", made).step == 4
    equal(state(made), expected, "restored")
    batches(workers, made, 4, 7)
    equal(state(made), uninterrupted, "resumed")
    increment = checkpoint.save(place / "c", made, step=7, since="latest", keep=1)
    assert checkpoint.checkpoints(place / "c") == [path, increment]
    assert checkpoint.verify(increment).base is not None
    np.savez(place / f"later{workers.rank}.npz", **uninterrupted)


def load(workers, place):
    """As many ranks as like restore what others have saved, and train on."""
    made = make(workers)
    batches(workers, made, 50, 51)
    checkpoint.restore(place / "c", made)
    equal(state(made), dict(np.load(place / "later0.npz")), "restored")
    batches(workers, made, 60, 62)
    mine = {name: np.asarray(one).tolist() for name, one in state(made).items()}
    of_ranks = workers.gather_objects(mine, "state")
    for one in of_ranks:
        equal(one, of_ranks[0], "ranks")
    checkpoint.restore(place / "c" / "ckpt-00000004", made)
    equal(state(made), dict(np.load(place / "saved0.npz")), "the first one")


def fail(workers, place):
    """An error of one rank is raised on all, no rank waits, and the last checkpoint stays."""
    place = place / f"fail{workers.size}"
    made = make(workers)
    batches(workers, made, 0, 2)
    path = checkpoint.save(place, made, step=1)
    expected = state(made)
    last = workers.size - 1
    native_call = native.call

    def broken(function, error):
        def call(name, *arguments):
            if name == function and workers.rank == last:
                raise error
            return native_call(name, *arguments)

        return call

    theirs = "" if workers.rank == last else f"rank {last} could not "
    for function, error, what in (
        ("HetFlush", ConnectionError("no server"), "send what its caches held back: "),
        ("HetSaveRows", OSError(28, "No space left on device"), "write its share: "),
        ("HetSaveRows", MemoryError("out of memory"), "write its share: "),
    ):
        native.call = broken(function, error)
        part = theirs and theirs + what
        refused(type(error), part, lambda: checkpoint.save(place, made, step=2))
        native.call = native_call
        collective.barrier()
        assert list(place.iterdir()) == [path], list(place.iterdir())
    for function, what in (("HetStoreInfo", "read the checkpoint: damaged"), ("HetFlush", "send")):
        native.call = broken(function, ValueError("damaged"))
        refused(ValueError, theirs and theirs + what, lambda: checkpoint.restore(place, made))
        native.call = native_call
        equal(state(made), expected, function)
    native.call = broken("HetLoadRows", ConnectionError("no server"))
    refused(ConnectionError, "given up half-way", lambda: checkpoint.restore(place, made))
    native.call = native_call
    checkpoint.restore(place, made)
    equal(state(made), expected, "restored at last")

    # Only rank 0: dense weights, the directory.
    write = dense.write

    def no_space(*_):
        raise OSError(28, "No space left on device", "dense.safetensors")

    dense.write = no_space
    part = "" if workers.rank == 0 else "rank 0 could not end the save: "
    refused(OSError, part, lambda: checkpoint.save(place, made, step=2))
    dense.write = write
    (place.parent / "file").write_text("")
    collective.barrier()
    refused(NotADirectoryError, "is a file", lambda: checkpoint.save(place.parent / "file", made))
    refused(FileNotFoundError, "there is no checkpoint", lambda: checkpoint.restore(place / "nowhere", made))
    refused(ValueError, "give a later step", lambda: checkpoint.save(place, made, step=1))

    refused(ValueError, "different arguments", lambda: checkpoint.save(place, made, step=5 + workers.rank))
    assert checkpoint.checkpoints(place) == [path]
    equal(state(made), expected, "in the end")
    callback(workers, place.parent)


def callback(workers, place):
    """The callback saves on all ranks."""
    made = make(workers)
    rng = np.random.default_rng(workers.rank)
    ids, x, y = rng.integers(0, 50, (32, 2)), rng.random((32, 3), np.float32), rng.random((32, 1), np.float32)
    saver = het_tf.callbacks.Checkpoint(place / "callback", keep=2)
    made.fit([ids, x], y, batch_size=8, epochs=4, verbose=0, callbacks=[saver])
    found = checkpoint.checkpoints(place / "callback")
    assert [one.name for one in found] == ["ckpt-00000012", "ckpt-00000016"], found
    expected = state(made)
    made.fit([ids, x], y, batch_size=8, verbose=0)
    checkpoint.restore(place / "callback", made)
    equal(state(made), expected, "restored")
