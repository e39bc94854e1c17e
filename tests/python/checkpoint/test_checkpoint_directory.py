"""The manifest, the directory, what tables must have in common, and several ranks: all that needs no rows."""

from __future__ import annotations

import copy
import errno
import json
import os
import warnings
from pathlib import Path

import pytest

from het_tf.python.checkpoint import compare, directory, manifest
from het_tf.python.checkpoint.collective import Ranks
from het_tf.python.session import runtime

SPEC = {
    "name": "item", "dim": 4, "seed": 0, "l2": 0.0, "max_norm": 0.0,
    "optimizer": {"name": "adagrad", "params": {"eps": 1e-7}},
    "initializer": {"name": "uniform", "a": -0.05, "b": 0.05},
}  # fmt: skip


def document(**changes):
    table = {
        "name": "item", "spec": SPEC, "limits": {}, "applies": 3, "rows": 2, "removed": 0, "complete": True,
        "clock_floor": 0, "slots": [["accumulator", 4]], "epochs": ["18446744073709551615"],
    }  # fmt: skip
    file = {
        "name": "rows-00000-of-00001.safetensors", "bytes": 640, "partitions": [0],
        "header_crc32c": "00000000", "tensors": {"item/keys": {"rows": 2, "crc32c": "00000000"}},
    }  # fmt: skip
    return {
        "format": manifest.FORMAT, "version": 1, "id": "a" * 32, "created": 1.5, "step": 7, "namespace": "n",
        "base": None, "store": {"partitions": 1, "hash_seed": "0"}, "tables": [table], "files": [file],
        "dense": None, **changes,
    }  # fmt: skip


def checkpoint(place: Path, number: int, base: int | None = None, **changes) -> Path:
    """A complete one without files of rows."""
    path = place / directory.name_of(number)
    path.mkdir(parents=True)
    of_base = None if base is None else {"name": directory.name_of(base), "id": f"{base:032x}"}
    manifest.write(path, document(id=f"{number:032x}", base=of_base, step=number, **changes))
    return path


# --- manifest ----------------------------------------------------------------------------------------------


def test_a_manifest_comes_back_as_it_was_written(tmp_path):
    written = manifest.write(tmp_path, document(namespace='ünï "quoted"'))
    found = manifest.read_manifest(str(tmp_path))
    assert found.document == written and len(written["crc32c"]) == 8
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


def test_every_flipped_bit_of_a_manifest_is_noticed(tmp_path):
    manifest.write(tmp_path, document())
    file = tmp_path / manifest.FILE
    whole = file.read_bytes()
    meaning = json.loads(whole)
    for place in range(0, len(whole), 3):
        for bit in (0, 5):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            try:
                found = manifest.read_manifest(tmp_path).document
            except ValueError:
                continue
            assert found == meaning, "white space alone was hit"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), r"version 2, .* up to 1; .*a newer one"),
        (lambda d: d.update(version="1"), "version is '1'"),
        (lambda d: d.update(format="other"), "no manifest of het_tf"),
        (lambda d: d.pop("step"), "'step' is missing"),
        (lambda d: d.update(step=-1), "'step' of a manifest is -1"),
        (lambda d: d["files"][0].update(name="../other"), "'name' of a file is \"../other\""),
        (lambda d: d.update(base={"name": "a/b", "id": "x"}), "'base' of a manifest"),
        (lambda d: d["tables"][0].pop("epochs"), "a table has no 'epochs'"),
        (lambda d: d["tables"].append(3), "'tables' of a manifest"),
        (lambda d: d.update(dense={"name": "dense", "bytes": "9", "crc32c": ""}), "'bytes' of a dense"),
        (lambda d: d["store"].update(partitions=True), "'store' of a manifest"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, change, message):
    changed = copy.deepcopy(document())
    change(changed)
    manifest.write(tmp_path, changed)
    with pytest.raises(ValueError, match=message) as caught:
        manifest.read_manifest(tmp_path)
    assert str(tmp_path / manifest.FILE) in str(caught.value)


