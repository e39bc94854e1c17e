"""Damaged and impossible checkpoints: what is wrong is named, by `het ckpt verify`, too, and nothing changes.

Which bytes make a file of rows is the matter of row_file_test.cc.
"""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import xxhash
from checkpoint_lib import files, fit, model, same, tables, weights
from cli_lib import het
from safetensors.numpy import load_file, save_file
from tools_lib import ROOT, python

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.row_files import verify_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An increment, and the model, which has gone on since; a file of each has rows and removals."""
    het_tf.reset()
    tf.config.run_functions_eagerly(True)
    made, place = model("Adam"), tmp_path_factory.mktemp("saved")
    fit(made, 0, 2)
    table, ids = het_tf.Table("item"), np.arange(100, 500)
    table.assign(ids, np.ones((400, 4)))
    checkpoint.save(place, made)
    table.assign(ids, np.zeros((400, 4)))
    table.remove(ids[200:])
    path = checkpoint.save(place, made, since="latest")
    fit(made, 2, 3)
    yield path, made
    tf.config.run_functions_eagerly(False)
    het_tf.reset()


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of the increment beside its base, to be damaged."""
    shutil.copytree(saved[0].parent, tmp_path / "c")
    return tmp_path / "c" / saved[0].name


def base_of(path):
    return path.with_name("ckpt-00000001")


def rows_of(path, number=3):
    return path / manifests.read_manifest(path).files[number]["name"]


def flip(at):
    """Changes a bit; once more: changes it back. In place: a file that is written anew goes to the disk."""

    def harm(file):
        with file.open("r+b") as opened:
            opened.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
            (byte,) = opened.read(1)
            opened.seek(-1, os.SEEK_CUR)
            opened.write(bytes([byte ^ 4]))

    return harm


def pipe(file):
    """Opening it waits for a writer."""
    file.unlink()
    os.mkfifo(file)


def content(text):
    return lambda file: file.write_bytes(text)


def cut(size):
    return lambda file: os.truncate(file, size)


def swap(file):
    """Another group's file in its place, whole in itself."""
    shutil.copy(rows_of(file.parent, 4), file)


def edited(change):
    """Another manifest, with a checksum that fits."""

    def harm(file):
        document = json.loads(file.read_text())
        change(document)
        file.unlink()
        manifests.write(file.parent, document)

    return harm


def of_table(**changes):
    return edited(lambda document: document["tables"][0].update(changes))


def of_file(**changes):
    return edited(lambda document: document["files"][0].update(changes))


