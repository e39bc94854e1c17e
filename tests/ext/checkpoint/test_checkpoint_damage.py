"""Damaged checkpoints, full disks, directories that cannot be written to: clear errors, nothing changed."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from checkpoint_lib import files, fit, layer, model, same, tables, train, weights

from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest as manifest_lib
from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.row_files import verify_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]


@pytest.fixture
def saved(tmp_path):
    """A full checkpoint and an increment, with a model whose tables and weights have gone on since."""
    made = model("Adam")
    fit(made, 0, 4)
    checkpoint.save(tmp_path / "c", made, step=1)
    fit(made, 4, 6)
    path = checkpoint.save(tmp_path / "c", made, step=2, since="latest")
    fit(made, 6, 7)
    return path, made


@contextlib.contextmanager
def unchanged(made, place):
    """Tables, weights and files are the same afterwards."""
    before, dense, content = tables(), weights(made), files(place)
    yield
    same(tables(), before)
    for a, b in zip(weights(made), dense, strict=True):
        np.testing.assert_array_equal(a, b)
    assert files(place) == content
    fit(made, 6, 7)  # the tables are usable


def refused(error, message, path, made, tables_too=True):
    """Restoring and verifying fail; `tables_too`: also restoring only the tables."""
    actions = [lambda: checkpoint.restore(path, made), lambda: checkpoint.verify(path)]
    with unchanged(made, path.parent):
        for action in [*actions, lambda: checkpoint.restore(path)] if tables_too else actions:
            with pytest.raises(error, match=message):
                action()


def damage(file, where):
    content = bytearray(file.read_bytes())
    content[where] ^= 4
    file.write_bytes(content)


def of_rows(path, number=3):
    return path / manifest_lib.read_manifest(path).files[number]["name"]


def cut(file):
    file.write_bytes(file.read_bytes()[:100])


def pipe(file):
    """Opening it waits for a writer."""
    file.unlink()
    os.mkfifo(file)


def swap(file):
    """Another group's file in its place, whole in itself."""
    shutil.copy(of_rows(file.parent, 4), file)


# Which bytes of a file of rows its checksums cover is the matter of test_het_ckpt_damage.py.
@pytest.mark.parametrize(
    ("which", "harm", "error", "message"),
    [
        ("increment", lambda file: damage(file, -1), ValueError, "{name}"),
        ("base", lambda file: damage(file, -1), ValueError, "{name}"),
        ("increment", cut, ValueError, "{name}"),
        ("increment", swap, ValueError, "{name}"),
        ("increment", Path.unlink, FileNotFoundError, "{name} is missing, but the manifest of the check"),
        ("dense", lambda file: damage(file, -3), ValueError, r"dense\.safetensors is damaged"),
        ("increment", pipe, ValueError, "{name} is a FIFO, not a regular file"),
        ("dense", pipe, ValueError, r"dense\.safetensors is a FIFO, not a regular file"),
        ("manifest", pipe, ValueError, r"manifest\.json is a FIFO, not a regular file"),
        ("dense", Path.unlink, FileNotFoundError, r"dense\.safetensors is missing"),
        ("manifest", lambda file: damage(file, 30), ValueError, "manifest"),
        ("manifest", Path.unlink, FileNotFoundError, r"has no manifest\.json"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_changes(saved, which, harm, error, message):
    path, made = saved
    base = path.with_name("ckpt-00000001")
    file = {
        "increment": of_rows(path), "base": of_rows(base), "dense": path / "dense.safetensors",
        "manifest": path / manifests.FILE,
    }[which]  # fmt: skip
    whole = file.read_bytes()
    harm(file)
    refused(error, message.format(name=file.name), path, made, tables_too=which != "dense")
    if which == "manifest" and not file.exists():
        assert checkpoint.latest(path.parent) == base
    file.unlink(missing_ok=True)
    file.write_bytes(whole)
    checkpoint.restore(path, made)


def test_what_cannot_be_read_again_is_not_written(tmp_path, monkeypatch):
    made = layer("t")
    train(made, end=2)
    monkeypatch.setattr(manifests, "MOST_BYTES", 2000)
    with pytest.raises(ValueError, match=r"the manifest of 1 tables would have .* kB"):
        checkpoint.save(tmp_path / "c")
    assert not list((tmp_path / "c").iterdir())


@pytest.mark.parametrize("name", ["\udcff", "a\0b"])
def test_a_path_that_is_no_text(name, tmp_path):
    train(layer("t"), end=2)
    with pytest.raises(ValueError, match=r"cannot be written as UTF-8|has a zero character|null byte"):
        checkpoint.save(tmp_path / name)


# --- disks -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(place, size):
    """Mounts a file system of `size` bytes, or skips."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("what", ["rows", "dense", "manifest"])
def test_file_size_limit_keeps_last_checkpoint(tmp_path, what):
    """A limit of the process stands for the disk; which file is too large depends on the model."""
    made = model("Adam")
    fit(made, 0, 4)
    path = checkpoint.save(tmp_path / "c", made)
    sizes = {"rows": 900, "dense": 1800, "manifest": 4000}
    largest_row = max(one["bytes"] for one in manifest_lib.read_manifest(path).files)
    assert sizes["rows"] < largest_row, largest_row
    if what != "rows":
        sizes = {
            "dense": largest_row,
            "manifest": max(largest_row, (path / "dense.safetensors").stat().st_size),
        }
        assert (
            sizes["dense"]
            < (path / "dense.safetensors").stat().st_size
            < (path / "manifest.json").stat().st_size
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with unchanged(made, tmp_path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[what], hard))
        try:
            with pytest.raises(OSError, match="File too large") as caught:
                checkpoint.save(tmp_path / "c", made)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert what in str(caught.value)
        assert [one.name for one in (tmp_path / "c").iterdir()] == [path.name]
    checkpoint.save(tmp_path / "c", made)


def test_a_directory_that_is_read_only(tmp_path):
    made = layer("t")
    train(made, end=2)
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        path = checkpoint.save(disk / "c")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = tables()
        for place in (disk / "c", disk / "new"):
            with pytest.raises(OSError, match=r"Read-only file system: .*disk"):
                checkpoint.save(place)
        assert checkpoint.latest(disk / "c") == path
        same(tables(), before)
        train(made, 2, 3)
        checkpoint.restore(disk / "c")  # reading needs no writing
        same(tables(), before)


def test_a_file_that_this_user_may_not_read():
    with tempfile.TemporaryDirectory() as name:  # pytest's own directories are closed to other users anyway
        path = Path(name)
        path.chmod(0o755)
        file = path / "rows.safetensors"
        file.write_bytes(b"")
        file.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may read everything
        try:
            with pytest.raises(OSError, match="Permission denied"):
                verify_rows(file, {})
        finally:
            os.seteuid(user)