def test_what_is_not_there_or_no_json_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint .*nowhere"):
        manifest.read_manifest(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"has no manifest\.json: it is no checkpoint, or one that"):
        manifest.read_manifest(tmp_path)
    file = tmp_path / manifest.FILE
    for content in (b"{", b"", b"\xff\xfe", b"[1, 2"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged: it is not JSON"):
            manifest.read_manifest(tmp_path)
    file.write_bytes(b"[]")
    with pytest.raises(ValueError, match="no manifest of het_tf"):
        manifest.read_manifest(tmp_path)
    with pytest.raises(NotADirectoryError, match="give the directory"):
        manifest.read_manifest(file)


def test_a_full_disk_names_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught, manifest.naming(tmp_path / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / "file")


# --- directory ---------------------------------------------------------------------------------------------


def test_names_are_in_the_order_of_numbers(tmp_path):
    assert directory.list_checkpoints(tmp_path / "none") == [] and directory.latest(tmp_path / "none") is None
    paths = [checkpoint(tmp_path, number) for number in (9, 10, 123456789)]
    (tmp_path / "ckpt-99999999999").mkdir()  # without a manifest
    (tmp_path / "other").mkdir()
    assert directory.list_checkpoints(tmp_path) == paths
    assert directory.latest(str(tmp_path)) == paths[-1] == directory.resolve(tmp_path)
    assert directory.resolve(paths[0]) == paths[0]
    (tmp_path / "file").write_text("")
    for action in (directory.latest, directory.list_checkpoints, directory.resolve):
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
    assert directory.list_checkpoints(place) == []
    manifest.write(pending.path, document())
    assert directory.list_checkpoints(place) == [], "it is not seen before it has its name"
    assert pending.publish() == place / "ckpt-00000001" == directory.latest(place)
    for number, name in ((5, "ckpt-00000005"), (None, "ckpt-00000006")):
        pending = directory.Pending(place, number)
        assert pending.target.name == name
        manifest.write(pending.path, document())
        pending.publish()
    for number in (6, 2):
        with pytest.raises(
            ValueError, match=f"step is {number}, and .* has ckpt-00000006; give a later step"
        ):
            directory.Pending(place, number)
    assert len(list(place.iterdir())) == 3


def test_leftovers_go_with_the_next_save_and_what_is_not_ours_stays(tmp_path):
    for name in (".tmp-ckpt-00000001-0a0b0c0d", ".tmp-ckpt-00000003-11111111"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows").write_text("half")
    for name in (".tmp-other", "notes"):
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


def test_a_process_that_is_forked_meanwhile_does_not_keep_the_lock(tmp_path):
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


def test_a_save_leaves_what_others_write_beside_it(tmp_path):
    """Such as `het-ckpt merge`, into the directory of checkpoints."""
    theirs = directory.beside(tmp_path / "ckpt-00000005")
    directory.Pending(tmp_path, 1).abandon()
    assert theirs.is_dir()


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(directory.fcntl, "flock", refuse)
    with pytest.warns(RuntimeWarning, match="has no locks"):
        directory.Pending(tmp_path, 1).abandon()


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("precious")
    for place in (tmp_path / "file", tmp_path / "file" / "below" / "it"):
        with pytest.raises(NotADirectoryError, match="file is a file; give a directory for checkpoints"):
            directory.make(place)
    assert (tmp_path / "file").read_text() == "precious"
    with pytest.raises(FileExistsError, match="is there already"):
        directory.beside(tmp_path / "file")


def test_keep_removes_the_oldest_and_never_a_base(tmp_path):
    def names():
        return [directory.number_of(one) for one in directory.list_checkpoints(tmp_path)]

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


def test_keep_removes_nothing_when_it_cannot_know_what_is_needed(tmp_path):
    for number, base in ((1, None), (2, 1), (3, None)):
        checkpoint(tmp_path, number, base)
    (tmp_path / "ckpt-00000002" / manifest.FILE).write_text("{")
    with pytest.warns(RuntimeWarning, match="no checkpoint of .* was removed"):
        directory.keep_newest(tmp_path, 2)
    assert len(directory.list_checkpoints(tmp_path)) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        directory.keep_newest(tmp_path, 1)  # 3 alone, and that is whole
    assert len(directory.list_checkpoints(tmp_path)) == 1


def test_a_checkpoint_goes_by_one_rename(tmp_path, monkeypatch):
    path = checkpoint(tmp_path, 1)
    seen = []

    def look(where, *_, **__):
        seen.append((directory.list_checkpoints(tmp_path), where.name))
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
    found = directory.chain(tmp_path / "ckpt-00000005")
    assert [one.step for one in found] == [1, 2, 5]
    os.rename(tmp_path / "ckpt-00000001", tmp_path / "away")
    message = "ckpt-00000002 holds what has changed since ckpt-00000001, and .*ckpt-00000001 is missing"
    with pytest.raises(FileNotFoundError, match=message):
        directory.chain(tmp_path / "ckpt-00000005")
    checkpoint(tmp_path, 1, namespace="another")
    assert len(directory.chain(tmp_path / "ckpt-00000005")) == 3
    (tmp_path / "ckpt-00000001" / manifest.FILE).unlink()
    manifest.write(tmp_path / "ckpt-00000001", document(id="f" * 32))
    with pytest.raises(ValueError, match=r"ckpt-00000001 is another one \(its id is ffff"):
        directory.chain(tmp_path / "ckpt-00000005")
    (tmp_path / "ckpt-00000001" / manifest.FILE).unlink()
    manifest.write(
        tmp_path / "ckpt-00000001",
        document(id=f"{1:032x}", base={"name": "ckpt-00000005", "id": f"{5:032x}"}),
    )
    with pytest.raises(ValueError, match="builds on itself"):
        directory.chain(tmp_path / "ckpt-00000005")


# --- what tables must have in common -----------------------------------------------------------------------


def saved(tmp_path, **tables) -> manifest.Manifest:
    listed = [{**document()["tables"][0], "name": name, "spec": {**SPEC, "name": name, **spec}}
              for name, spec in tables.items()]  # fmt: skip
    return manifest.Manifest(tmp_path, document(tables=listed))


def live(**tables):
    return {
        name: {"spec": {**SPEC, "name": name, **spec}, "slots": [["accumulator", 4]]}
        for name, spec in tables.items()
    }


def test_strict_means_the_same_tables(tmp_path):
    there, here = saved(tmp_path, a={}, b={}), live(b={}, c={})
    with pytest.raises(ValueError, match=r"only the checkpoint has 'a', only this process has 'c'; .*strict"):
        compare.match(there, here)
    found = compare.match(there, here, strict=False)
    assert (found.tables, found.only_in_checkpoint, found.only_live) == (["b"], ("a",), ("c",))
    assert compare.match(there, here, tables=["b"]).tables == ["b"]
    with pytest.raises(ValueError, match="there are no tables 'x'"):
        compare.match(there, here, tables=["b", "x"], strict=False)


def test_what_says_how_training_goes_on_may_differ(tmp_path):
    here = live(a={"l2": 0.1, "max_norm": 3.0})
    assert compare.match(saved(tmp_path, a={}), here).tables == ["a"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"dim": 8}, r"dim +4 +8"),
        ({"seed": 3}, r"seed +0 +3"),
        ({"initializer": {"name": "uniform", "a": -0.1, "b": 0.05}}, r"initializer\.a +-0\.05 +-0\.1"),
        ({"optimizer": {"name": "sgd", "params": {}}, "dim": 2}, r"optimizer\.params\.eps +1e-07 +-"),
    ],
)
def test_what_a_row_means_must_not_differ(tmp_path, change, line):
    for slots in (True, False):
        if slots or "optimizer" not in change:
            with pytest.raises(ValueError, match=line) as caught:
                compare.match(saved(tmp_path, a={}), live(a=change), slots=slots, strict=False)
            assert "declare the table as it was saved" in str(caught.value)
    assert "slots=False" not in str(caught.value), "that would not help"