GONE, NO_JSON = "is missing, but the manifest of the checkpoint", "manifest.json is damaged: it is not JSON"
HARMS = [
    ("rows", flip(-1), ValueError, "{name}"),
    ("rows of the base", flip(-1), ValueError, "{name}"),
    ("rows", cut(100), ValueError, "{name}"),
    ("rows", swap, ValueError, "{name}"),
    ("rows", Path.unlink, FileNotFoundError, "{name} " + GONE),
    ("rows", pipe, ValueError, "{name} is a FIFO, not a regular file"),
    *[("dense", flip(at), ValueError, "dense.safetensors is damaged: ") for at in (0, 9, -3)],
    ("dense", cut(7), ValueError, "dense.safetensors is damaged: it"),
    ("dense", pipe, ValueError, "dense.safetensors is a FIFO, not a regular file"),
    ("dense", Path.unlink, FileNotFoundError, "dense.safetensors " + GONE),
    ("manifest", pipe, ValueError, "manifest.json is a FIFO, not a regular file"),
    ("manifest", Path.unlink, FileNotFoundError, "has no manifest.json"),
    ("manifest", cut(200 << 20), ValueError, "manifest.json has more than 134 MB"),
    *[("manifest", content(text), ValueError, NO_JSON) for text in (b"", b"{", b"[1, 2")],
    ("manifest", content(b"[" * 100_000), ValueError, f"{NO_JSON} (it is nested deeper than"),
    ("manifest", content(b'{"format": "\xff"}'), ValueError, NO_JSON + " (byte 12 is not UTF-8"),
    ("manifest", content('{"format": ""}'.encode("utf-16")), ValueError, NO_JSON + " (byte 0 is not UTF-8"),
    ("manifest", content(b'{"created": NaN}'), ValueError, NO_JSON + " (NaN is not a number of JSON"),
    ("manifest", content(b'{"created": 1e999}'), ValueError, NO_JSON + " (1e999 is not a number of JSON"),
    ("manifest", content(b"[]"), ValueError, "manifest.json is not a manifest of het_tf"),
    ("manifest", edited(lambda d: d.update(format="other")), ValueError, "is not a manifest of het_tf"),
    ("manifest", edited(lambda d: d.update(version=2)), ValueError, "version 2, and this het_tf reads"),
    ("manifest", edited(lambda d: d.update(version="5")), ValueError, "version '5', and"),
    ("manifest", edited(lambda d: d.pop("step")), ValueError, "'step' is missing"),
    ("manifest", edited(lambda d: d.update(step=-1)), ValueError, "'step' of a manifest is -1"),
    ("manifest", edited(lambda d: d.update(base={"name": "a/b", "id": "x"})), ValueError, "'base' of a"),
    ("manifest", edited(lambda d: d["store"].update(partitions=True)), ValueError, "'store' of a manifest"),
    ("manifest", edited(lambda d: d["tables"].append(3)), ValueError, "'tables' of a manifest"),
    ("manifest", edited(lambda d: d["tables"][0].pop("positions")), ValueError, "a table has no 'positions'"),
    ("manifest", of_table(clock_floor=1 << 63), ValueError, "'clock_floor' of a table is"),
    ("manifest", of_table(applies=1 << 63), ValueError, "'applies' of a table is"),
    ("manifest", of_table(name="\ud800"), ValueError, "'name' of a table is"),
    ("manifest", of_table(positions=["\ud800"]), ValueError, "'positions' of a table is"),
    ("manifest", of_file(name="../x"), ValueError, "'name' of a file is \"../x"),
    ("manifest", of_file(partitions=[1]), ValueError, "its store has 16"),
    ("manifest", edited(lambda d: d["dense"].update(bytes="9")), ValueError, "'bytes' of a dense"),
]


@pytest.mark.parametrize(("which", "harm", "error", "words"), HARMS)
def test_what_is_damaged_is_named_and_nothing_changes(saved, copy, which, harm, error, words):
    made, base = saved[1], base_of(copy)
    file = {"rows": rows_of(copy), "rows of the base": rows_of(base), "dense": copy / "dense.safetensors",
            "manifest": copy / manifests.FILE}[which]  # fmt: skip
    harm(file)
    words = words.format(name=file.name)
    before, dense, there = tables(), weights(made), {} if which == "manifest" else files(copy)
    actions = [lambda: checkpoint.restore(copy, made), lambda: checkpoint.verify(copy)]
    for action in [*actions, lambda: checkpoint.restore(copy)] if which != "dense" else actions:
        with pytest.raises(error, match=re.escape(words)):
            action()
    assert words in het("ckpt", "verify", copy, status=1).err
    same(tables(), before)
    np.testing.assert_equal(weights(made), dense)
    assert not there or files(copy) == there
    if not file.exists():
        assert which != "manifest" or checkpoint.latest(copy.parent) == base
    fit(made, 6, 7)  # the tables are usable


