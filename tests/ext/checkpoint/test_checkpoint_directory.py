"""The manifest and the directory of checkpoints: all that needs no rows."""

import errno
import json
import os
import warnings
from pathlib import Path

import pytest
from checkpoint_lib import SPEC, document

import het_tf
from het_tf.ext.checkpoint.python import directory, manifest


def checkpoint(place: Path, number: int, base: int | None = None, **changes) -> Path:
    """A complete one without files of rows."""
    path = place / directory.name_of(number)
    path.mkdir(parents=True)
    of_base = None if base is None else {"name": directory.name_of(base), "id": f"{base:032x}"}
    manifest.write(path, document(id=f"{number:032x}", base=of_base, step=number, **changes))
    return path


def test_a_manifest_comes_back_as_it_was_written(tmp_path):
    written = manifest.write(tmp_path, document(namespace='ünï "quoted"'))
    found = manifest.read_manifest(str(tmp_path))
    assert found.document == written and len(written["xxh3"]) == 16
    assert (found.id, found.created, found.step, found.base) == ("a" * 32, 1.5, 7, None)
    assert (found.namespace, found.partitions, found.rows, found.bytes) == ('ünï "quoted"', 1, 2, 640)
    assert found.tables["item"]["spec"] == SPEC and found.dense is None
    with pytest.raises(FileExistsError):
        manifest.write(tmp_path, document())


def test_its_checksum_is_of_the_canonical_json(tmp_path):
    manifest.write(tmp_path, document())
    file = tmp_path / manifest.FILE
    shuffled = dict(reversed(json.loads(file.read_text()).items()))
    file.write_text(json.dumps(shuffled, indent=7))
    assert manifest.read_manifest(tmp_path).step == 7


