"""Saves and loads that are refused, fail or break off, in one process; and what is seen of them."""

import contextlib
import json
import math
import os
import resource
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from checkpoint_lib import files, fit, keras, layer, model, same, tables, train, weights
from cli_lib import het

import het_tf
from het_tf import checkpoint
from het_tf.callbacks import Checkpoint, RestoreBest
from het_tf.ext.checkpoint.python import manifest, writing
from het_tf.ext.checkpoint.python.saving import moment
from het_tf.python.session import native

save, restore = checkpoint.save, checkpoint.restore
pytestmark = [pytest.mark.usefixtures("fresh")]


def rows(path: Path, **changes: object) -> None:
    """The call that writes a file of rows."""
    native.call("HetSaveRows", "", str(path), json.dumps({"tables": ["t"], "partitions": [0], **changes}))


ONE = "ckpt-00000001"


REFUSED = [
    (lambda p: save(p / "c", step=-1), ValueError, "step is -1; give an integer of 0 or more"),
    (lambda p: save(p / "c", step=1.5), ValueError, r"step is 1\.5"),
    (lambda p: save(p / "c", step=True), ValueError, "step is True"),
    (lambda p: save(p / "c", keep=0), ValueError, "keep is 0; give an integer of 1 or more"),
    (lambda p: save(p / "a", step=np.int64(1)), ValueError, f"step is 1, and .* has {ONE}; give a later"),
    (lambda p: save(p / "a", since=p / "b" / ONE), ValueError, "an increment and its base must be in"),
    (lambda p: save(p / "a", since=p / "a/ckpt-00000099"), FileNotFoundError, "there is no checkpoint"),
    (lambda p: save(p / "a", since=3), ValueError, "since is 3; give the path"),
    (lambda p: save(p / "a", namespace="n", since=p / "a" / ONE), ValueError, "namespace '', not of 'n'"),
    (lambda p: save(p / "a", namespace="o"), ValueError, "has no tables, and no model is given"),
    (lambda p: save(p / "c", "model"), TypeError, "give a Keras model"),
    (lambda p: save(p / "c", namespace="", model=in_n()), ValueError, "are in 'n': its dense weig"),
    (lambda p: save(p / "\udcff"), ValueError, "cannot be written as UTF-8"),
    (lambda p: save(p / "a\0b"), ValueError, "has a zero character|null byte"),
    (lambda p: save(p / "file/below"), NotADirectoryError, "file is a file; give a directory for"),
    (lambda p: restore(p / "a", in_n()), ValueError, "saved without a model and has no dense weights"),
    (lambda p: restore(p / "a", namespace="n"), ValueError, "only the checkpoint has 't', only th"),
    (lambda p: Checkpoint(None), TypeError, "filepath is None; give a path"),
    (lambda p: Checkpoint(p / "c/{epoch}"), ValueError, r"named by the step: give it without \{\}"),
    (lambda p: Checkpoint(p / "c.keras", keep=3), ValueError, "keep and full_every need a directory"),
    (lambda p: Checkpoint(p / "c", keep=0), ValueError, "keep is 0; give an integer of 1 or more"),
    (lambda p: Checkpoint(p / "c", full_every=True), ValueError, "full_every is True"),
    (lambda p: Checkpoint(p / "c", mode="largest"), ValueError, "mode is 'largest'; give one of"),
    (lambda p: RestoreBest(mode="best"), ValueError, "mode is 'best'; give one of"),
    (lambda p: rows(p / "file"), OSError, r"cannot create .*file.*File exists"),
    (lambda p: rows(p / "nowhere/rows"), OSError, "cannot create .*: No such file or directory"),
    (lambda p: rows(p / "x", tables=["no"]), LookupError, r"no table 'no' .*t"),
    (lambda p: rows(p / "x", partitions=[16]), ValueError, "partition 16 cannot be saved; .* 0 to 15"),
    (lambda p: native.call("HetLoadRows", "", "x", '{"tables": {}}'), RuntimeError, "HetLoadBegin"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_is_refused_changes_nothing(tmp_path, call, error, words):
    """There are a table of each of two namespaces, and a checkpoint in each of two directories."""
    train(layer("t"), end=1)
    with het_tf.namespace("n"):
        layer("u")
    save(tmp_path / "a"), save(tmp_path / "b")
    (tmp_path / "file").write_text("precious")
    there, before = files(tmp_path), tables()
    with pytest.raises(error, match=words):
        call(tmp_path)
    assert files(tmp_path) == there and not (tmp_path / "c").exists()
    same(tables(), before)


def in_n():
    """A model whose table is in the namespace "n"."""
    with het_tf.namespace("n"):
        return keras.Sequential([keras.Input((), dtype="int64"), het_tf.keras.Embedding(2, name="other")])


def test_what_has_no_rows_or_no_tables_is_saved(tmp_path):
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    save(tmp_path / "model", made)
    before = weights(made)
    made.set_weights([one + 1 for one in made.get_weights()])
    restore(tmp_path / "model", made)
    np.testing.assert_equal(weights(made), before)
    with het_tf.namespace("n"):
        save(tmp_path / "n", in_n())
    layer("t")
    save(tmp_path / "table")
    for name, namespace in (("model", ""), ("table", ""), ("n", "n")):
        het("ckpt", "verify", tmp_path / name)
        assert manifest.read_manifest(checkpoint.latest(tmp_path / name)).namespace == namespace


def test_a_manifest_that_would_not_be_read_is_not_written(tmp_path, monkeypatch):
    train(layer("t"), end=2)
    monkeypatch.setattr(manifest, "MOST_BYTES", 2000)
    with pytest.raises(ValueError, match=r"the manifest of 1 tables would have .* kB"):
        save(tmp_path / "c")
    assert not list((tmp_path / "c").iterdir())


def test_a_table_that_is_cleared_meanwhile_fails_the_save(tmp_path, monkeypatch):
    train(layer("t"), end=2)
    write = writing.write_files

    def and_clear(*arguments):
        written = write(*arguments)
        het_tf.Table("t").clear()
        return written

    monkeypatch.setattr(writing, "write_files", and_clear)
    with pytest.raises(RuntimeError, match="'t' was cleared, loaded or dropped while it was saved"):
        save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_shown(tmp_path, capsys):
    train(layer("t"), end=2)
    for progress in (True, False):
        save(tmp_path, progress=progress)
        restore(tmp_path, progress=progress)
        shown = capsys.readouterr().out
        assert [word in shown for word in ("saving into", "restoring", "rows")] == [progress] * 3
    assert shown == ""


def test_load_keeps_unsent_updates_of_other_tables(tmp_path):
    """Other ways of saving take one table and put it back, in a directory of their own."""

    def make(name):
        return het_tf.keras.Embedding(3, name=name, cache=het_tf.Cache(staleness=math.inf, rows=50))

    a, b = make("a"), make("b")
    train(a), train(b)
    assert list(manifest.read_manifest(moment.take(tmp_path / "side", "", "a")).tables) == ["a"]
    before = tables()
    train(a, 50, 52), train(b, 10, 12)
    assert het_tf.Table("b").stats()["cache"]["unsent_rows"] > 0
    moment.put_back(tmp_path / "side", "", "a")
    assert het_tf.Table("b").stats()["cache"]["discarded_ticks"] == 0
    found = tables()
    same({"a": found["a"]}, {"a": before["a"]})
    train(b, 12, 14)
    save(tmp_path / "c")
    het_tf.Table("a").drop()
    expected = tables()
    train(b, 14, 16)
    assert restore(tmp_path / "c", strict=False).only_in_checkpoint == ("a",)
    same(tables(), expected)


BREAKS = [("HetLoadRows", ConnectionError("the server is gone")), ("HetLoadBegin", KeyboardInterrupt()),
 ("HetLoadClear", KeyboardInterrupt()), ("HetLoadRows", KeyboardInterrupt()),
 ("HetLoadCommit", KeyboardInterrupt())]  # fmt: skip


@pytest.mark.parametrize(("function", "error"), BREAKS)
def test_a_load_that_breaks_off_says_what_to_do(tmp_path, monkeypatch, function, error):
    a = layer("a")
    train(a)
    saved = tables()
    save(tmp_path)
    call = native.call

    def broken(name, *arguments):
        answer = call(name, *arguments)
        if name == function:
            monkeypatch.setattr(native, "call", call)
            raise error  # Python raises KeyboardInterrupt when the call is over
        return answer

    monkeypatch.setattr(native, "call", broken)
    told = None if function == "HetLoadBegin" else r"half-way, and the tables 'a' may hold a part .*restore"
    with pytest.raises(type(error), match=told):
        restore(tmp_path)
    restore(tmp_path)
    same(tables(), saved)
    train(a, 10, 12)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("what", ["rows", "dense", "manifest"])
def test_file_size_limit_keeps_last_checkpoint(tmp_path, what):
    """A limit of the process stands for the disk; each kind of file is larger than those before."""
    made = model("Adam")
    fit(made, 0, 4)
    path = save(tmp_path, made)
    sizes = [900, max(one["bytes"] for one in manifest.read_manifest(path).files)]
    sizes += [(path / name).stat().st_size for name in ("dense.safetensors", "manifest.json")]
    assert sizes == sorted(set(sizes))
    before, dense, there = tables(), weights(made), files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[["rows", "dense", "manifest"].index(what)], hard))
    try:
        with pytest.raises(OSError, match=f"File too large.*{what}|{what}.*File too large"):
            save(tmp_path, made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    same(tables(), before)
    assert files(tmp_path) == there and list(tmp_path.iterdir()) == [path]
    np.testing.assert_equal(weights(made), dense)
    save(tmp_path, made)


@contextlib.contextmanager
def without_rights():
    """Root may do everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_places_that_this_user_may_not_write_or_read():
    train(layer("t"), end=2)
    saved = tables()
    with tempfile.TemporaryDirectory() as name:  # pytest's own directories are closed to other users anyway
        place = Path(name)
        path = save(place / "c")
        for closed in (place / "c", place):
            closed.chmod(0o555)
        train(layer("t"), 2, 3)
        with without_rights():
            for where in (place / "c", place / "new"):
                with pytest.raises(PermissionError, match=f"Permission denied: .*{place}"):
                    save(where)
            assert checkpoint.latest(place / "c") == path
            restore(place / "c")  # reading needs no writing
            same(tables(), saved)
        next(path.glob("rows-*")).chmod(0)
        with without_rights(), pytest.raises(OSError, match="Permission denied"):
            checkpoint.verify(path)


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