def test_an_optimizer_may_change_if_its_slots_begin_anew(tmp_path):
    here = live(a={"optimizer": {"name": "adam", "params": {"beta1": 0.9}}})
    with pytest.raises(ValueError, match=r'optimizer\.name +"adagrad" +"adam"') as caught:
        compare.match(saved(tmp_path, a={}), here)
    assert "give slots=False" in str(caught.value) and "optimizer.params.beta1" in str(caught.value)
    assert compare.match(saved(tmp_path, a={}), here, slots=False).tables == ["a"]
    # Equal by name and parameters, with other slots: as of another version.
    here = live(a={})
    here["a"]["slots"] = [["accumulator", 1]]
    with pytest.raises(ValueError, match=r'slots +\[\["accumulator", 4\]\] +\[\["accumulator", 1\]\]'):
        compare.match(saved(tmp_path, a={}), here)
    # FTRL's values are made of its slots.
    here = live(a={"optimizer": {"name": "ftrl", "params": {}}})
    with pytest.raises(ValueError, match="FTRL computes the values from the slots"):
        compare.match(saved(tmp_path, a={}), here, slots=False)
    with pytest.raises(ValueError, match=r"as it was saved$"):
        compare.match(saved(tmp_path, a={}), here)


# --- ranks -------------------------------------------------------------------------------------------------