def test_names_are_in_the_order_of_numbers(tmp_path):
    assert directory.checkpoints(tmp_path / "none") == [] and directory.latest(tmp_path / "none") is None
    paths = [checkpoint(tmp_path, number) for number in (9, 10, 123456789)]
    (tmp_path / "ckpt-99999999999").mkdir()  # without a manifest
    (tmp_path / "other").mkdir()
    assert directory.checkpoints(tmp_path) == paths
    assert directory.latest(str(tmp_path)) == paths[-1] == directory.resolve(tmp_path)
    assert directory.resolve(paths[0]) == paths[0]
    (tmp_path / "file").write_text("")
    for action in (directory.latest, directory.checkpoints, directory.resolve):
        with pytest.raises(NotADirectoryError, match="file is a file; give a directory"):
            action(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        directory.resolve(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="neither a checkpoint nor a directory of"):
        directory.resolve(tmp_path / "other")


def test_a_checkpoint_appears_whole_and_numbers_grow(tmp_path):
    place = tmp_path / "a" / "b"
    directory.make(place)
    directory.make(place)
    pending = directory.Pending(place, None)
    assert pending.target.name == "ckpt-00000001" and list(place.iterdir()) == [pending.path]
    assert directory.checkpoints(place) == []
    manifest.write(pending.path, document())
    assert directory.checkpoints(place) == [], "it is not seen before it has its name"
    assert pending.publish() == place / "ckpt-00000001" == directory.latest(place)
    for number, name in ((5, "ckpt-00000005"), (None, "ckpt-00000006")):
        pending = directory.Pending(place, number)
        assert pending.target.name == name
        manifest.write(pending.path, document())
        pending.publish()
    for number in (6, 2):
        later = f"step is {number}, and .* has ckpt-00000006; give a later step"
        with pytest.raises(ValueError, match=later):
            directory.Pending(place, number)
    assert len(list(place.iterdir())) == 3


def test_next_save_removes_only_leftovers(tmp_path):
    for name in (".tmp-ckpt-00000001-0a0b0c0d", ".tmp-ckpt-00000003-11111111"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows").write_text("half")
    for name in (".tmp-other", "notes"):  # as of an export into the directory
        (tmp_path / name).mkdir()
    pending = directory.Pending(tmp_path, 4)
    assert sorted(one.name for one in tmp_path.iterdir()) == [pending.path.name, ".tmp-other", "notes"]
    (pending.path / "rows").write_text("half")
    pending.abandon()
    assert sorted(one.name for one in tmp_path.iterdir()) == [".tmp-other", "notes"]


def test_two_cannot_save_into_one_directory_at_once(tmp_path):
    pending = directory.Pending(tmp_path, 1)
    with pytest.raises(RuntimeError, match=r"is saving in .*one at a time"):
        directory.Pending(tmp_path, 2)
    assert pending.path.exists(), "the other's files are no leftovers"
    pending.abandon()
    directory.Pending(tmp_path, 2).abandon()


def test_forked_process_does_not_keep_lock(tmp_path):
    pending = directory.Pending(tmp_path, 1)
    end, wait = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(wait)
        os.read(end, 1)
        os._exit(0)
    pending.abandon()
    try:
        directory.Pending(tmp_path, 1).abandon()
    finally:
        os.close(wait)
        os.waitpid(child, 0)
        os.close(end)


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(directory.fcntl, "flock", refuse)
    with pytest.warns(het_tf.HetWarning, match="has no locks"):
        directory.Pending(tmp_path, 1).abandon()


def test_keep_removes_the_oldest_and_never_a_base(tmp_path):
    def names():
        return [directory.number_of(one) for one in directory.checkpoints(tmp_path)]

    for number, base in ((1, None), (2, 1), (3, 2), (4, None), (5, 4), (6, 5)):
        checkpoint(tmp_path, number, base)
    directory.keep_newest(tmp_path, 4)
    assert names() == [1, 2, 3, 4, 5, 6], "3 is kept, and it needs 2 and 1"
    directory.keep_newest(tmp_path, 2)
    assert names() == [4, 5, 6]
    directory.keep_newest(tmp_path, 9)
    assert names() == [4, 5, 6]
    checkpoint(tmp_path, 7)
    directory.keep_newest(tmp_path, 1)
    assert names() == [7]


def test_keep_removes_nothing_if_bases_are_unknown(tmp_path):
    for number, base in ((1, None), (2, 1), (3, None)):
        checkpoint(tmp_path, number, base)
    (tmp_path / "ckpt-00000002" / manifest.FILE).write_text("{")
    with pytest.warns(het_tf.HetWarning, match="no checkpoint of .* was removed"):
        directory.keep_newest(tmp_path, 2)
    assert len(directory.checkpoints(tmp_path)) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        directory.keep_newest(tmp_path, 1)  # 3 alone, and that is whole
    assert len(directory.checkpoints(tmp_path)) == 1


def test_a_checkpoint_goes_by_one_rename(tmp_path, monkeypatch):
    path = checkpoint(tmp_path, 1)
    seen = []

    def look(where, *_, **__):
        seen.append((directory.checkpoints(tmp_path), where.name))
        raise KeyboardInterrupt

    monkeypatch.setattr(directory.shutil, "rmtree", look)
    with pytest.raises(KeyboardInterrupt):
        directory.remove([path])
    assert seen[0][0] == [] and seen[0][1].startswith(".tmp-ckpt-00000001-")
    monkeypatch.undo()
    directory.Pending(tmp_path, None).abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_chain_is_followed_and_must_be_whole(tmp_path):
    for number, base in ((1, None), (2, 1), (5, 2)):
        checkpoint(tmp_path, number, base)
    assert [one.step for one in directory.chain(tmp_path / "ckpt-00000005")] == [1, 2, 5]
    os.rename(tmp_path / "ckpt-00000001", tmp_path / "away")
    message = "ckpt-00000002 holds the changes since ckpt-00000001, but .*ckpt-00000001 is missing"
    with pytest.raises(FileNotFoundError, match=message):
        directory.chain(tmp_path / "ckpt-00000005")
    checkpoint(tmp_path, 1, namespace="another")
    assert len(directory.chain(tmp_path / "ckpt-00000005")) == 3
    base = {"name": "ckpt-00000005", "id": f"{5:032x}"}
    for first, words in (
        (document(id="f" * 32), r"ckpt-00000001 is another one \(its id is ffff"),
        (document(id=f"{1:032x}", base=base), "is among its own bases"),
    ):
        (tmp_path / "ckpt-00000001" / manifest.FILE).unlink()
        manifest.write(tmp_path / "ckpt-00000001", first)
        with pytest.raises(ValueError, match=words):
            directory.chain(tmp_path / "ckpt-00000005")
