"""het ckpt on checkpoints made by hand: every command, and every kind of damage."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from het_ckpt_lib import (
    Table,
    flip,
    het_ckpt,
    manifest,
    merged,
    partition,
    reseal_file,
    rows,
    seal,
    tensor_bytes,
    write,
)  # fmt: skip
from safetensors.numpy import load_file

import het_tf
from het_tf.ext.checkpoint.python.cli import merge
from het_tf.ext.checkpoint.python.row_files import place_of

ROOT = Path(het_tf.__file__).parents[1]
SCALE = float(os.environ.get("HET_TEST_SCALE", "1"))


# --- what a chain means ------------------------------------------------------------------------------


def test_rows_of_a_chain_are_the_newest_ones(chain, tmp_path):
    expected = rows(range(-50, 150)) | rows(range(10, 20), 3)
    for gone in (0, 1, 2):
        del expected[gone]
    assert merged(tmp_path / "two", chain[1])["item"] == expected
    expected |= rows([1, 12, 500], 4)
    del expected[13]
    found = merged(tmp_path / "three", chain[2])
    assert found["item"] == expected
    assert found["user/é"] == rows([7], 9, 2, 0)  # complete there: what was before is no more
    assert merged(tmp_path / "newest", chain[2].parent) == found  # the newest of the directory


@pytest.mark.parametrize("seed", range(max(2, round(8 * SCALE))))
def test_random_chains_merge_to_what_a_dictionary_says(tmp_path, seed):
    rng = np.random.default_rng(seed)
    state: dict[int, Any] = {}
    paths: list[Path] = []
    for step in range(int(rng.integers(2, 6))):
        complete = step == 0 or rng.random() < 0.2
        ids = [int(one) for one in rng.choice(80, rng.integers(0, 40), False)]
        gone = [] if complete else [one for one in state if one not in ids and rng.random() < 0.2]
        new = rows(ids, step + 1)
        state = new if complete else {key: row for key, row in (state | new).items() if key not in gone}
        base = paths[-1] if paths else None
        path = tmp_path / f"run/ckpt-{step:08d}"
        paths.append(write(path, [Table(new, gone, complete)], base, int(rng.integers(1, 5))))
    assert merged(tmp_path / "whole", paths[-1])["item"] == state
    # Two parts of the chain, each merged, are the chain.
    cut = int(rng.integers(1, len(paths)))
    parts = tmp_path / "parts"
    het_ckpt("merge", parts / "ckpt-00000001", *paths[:cut])
    if len(paths) - cut > 1:
        het_ckpt("merge", parts / "ckpt-00000002", *reversed(paths[cut:]))
    else:
        shutil.copytree(paths[cut], parts / "ckpt-00000002")
    het_ckpt("verify", parts / "ckpt-00000001")
    document = manifest(parts / "ckpt-00000002")
    assert document["base"] == {"name": paths[cut - 1].name, "id": manifest(paths[cut - 1])["id"]}
    document["base"] = {"name": "ckpt-00000001", "id": manifest(parts / "ckpt-00000001")["id"]}
    seal(parts / "ckpt-00000002", document)
    assert merged(tmp_path / "of_parts", parts)["item"] == state
    het_ckpt("verify", parts)


def test_a_chain_across_stores_with_other_partitions(tmp_path):
    """The hash of the newest decides; a file of another store may have any key."""
    full = write(tmp_path / "run/ckpt-00000001", [Table(rows(range(100)))])
    document = manifest(full)
    document["store"]["hash_seed"] = "12345"  # so the keys of its files are anywhere, for its own store
    seal(full, document)
    newest = write(tmp_path / "run/ckpt-00000002", [Table(rows([3], 2), [4], False)], full, 2)
    expected = rows(range(100)) | rows([3], 2)
    del expected[4]
    assert merged(tmp_path / "whole", newest)["item"] == expected  # every row in the file of its partition


@pytest.mark.parametrize("partitions", [1, 8, 64, 127])
def test_where_a_table_lies(partitions):
    place = place_of("ü", partitions)
    used = {partition(key, "ü", partitions) for key in range(50 * partitions)}
    assert used == {*range(place["first"], partitions, partitions // place["group"])}


# --- merge -------------------------------------------------------------------------------------------


def test_merge_writes_a_full_checkpoint(chain, tmp_path):
    done = het_ckpt("merge", tmp_path / "full", chain[2])
    assert (
        "full: full, from ckpt-00000001, ckpt-00000002, ckpt-00000003: item 198 rows, user/é 1 rows"
        in done.out
    )
    document = manifest(tmp_path / "full")
    assert document["base"] is None and document["step"] == 9
    assert document["id"] not in {manifest(path)["id"] for path in chain}
    assert [(t["rows"], t["removed"], t["complete"]) for t in document["tables"]] == [
        (198, 0, True),
        (1, 0, True),
    ]
    assert len(document["files"]) == 4  # as the newest
    assert (tmp_path / "full/dense.safetensors").read_bytes() == (chain[2] / "dense.safetensors").read_bytes()
    assert not [*tmp_path.glob(".tmp*")]


def test_merged_increments_keep_what_they_remove_from_their_base(chain, tmp_path):
    het_ckpt("merge", tmp_path / "both", chain[1], chain[2])
    files = [load_file(path) for path in sorted((tmp_path / "both").glob("rows*"))]
    removed = np.concatenate([file["item/removed"] for file in files])
    assert sorted(removed) == [0, 2, 13]  # 1 was removed by the first, and came back with the second
    keys = np.concatenate([file["item/keys"] for file in files])
    assert sorted(keys) == [1, *range(10, 13), *range(14, 20), 500]
    item, user = manifest(tmp_path / "both")["tables"]
    assert (item["removed"], item["complete"], user["removed"], user["complete"]) == (3, False, 0, True)


def test_merge_refuses_what_is_no_chain(chain, tmp_path):
    err = het_ckpt("merge", tmp_path / "x", chain[0], chain[2], status=1).err
    assert (
        "one checkpoint must be the base of all others" in err and "ckpt-00000003 (on ckpt-00000002)" in err
    )
    assert "are the same or have" in het_ckpt("merge", tmp_path / "x", chain[1], chain[1], status=1).err
    (tmp_path / "x").mkdir()
    assert "exists already" in het_ckpt("merge", tmp_path / "x", chain[1], status=1).err
    assert not [*(tmp_path / "x").iterdir()]


def test_merge_gives_damage_no_new_checksum(chain, tmp_path):
    flip(chain[0] / "rows-00001-of-00003.safetensors", -3)
    assert "user/é/counts" in het_ckpt("merge", tmp_path / "x", chain[2], status=1).err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("where", ["fsync", "rename", "merge_rows"])
def test_a_merge_that_fails_leaves_nothing(chain, tmp_path, monkeypatch, where):
    real = merge.merge_rows

    def full(*arguments):
        if where == "merge_rows":  # the library says so of its second file
            if "rows-00000" in arguments[0].name:
                return real(*arguments)
            raise OSError(f"cannot write '{arguments[0]}': {os.strerror(errno.ENOSPC)}")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(merge if where == "merge_rows" else os, where, full)
    err = het_ckpt("merge", tmp_path / "x", chain[2], status=1).err
    assert "No space left on device" in err and str(tmp_path) in err
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


# --- inspect -----------------------------------------------------------------------------------------


def test_inspect(chain):
    text = het_ckpt("inspect", chain[2].parent).out
    assert "ckpt-00000003\nincrement on ckpt-00000002, step 9, of 2023-11-14 22:13:20Z\n" in text
    assert "\ndense.safetensors: 1 tensors, " in text
    assert "\nitem: dim 3, row_wise_adagrad\n    3 rows and 1 removals on its base, " in text
    widths = [len(line) for line in text.splitlines() if str(chain[2].parent) not in line]
    assert max(widths) <= 80, "a terminal has 80 columns"
    assert [line[:23] for line in text.splitlines()[-2:]] == [f"builds on ckpt-0000000{n}" for n in (2, 1)]
    document = json.loads(het_ckpt("inspect", chain[2], "--json").out)
    assert [one["rows"] for one in document["chain"]] == [230, 10, 4]
    (item, user) = document["tables"]
    assert (item["rows"], item["removed"], item["row_bytes"]) == (3, 1, 38)
    assert user["rows"] == 1 and user["complete"]
    assert document["dense"]["tensors"] == {"model/kernel": {"dtype": "F32", "shape": [3, 2]}}


def test_inspect_without_rows_and_without_tables(tmp_path):
    empty = write(tmp_path / "ckpt-00000001", [Table({})], step=None)
    assert "no step" in het_ckpt("inspect", empty).out
    het_ckpt("verify", empty)
    none = write(tmp_path / "ckpt-00000002", [])
    het_ckpt("inspect", none)
    het_ckpt("verify", none)
    het_ckpt("merge", tmp_path / "x", none)


# --- the command -------------------------------------------------------------------------------------


def test_wrong_arguments_and_paths(tmp_path):
    assert "there is no checkpoint" in het_ckpt("inspect", tmp_path / "no", status=1).err
    assert "neither a checkpoint nor a directory of checkpoints" in het_ckpt("verify", tmp_path, status=1).err
    (tmp_path / "file").write_text("x")
    assert "is a file" in het_ckpt("verify", tmp_path / "file", status=1).err


def test_it_works_without_tensorflow_and_without_the_plugin(chain, tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/__init__.py").write_text("raise SystemExit('TensorFlow was imported')")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    run = functools.partial(subprocess.run, env=env, text=True, capture_output=True, timeout=600)
    done = run([sys.executable, "-m", "het_tf", "ckpt", "verify", str(chain[2])])
    assert done.returncode == 0 and "is sound" in done.stdout, done.stderr
    done = run([sys.executable, "-m", "het_tf", "ckpt", "merge", tmp_path / "x", chain[2]])
    assert done.returncode == 0 and (tmp_path / "x").exists(), done.stderr
    piped = run(f"{sys.executable} -m het_tf ckpt inspect {chain[2]} | head -1", shell=True)
    assert piped.stdout.count("\n") == 1 and piped.stderr == ""


@pytest.mark.slow
def test_a_large_table_is_never_in_memory(tmp_path):
    count, dim = 400_000, 64
    path = tmp_path / "ckpt-00000001"
    write(path, [Table({}, dim=dim, slots=0)], files=1)
    (name,) = (one["name"] for one in manifest(path)["files"])
    (path / name).unlink()
    n = np.arange(count)
    head, body = tensor_bytes(
        {
            "item/keys": n,
            "item/clocks": n,
            "item/values": np.repeat(n[:, None], dim, 1).astype(np.float32),
            "item/last_used": n.astype(np.uint32),
            "item/counts": (n % 1000).astype(np.uint16),
        },
        {"format": "het_tf rows", "version": "1"},
    )
    (path / name).write_bytes(head + body)
    del body
    reseal_file(path)
    document = manifest(path)
    document["tables"][0]["rows"] = count
    seal(path, document)
    size = (path / name).stat().st_size
    assert size > 100e6
    code = """
        import resource, sys
        from het_tf.python.cli import main
        most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert main(["ckpt", "verify", sys.argv[1]]) == 0
        before = most()
        assert main(["ckpt", *sys.argv[2:]]) == 0
        print(1024 * (most() - before))
    """
    small = write(tmp_path / "ckpt-00000000", [Table(rows(range(9)))])
    for words in (("inspect", path), ("verify", path), ("merge", tmp_path / "copy", path)):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), small, *words], text=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-1]) < 0.4 * size, words
    before, after = (load_file(place / name) for place in (path, tmp_path / "copy"))
    assert before.keys() == after.keys()
    for column, array in before.items():
        np.testing.assert_array_equal(after[column], array)