class Played:
    """Horovod's module as one rank of two sees it; the other does what `other` says."""

    def __init__(self, other, me=0):
        self.other, self.me, self.exchanges = other, me, 0

    def rank(self):
        return self.me

    def size(self):
        return 2

    def allgather_object(self, value, name=None):
        self.exchanges += 1
        theirs = self.other(value)
        return [value, theirs] if self.me == 0 else [theirs, value]


@pytest.fixture
def played(monkeypatch):
    def play(other, me=0):
        hvd = Played(other, me)
        monkeypatch.setattr(runtime._settings, "hvd", hvd)
        return hvd

    return play


def test_alone_nothing_is_exchanged():
    ranks = Ranks()
    assert (ranks.rank, ranks.size) == (0, 1)
    assert ranks.together("x", lambda: 3) == [3] and ranks.first("x", lambda: 4) == 4
    ranks.agree("arguments", 1)
    assert ranks.share([1, 2, 3]) == [1, 2, 3]
    with pytest.raises(KeyError):
        ranks.together("x", lambda: {}[1])


def test_results_of_all_ranks_and_of_the_first(played):
    hvd = played(lambda value: (value[0] * 10 if value[0] else 7, None))
    ranks = Ranks()
    assert ranks.together("x", lambda: 3) == [3, 30] and ranks.first("x", lambda: 4) == 4
    played(lambda value: ("of rank 0", None), me=1)
    ranks = Ranks()

    def never():
        raise AssertionError

    assert ranks.first("x", never) == "of rank 0"
    assert ranks.share([1, 2, 3]) == [2]
    assert Ranks(alone=True).size == 1 and hvd.exchanges == 2


def test_an_error_of_one_rank_is_one_of_all(played):
    hvd = played(lambda value: (None, None))
    with pytest.raises(ZeroDivisionError):
        Ranks().together("divide", lambda: 1 // 0)
    assert hvd.exchanges == 1, "the other rank was told"
    with pytest.raises(KeyboardInterrupt):
        Ranks().together("wait", lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert hvd.exchanges == 2

    class DiskFull(OSError):
        pass

    for error, expected in [
        (DiskFull("no space"), OSError),
        (FileNotFoundError("no file"), FileNotFoundError),
        (KeyboardInterrupt("key"), RuntimeError),
    ]:
        said = ([cls.__name__ for cls in type(error).__mro__], str(error))
        played(lambda value, said=said: (None, said))
        with pytest.raises(expected, match=f"rank 1 could not write: {error}"):
            Ranks().together("write", lambda: 3)


def test_ranks_that_were_called_differently_are_told(played):
    played(lambda value: ({"step": 2}, None))
    with pytest.raises(
        ValueError, match=r"different arguments: rank 0: \{'step': 1\}, rank 1: \{'step': 2\}"
    ):
        Ranks().agree("arguments", {"step": 1})
