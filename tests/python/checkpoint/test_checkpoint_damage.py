"""Damaged checkpoints, full disks, directories that cannot be written to: clear errors, nothing changed."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from checkpoint_lib import files, fit, layer, model, same, step, tables, train, weights

import het_tf
from het_tf import checkpoint
from het_tf.python.checkpoint import manifest as manifests
from het_tf.python.session import native

pytestmark = [pytest.mark.usefixtures("fresh")]


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


def refused(error, message, path, made):
    place = path.parent
    with unchanged(made, place):
        with pytest.raises(error, match=message):
            checkpoint.restore(path, made)
        with pytest.raises(error, match=message):
            checkpoint.restore(path)
        with pytest.raises(error, match=message):
            checkpoint.verify(path)


def damage(file, where):
    content = bytearray(file.read_bytes())
    content[where] ^= 1 << (where % 8)
    file.write_bytes(content)


@pytest.mark.parametrize("which", ["base", "increment"])
def test_a_flipped_bit_anywhere_in_a_file_of_rows(saved, which):
    path, made = saved
    place = path if which == "increment" else path.with_name("ckpt-00000001")
    file = place / checkpoint.read_manifest(place).files[3]["name"]
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    rng = np.random.default_rng(0)
    spots = [0, 7, 8, 8 + length - 1, 8 + length, len(whole) - 1]
    for where in [*spots, *rng.integers(8, 8 + length, 3), *rng.integers(8 + length, len(whole), 5)]:
        damage(file, int(where))
        with pytest.raises(ValueError, match=file.name):
            checkpoint.verify(path)
        if where in spots[::2]:
            refused(ValueError, file.name, path, made)
        file.write_bytes(whole)
    checkpoint.restore(path, made)


def test_a_file_that_is_cut_or_too_long_or_missing(saved):
    path, made = saved
    file = path / checkpoint.read_manifest(path).files[5]["name"]
    whole = file.read_bytes()
    for size in (0, 5, 100, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=file.name):
            checkpoint.verify(path)
    refused(ValueError, file.name, path, made)
    file.write_bytes(whole + b"\0")
    refused(ValueError, file.name, path, made)
    file.unlink()
    refused(
        FileNotFoundError, f"{file.name} is missing, and the manifest of the checkpoint names it", path, made
    )
    file.mkdir()
    refused(FileNotFoundError, f"{file.name} is missing", path, made)
    file.rmdir()
    # That of another group, whole in itself.
    other = path / checkpoint.read_manifest(path).files[6]["name"]
    shutil.copy(other, file)
    refused(ValueError, file.name, path, made)


def test_dense_weights_that_are_damaged_or_missing(saved):
    path, made = saved
    file = path / "dense.safetensors"
    whole = file.read_bytes()
    damage(file, len(whole) - 3)
    for action in (lambda: checkpoint.restore(path, made), lambda: checkpoint.verify(path)):
        with unchanged(made, path.parent), pytest.raises(ValueError, match=r"dense\.safetensors is damaged"):
            action()
    file.unlink()
    for action in (lambda: checkpoint.restore(path, made), lambda: checkpoint.verify(path)):
        with (
            unchanged(made, path.parent),
            pytest.raises(FileNotFoundError, match=r"dense\.safetensors is missing"),
        ):
            action()


def test_a_manifest_that_is_damaged_newer_or_no_json(saved):
    path, made = saved
    file = path / manifests.FILE
    whole = file.read_bytes()
    document = json.loads(whole)
    changed = {**document, "version": 2}
    cases = [
        (json.dumps({**changed, "crc32c": manifests.checksum(changed)}), r"version 2, .*or a newer one"),
        (json.dumps({**document, "step": 9}), "its checksum is"),
        (whole[:-20], "it is not JSON"),
        (b"", "it is not JSON"),
        (b"\x80\x81", "it is not JSON"),
        (b"{}", "no manifest of het_tf"),
    ]
    for content, message in cases:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        refused(ValueError, message, path, made)
    file.unlink()
    refused(FileNotFoundError, r"has no manifest\.json", path, made)
    assert checkpoint.latest(path.parent) == path.with_name("ckpt-00000001")
    checkpoint.restore(path.parent, made)


def test_paths_that_are_none(saved, tmp_path):
    path, made = saved
    refused(FileNotFoundError, "there is no checkpoint", path.parent / "nowhere", made)
    (path.parent / "file").write_text("x")
    refused(NotADirectoryError, "is a file", path.parent / "file", made)
    with (
        unchanged(made, path.parent),
        pytest.raises(NotADirectoryError, match="file is a file; give a directory"),
    ):
        checkpoint.save(path.parent / "file" / "below", made)
    checkpoint.save(tmp_path / "made" / "for" / "it", made)


# --- disks -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(place, size):
    """A file system of so many bytes; skips where none can be mounted."""
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


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    made = layer("t", 16, "Adam")
    train(made, end=2)
    with small_disk(tmp_path / "disk", 256 * 1024) as disk:
        path = checkpoint.save(disk)
        step(made, np.arange(3000), 3)  # 3000 rows of 200 bytes
        before, content = tables(), files(disk)
        with pytest.raises(OSError, match="No space left on device") as caught:
            checkpoint.save(disk)
        assert "rows-" in str(caught.value) and not isinstance(caught.value, ConnectionError)
        assert [one.name for one in disk.iterdir()] == [path.name] and files(disk) == content
        same(tables(), before)
        assert checkpoint.verify(disk).path == path
        het_tf.table("t").remove(np.arange(3, 3000))
        assert checkpoint.verify(checkpoint.save(disk)).step is None, "there is room again"


@pytest.mark.parametrize("what", ["rows", "dense", "manifest"])
def test_a_file_that_may_not_grow_leaves_the_last_checkpoint(tmp_path, what):
    """A limit of the process stands for the disk; which file is too large depends on the model."""
    made = model("Adam")
    fit(made, 0, 4)
    path = checkpoint.save(tmp_path / "c", made)
    sizes = {"rows": 900, "dense": 1800, "manifest": 4000}
    largest_row = max(one["bytes"] for one in checkpoint.read_manifest(path).files)
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
            with pytest.raises(OSError, match=r"Permission denied .*Let this user read it"):
                native.call("HetVerifyRows", str(file), "")
        finally:
            os.seteuid(user)