def test_any_flipped_bit_is_noticed(copy):
    """In the manifest, in rows and removals with all of their columns, and in dense weights."""
    whole = manifests.read_manifest(copy)
    checks = {
        copy / manifests.FILE: lambda _: manifests.read_manifest(copy),
        rows_of(copy): lambda file: verify_rows(file, whole.files[3]),
        copy / "dense.safetensors": lambda file: manifests.verify(file, whole.dense),
    }
    for file, read in checks.items():
        size = file.stat().st_size
        for at in range(0, size, size // 400 | 1):
            flip(at)(file)
            try:
                found = read(file)
            except ValueError:
                found = None
            # White space of the manifest may be hit.
            assert found is None or found.document == whole.document, (file, at)
            flip(at)(file)
        read(file)


def reseal(file):
    """Makes the manifest's checksums those of a file that was changed: what remains is what is in it."""
    raw, document = file.read_bytes(), manifests.read_manifest(file.parent).document
    head = raw[: 8 + int.from_bytes(raw[:8], "little")]
    (entry,) = [one for one in document["files"] if one["name"] == file.name]
    tensors = {
        name: {"rows": len(array), "xxh3": xxhash.xxh3_64_hexdigest(array.tobytes())}
        for name, array in load_file(file).items()
    }
    entry.update(bytes=len(raw), header_xxh3=xxhash.xxh3_64_hexdigest(head), tensors=tensors)
    (file.parent / manifests.FILE).unlink()
    manifests.write(file.parent, document)


def put(column, at, value):
    return lambda columns, alien: columns[f"item/{column}"].__setitem__(at, alien if value is None else value)


def both(columns, alien):
    columns["item/removed"][0] = columns["item/keys"][0]


def twice(columns, alien):
    columns["item/keys"][0] = columns["item/keys"][1]


def fewer(columns, alien):
    columns.update({name: column[1:] for name, column in columns.items()})


def wider(columns, alien):
    columns["item/values"] = np.repeat(columns["item/values"], 2, axis=1)


def renamed(columns, alien):
    for name in list(columns):
        columns[name.replace("item/", "other/")] = columns.pop(name)


CONTENTS = [
    (put("keys", 0, None), "has a row of id {alien}, of partition"),
    (put("removed", 0, None), "has a removal of id {alien}, of partition"),
    (put("values", (0, 1), np.nan), "'item/values' has NaN"),
    (put("slots", (0, 0), -np.nan), "'item/slots' has NaN"),
    (put("clocks", 0, -1), "has a clock out of range"),
    (both, "both as a row and as a removal"),
    (twice, "in more than one row"),
    (fewer, "removals in its files, and the manifest says"),
    (wider, "have 8 floats and 9 of slots, and by the manifest 4 and 9"),
    (renamed, "tables that the manifest lacks: other"),
]


@pytest.mark.parametrize(("change", "words"), CONTENTS)
def test_verify_sees_contents_that_cannot_be(copy, change, words):
    file, alien = rows_of(copy), int(load_file(rows_of(copy, 4))["item/keys"][0])
    columns = {name: column.copy() for name, column in load_file(file).items()}
    change(columns, alien)
    save_file(columns, file, {"format": "het_tf rows", "version": "1"})
    reseal(file)
    assert words.format(alien=alien) in het("ckpt", "verify", copy, status=1).err


def test_verify_lists_all_faults(copy):
    base = base_of(copy)
    flip(-1)(rows_of(base))
    flip(-1)(copy / "dense.safetensors")
    rows_of(copy).unlink()
    edited(lambda document: document["tables"].clear())(base / manifests.FILE)
    lines = het("ckpt", "verify", copy, status=1).err.splitlines()
    assert len(lines) == 1 + 16 + 2 and all(line.startswith("het ckpt: ") for line in lines)
    assert f"{base} has no table 'item', whose rows {copy} builds on" in lines[0]
    assert f"{rows_of(copy)} {GONE}"[:40] in lines[-2] and "dense" in lines[-1]


def test_it_works_without_tensorflow_and_without_the_plugin(saved, tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/__init__.py").write_text("raise SystemExit('TensorFlow was imported')")
    done = python("-m", "het_tf", "ckpt", "verify", saved[0], PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert "ckpt-00000002, which builds on ckpt-00000001, is sound: 34 files" in done.stdout
