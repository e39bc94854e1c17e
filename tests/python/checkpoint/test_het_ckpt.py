"""het-ckpt on checkpoints made by hand: every command, and every kind of damage."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from het_ckpt_lib import (
    SEED,
    Table,
    columns,
    het_ckpt,
    manifest,
    pack,
    partition,
    reseal_file,
    rows,
    seal,
    tensor_bytes,
    write,
)  # fmt: skip
from safetensors.numpy import load_file

import het_tf
from het_tf.python.checkpoint.cli import convert, view
from het_tf.python.checkpoint.cli.rowwriter import RowWriter
from het_tf.python.checkpoint.rowfile import DamagedError, RowFile

ROOT = Path(het_tf.__file__).parents[1]
NAN = float("nan")
SCALE = float(os.environ.get("HET_TEST_SCALE", "1"))


@pytest.fixture
def chain(tmp_path):
    """A full checkpoint and two increments in tmp_path/run; returns their paths."""
    place = tmp_path / "run"
    user = {"name": "user/é", "dim": 2, "slots": 0}
    dense = [{"model/kernel": np.full((3, 2), step, np.float32)} for step in range(3)]
    full = write(
        place / "ckpt-00000001", [Table(rows(range(-50, 150))), Table(rows(range(30), 1, 2, 0), **user)],
        dense=dense[0],
    )  # fmt: skip
    second = write(
        place / "ckpt-00000002",
        [Table(rows(range(10, 20), 3), [0, 1, 2], False), Table({}, [], False, **user)],
        full, files=2, step=8, dense=dense[1],
    )  # fmt: skip
    third = write(
        place / "ckpt-00000003",
        [Table(rows([1, 12, 500], 4), [13], False), Table(rows([7], 9, 2, 0), **user)],
        second, files=4, step=9, dense=dense[2],
    )  # fmt: skip
    return [full, second, third]


def content(path: Path, place: Path) -> dict[str, dict[int, tuple]]:
    """All rows of a checkpoint, by what to-npz says."""
    out = place / "content.npz"
    het_ckpt("to-npz", path, out, "--slots", "--force")
    found: dict[str, dict[int, tuple]] = {}
    with np.load(out) as arrays:
        for name in {name.rpartition("/")[0] for name in arrays}:
            of = {key.rpartition("/")[2]: arrays[key] for key in arrays if key.rpartition("/")[0] == name}
            slots = of.get("slots", np.empty((len(of["ids"]), 0)))
            found[name] = {
                int(key): (int(clock), value.tolist(), slot.tolist(), int(used), int(count))
                for key, clock, value, slot, used, count in zip(
                    of["ids"], of["clocks"], of["values"], slots, of["last_used"], of["counts"], strict=True
                )
            }
            assert len(found[name]) == len(of["ids"])
    return found


# --- what a chain means ------------------------------------------------------------------------------


def test_rows_of_a_chain_are_the_newest_ones(chain, tmp_path):
    expected = rows(range(-50, 150)) | rows(range(10, 20), 3)
    for gone in (0, 1, 2):
        del expected[gone]
    assert content(chain[1], tmp_path)["item"] == expected
    expected |= rows([1, 12, 500], 4)
    del expected[13]
    found = content(chain[2], tmp_path)
    assert found["item"] == expected
    assert found["user/é"] == rows([7], 9, 2, 0)  # complete there: what was before is no more
    assert content(chain[2].parent, tmp_path) == found  # the newest of the directory


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
    assert content(paths[-1], tmp_path)["item"] == state
    het_ckpt("merge", tmp_path / "whole", paths[-1])
    assert content(tmp_path / "whole", tmp_path)["item"] == state
    het_ckpt("verify", tmp_path / "whole")
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
    assert content(parts, tmp_path)["item"] == state
    het_ckpt("verify", parts)
    assert het_ckpt("diff", parts, paths[-1], "--exit-code").out


def test_a_chain_across_stores_with_other_partitions(tmp_path):
    """The hash of the newest decides; a file of another store may have any key."""
    full = write(tmp_path / "run/ckpt-00000001", [Table(rows(range(100)))])
    document = manifest(full)
    document["store"]["hash_seed"] = "12345"  # so the keys of its files are anywhere, for its own store
    seal(full, document)
    newest = write(tmp_path / "run/ckpt-00000002", [Table(rows([3], 2), [4], False)], full, 2)
    het_ckpt("merge", tmp_path / "whole", newest)
    expected = rows(range(100)) | rows([3], 2)
    del expected[4]
    assert content(tmp_path / "whole", tmp_path)["item"] == expected
    het_ckpt("verify", tmp_path / "whole")  # every row is in the file of its partition
    assert "0        0        0     99" in het_ckpt("diff", newest, tmp_path / "whole").out


def test_the_hash_is_that_of_the_core():
    keys = np.array([0, 1, -1, 2**63 - 1, -(2**63), 123456789], np.int64)
    for seed in (0, SEED):
        for partitions in (1, 8, 64, 65536):
            expected = [partition(int(key), partitions, seed) for key in keys]
            assert view.partition_of(keys, partitions, seed).tolist() == expected
    # The finaliser of MurmurHash3 makes 0xb456bcfc34c2cb2c of 1, and 0x64b5720b4b825f21 of -1.
    assert view.partition_of(keys[:3], 64, 0).tolist() == [0, 13, 18]


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
    files = [RowFile(path) for path in sorted((tmp_path / "both").glob("rows*"))]
    removed = np.concatenate([file.removed("item") for file in files])
    assert sorted(removed) == [0, 2, 13]  # 1 was removed by the first, and came back with the second
    keys = np.concatenate([file.column("item", "keys") for file in files])
    assert sorted(keys) == [1, *range(10, 13), *range(14, 20), 500]
    item, user = manifest(tmp_path / "both")["tables"]
    assert (item["removed"], item["complete"], user["removed"], user["complete"]) == (3, False, 0, True)


def test_merge_refuses_what_is_no_chain(chain, tmp_path):
    err = het_ckpt("merge", tmp_path / "x", chain[0], chain[2], status=1).err
    assert (
        "one checkpoint has to be the base of all others" in err and "ckpt-00000003 (on ckpt-00000002)" in err
    )
    assert "two are the same" in het_ckpt("merge", tmp_path / "x", chain[1], chain[1], status=1).err
    (tmp_path / "x").mkdir()
    assert "is there already" in het_ckpt("merge", tmp_path / "x", chain[1], status=1).err
    assert not [*(tmp_path / "x").iterdir()]


def test_merge_gives_damage_no_new_checksum(chain, tmp_path):
    flip(chain[0] / "rows-00001-of-00003.safetensors", -3)
    assert "user/é/counts" in het_ckpt("merge", tmp_path / "x", chain[2], status=1).err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("where", ["fsync", "rename", "append"])
def test_a_merge_that_fails_leaves_nothing(chain, tmp_path, monkeypatch, where):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RowWriter if where == "append" else os, where, full)
    err = het_ckpt("merge", tmp_path / "x", chain[2], status=1).err
    assert "No space left on device" in err and str(tmp_path) in err
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


# --- inspect -----------------------------------------------------------------------------------------


def test_inspect(chain):
    text = het_ckpt("inspect", chain[2].parent).out
    assert "ckpt-00000003: increment on ckpt-00000002, step 9, of 2023-11-14 22:13 UTC" in text
    assert "model/kernel" in text and "[3, 2]" in text
    (item,) = (line.split() for line in text.splitlines() if line.startswith("item"))
    assert item[:6] == ["item", "3", "row_wise_adagrad", "198", "3,", "-1"]
    assert ["ckpt-00000001" in line for line in text.splitlines()].count(True) == 1
    document = json.loads(het_ckpt("inspect", chain[2], "--json").out)
    assert [one["rows"] for one in document["chain"]] == [230, 10, 4]
    (item, user) = document["tables"]
    assert (item["rows"], item["own_rows"], item["own_removed"]) == (198, 3, 1)
    assert (item["ids"], item["clocks"], item["counts"]) == ([-50, 500], [1, 4], [1, 4])
    assert item["last_used"] == [1_600_000_001, 1_600_000_004] and item["row_bytes"] == 38
    assert user["rows"] == 1 and user["complete"] and user["mean_count"] == 9
    assert document["dense"]["tensors"] == {"model/kernel": {"dtype": "F32", "shape": [3, 2]}}


def test_inspect_one_table(chain):
    text = het_ckpt("inspect", chain[0], "--table", "user/é").out
    assert "slots: none" in text and "item" not in text and "ids from 0 to 29" in text
    err = het_ckpt("inspect", chain[0], "--table", "nope", status=1).err
    assert "has no table 'nope'; its tables: 'item', 'user/é'" in err


def test_inspect_without_rows_and_without_tables(tmp_path):
    empty = write(tmp_path / "ckpt-00000001", [Table({})], step=None)
    assert "no step" in het_ckpt("inspect", empty).out
    het_ckpt("verify", empty)
    none = write(tmp_path / "ckpt-00000002", [])
    het_ckpt("inspect", none)
    het_ckpt("verify", none)
    het_ckpt("merge", tmp_path / "x", none)


# --- diff --------------------------------------------------------------------------------------------


def test_diff(chain):
    done = json.loads(het_ckpt("diff", chain[0], chain[1], "--json", "--examples", 2).out)
    item, user = done["tables"]
    counts = {name: item[name] for name in ("before", "after", "added", "removed", "changed", "equal")}
    assert counts == {"before": 200, "after": 197, "added": 0, "removed": 3, "changed": 10, "equal": 187}
    assert (item["largest"], item["largest_slot"]) == (0.25, 2.0)
    assert item["examples"][0] == {"id": 10, "what": "changed", "difference": 0.25, "clocks": [1, 3]}
    assert user["changed"] == 0 and user["equal"] == 30
    het_ckpt("diff", chain[0], chain[1], "--exit-code", status=1)
    het_ckpt("diff", chain[1], chain[1], "--exit-code")
    assert "id 500 added, clock 4" in het_ckpt("diff", chain[1], chain[2], "--table", "item").out
    assert "no table 'nope'" in het_ckpt("diff", chain[1], chain[2], "--table", "nope", status=1).err


def test_diff_sees_one_bit_and_takes_not_a_number_for_itself(tmp_path):
    before, after = rows(range(20)), rows(range(20))
    for both in (before, after):
        both[3] = (1, [float("nan"), float("inf"), 0], [1], 1, 1)
    after[4] = (
        1,
        [before[4][1][0], before[4][1][1], np.nextafter(np.float32(before[4][1][2]), 9)],
        [1.5],
        1,
        1,
    )
    after[5] = (1, [float("nan"), 0, 0], [1.5], 1, 1)
    after[6] = (2, *after[6][1:])  # its clock alone
    a, b = (write(tmp_path / name, [Table(of)]) for name, of in (("a", before), ("b", after)))
    (item,) = json.loads(het_ckpt("diff", a, b, "--json").out)["tables"]
    assert item["changed"] == 3 and {one["id"] for one in item["examples"]} == {4, 5, 6}
    assert item["largest"] == float("inf")


def test_diff_of_other_tables_and_specs(tmp_path):
    a = write(tmp_path / "a", [Table(rows(range(9))), Table(rows(range(4)), name="only a")])
    b = write(tmp_path / "b", [Table(rows(range(9), dim=2, slots=0), dim=2, slots=0)])
    item, gone = json.loads(het_ckpt("diff", a, b, "--json").out)["tables"]
    assert item["changed"] == 9 and "dim: 3 -> 2" in item["specs"]
    assert (gone["removed"], gone["after"]) == (4, 0)


def test_diff_in_many_groups(tmp_path, monkeypatch):
    from het_tf.python.checkpoint.cli import diff

    monkeypatch.setattr(diff, "_GROUP_ROWS", 10)
    monkeypatch.setattr(diff, "_BLOCK_BYTES", 100)
    a = write(tmp_path / "a", [Table(rows(range(300)))], files=2)
    b = write(tmp_path / "b", [Table(rows(range(100, 400)) | rows([150], 2))], files=3)
    (item,) = json.loads(het_ckpt("diff", a, b, "--json").out)["tables"]
    assert [item[name] for name in ("added", "removed", "changed", "equal")] == [100, 100, 1, 199]


# --- other formats -----------------------------------------------------------------------------------


def test_to_npz_of_one_table_without_slots(chain, tmp_path):
    het_ckpt("to-npz", chain[2], tmp_path / "x.npz", "--table", "user/é")
    with np.load(tmp_path / "x.npz") as arrays:
        assert sorted(arrays) == [
            f"user/é/{name}" for name in ("clocks", "counts", "ids", "last_used", "values")
        ]
        np.testing.assert_array_equal(arrays["user/é/values"], [[8.125, 9.125]])
    before = (tmp_path / "x.npz").read_bytes()
    assert "--force" in het_ckpt("to-npz", chain[0], tmp_path / "x.npz", status=1).err
    assert (tmp_path / "x.npz").read_bytes() == before
    assert "is a directory" in het_ckpt("to-npz", chain[0], tmp_path, status=1).err
    err = het_ckpt("to-npz", chain[0], tmp_path / "none/x.npz", status=1).err
    assert "there is no directory" in err and "none" in err and ".tmp-" not in err


@pytest.mark.parametrize("command", ["to-npz", "to-parquet"])
def test_what_is_no_plain_file_is_never_replaced(chain, tmp_path, command):
    pytest.importorskip("pyarrow", reason="pyarrow is missing")
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    for force in ([], ["--force"]):
        err = het_ckpt(command, chain[2], pipe, "--table", "item", *force, status=1).err
        assert "is no plain file" in err
        assert pipe.is_fifo()


def test_to_parquet_needs_a_directory(chain, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is missing")
    (tmp_path / "rows.pq").write_text("kept")
    assert "give a directory" in het_ckpt("to-parquet", chain[2], tmp_path / "rows.pq", status=1).err
    assert (tmp_path / "rows.pq").read_text() == "kept"


@pytest.mark.parametrize("command", ["to-npz", "to-parquet"])
def test_damaged_rows_are_not_converted(chain, tmp_path, command):
    pytest.importorskip("pyarrow", reason="pyarrow is missing")
    path = next(chain[0].glob("rows-*"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "is damaged" in het_ckpt(command, chain[2], tmp_path / "out.npz", status=1).err
    assert not (tmp_path / "out.npz").exists()


def test_to_parquet(chain, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is missing")
    monkeypatch.setattr(convert, "_GROUP_ROWS", 64)
    done = het_ckpt("to-parquet", chain[2], tmp_path / "out", "--slots")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"item.parquet", "user%2F%C3%A9.parquet"}
    assert "item 198 rows" in done.out
    file = parquet.ParquetFile(tmp_path / "out/item.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [64, 64, 64, 6]
    found = {
        row["id"]: (row["clock"], row["value"], row["slots"], int(row["last_used"].timestamp()), row["count"])
        for row in file.read().to_pylist()
    }
    assert found == content(chain[2], tmp_path)["item"]
    assert json.loads(file.schema_arrow.metadata[b"het_tf"])["spec"]["dim"] == 3
    err = het_ckpt("to-parquet", chain[2], tmp_path / "x.parquet", status=1).err
    assert "one file cannot hold the tables 'item', 'user/é'" in err
    het_ckpt("to-parquet", chain[2], tmp_path / "x.parquet", "--table", "item")
    assert parquet.read_table(tmp_path / "x.parquet").column_names == [
        "id",
        "clock",
        "last_used",
        "count",
        "value",
    ]


def test_to_parquet_of_no_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is missing")
    het_ckpt("to-parquet", write(tmp_path / "a", [Table({})]), tmp_path / "x.parquet")
    assert parquet.read_table(tmp_path / "x.parquet").num_rows == 0


def test_to_parquet_without_pyarrow(chain, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    err = het_ckpt("to-parquet", chain[2], tmp_path / "out", status=1).err
    assert "pip install pyarrow" in err and "het_tf[parquet]" in err
    assert not (tmp_path / "out").exists()


def test_the_safetensors_package_reads_row_files(chain, tmp_path):
    het_ckpt("merge", tmp_path / "full", chain[2])  # written by het-ckpt, where the others are by this test
    for path in [*chain[0].glob("rows*"), *(tmp_path / "full").glob("rows*")]:
        theirs = load_file(path)
        ours = RowFile(path)
        assert theirs.keys() == ours.tensors.keys()
        for name, tensor in theirs.items():
            table, _, column = name.rpartition("/")
            np.testing.assert_array_equal(tensor, ours.column(table, column))


# --- verify: damage ----------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 4
    path.write_bytes(raw)


def test_verify_says_that_all_is_well(chain):
    out = het_ckpt("verify", chain[2]).out
    assert "ckpt-00000003, which builds on ckpt-00000002, ckpt-00000001, is sound: 12 files" in out


def test_verify_sees_a_flipped_bit_in_every_tensor(chain):
    path = chain[0] / "rows-00001-of-00003.safetensors"
    before = path.read_bytes()
    for tensor in RowFile(path).tensors.values():
        if tensor.bytes:
            flip(path, tensor.begin + tensor.bytes // 2)
            err = het_ckpt("verify", chain[2], status=1).err
            assert f"{path} is damaged: '{tensor.name}', bytes {tensor.begin} to" in err
            path.write_bytes(before)
    het_ckpt("verify", chain[2])


def test_verify_lists_all_damage(chain):
    flip(chain[0] / "rows-00000-of-00003.safetensors", -1)
    flip(chain[2] / "dense.safetensors", -1)
    (chain[1] / "rows-00001-of-00002.safetensors").unlink()
    lines = het_ckpt("verify", chain[2], status=1).err.splitlines()
    assert len(lines) == 3 and all(line.startswith("het-ckpt: ") for line in lines)
    assert "No such file" in lines[1] and "rows-00001-of-00002" in lines[1] and "dense" in lines[2]


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_verify_sees_a_truncated_file(chain, keep):
    path = chain[0] / "rows-00001-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert f"{path} is damaged: " in het_ckpt("verify", chain[0], status=1).err
    assert f"{path} is damaged: " in het_ckpt("inspect", chain[0], status=1).err


def test_a_manifest_that_is_damaged_newer_or_missing(chain):
    path = chain[2] / "manifest.json"
    document = manifest(chain[2])
    seal(chain[2], {**document, "version": 3})
    assert "has version 3" in het_ckpt("inspect", chain[2], status=1).err
    path.write_text(json.dumps({**document, "step": 10}))
    assert "its checksum is" in het_ckpt("verify", chain[2], status=1).err
    path.write_text(json.dumps(document)[:100])
    assert "not JSON" in het_ckpt("verify", chain[2], status=1).err
    path.unlink()
    assert "no manifest.json" in het_ckpt("verify", chain[2], status=1).err
    het_ckpt("verify", chain[2].parent)  # there the newest is another one


def test_a_missing_base_and_a_base_that_is_another(chain):
    shutil.move(chain[0], chain[0].parent / "away")
    assert "ckpt-00000001 is missing" in het_ckpt("verify", chain[1], status=1).err
    write(chain[0], [Table(rows([1]))])
    document = manifest(chain[0])
    seal(chain[0], {**document, "id": "f" * 32})
    assert "is another one" in het_ckpt("inspect", chain[1], status=1).err


def set_rows(path: Path, of: Table, number: int = 0) -> None:
    """Replaces a file by one with these rows, wherever they belong, with checksums that fit."""
    everywhere = columns(of, {*range(8)}, True)
    head, body = tensor_bytes(
        dict(sorted(everywhere.items(), key=lambda one: -one[1].itemsize)),
        {"format": "het_tf rows", "version": "1"},
    )
    (path / manifest(path)["files"][number]["name"]).write_bytes(head + body)
    reseal_file(path, number)


def in_file(path: Path, number: int, count: int) -> list[int]:
    """Ids that belong to a file."""
    parts = manifest(path)["files"][number]["partitions"]
    return [key for key in range(1000) if partition(key) in parts][:count]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ids, alien: Table(rows([ids[0], alien])), "has a row of id {alien}, of partition"),
        (lambda ids, alien: Table(rows(ids[:3]), [alien]), "has a removal of id {alien}, of partition"),
        (lambda ids, alien: Table(rows(ids[:3]), [ids[2], ids[3]]), "both as a row and as a removal"),
        (lambda ids, alien: Table({ids[0]: (1, [1, NAN, 1], [1], 1, 1)}), "values of table 'item' hold NaN"),
        (lambda ids, alien: Table({ids[0]: (1, [1] * 3, [-NAN], 1, 1)}), "slots of table 'item' hold NaN"),
        (lambda ids, alien: Table({ids[0]: (-1, [1] * 3, [1], 1, 1)}), "has a clock below 0"),
        (lambda ids, alien: Table(rows(ids[:3])), "rows and 0 removals in its files, and the manifest says"),
        (lambda ids, alien: Table(rows(ids[:3], dim=4), dim=4), "have 4 floats and 1 of slots, and by the"),
        (lambda ids, alien: Table(rows(ids[:3]), name="other"), "tables that the manifest has not: other"),
    ],
)  # fmt: skip
def test_verify_sees_contents_that_cannot_be(tmp_path, make, message):
    path = write(tmp_path / "ckpt-00000001", [Table(rows(range(100)))])
    ids, alien = in_file(path, 0, 6), in_file(path, 1, 1)[0]
    table = make(ids, alien)
    set_rows(path, table)
    if "manifest says" not in message:  # totals that fit
        document = manifest(path)
        document["tables"][0].update(
            rows=len(table.rows) + sum(one["tensors"]["item/keys"]["rows"] for one in document["files"][1:]),
            removed=len(table.removed),
        )
        seal(path, document)
    assert message.format(alien=alien) in het_ckpt("verify", path, status=1).err


def test_verify_sees_a_row_twice(tmp_path):
    path = write(tmp_path / "ckpt-00000001", [Table(rows(range(100)))])
    file = path / "rows-00000-of-00003.safetensors"
    keys = RowFile(file).tables["item"].columns["keys"]
    raw = bytearray(file.read_bytes())
    raw[keys.begin : keys.begin + 8] = raw[keys.begin + 8 : keys.begin + 16]
    file.write_bytes(raw)
    reseal_file(path)
    assert "in more than one row" in het_ckpt("verify", path, status=1).err


def test_partitions_that_no_file_has(tmp_path):
    path = write(tmp_path / "ckpt-00000001", [Table(rows(range(100)))])
    document = manifest(path)
    document["files"][0]["partitions"] = [0]
    seal(path, document)
    assert "the store has 8 partitions" in het_ckpt("inspect", path, status=1).err


# --- files from anywhere -----------------------------------------------------------------------------

GOOD = {
    "item/keys": ("I64", [2]), "item/clocks": ("I64", [2]), "item/values": ("F32", [2, 3]),
    "item/last_used": ("U32", [2]), "item/counts": ("U16", [2]),
}  # fmt: skip


def header(change: dict[str, Any] | None = None, metadata: Any = None) -> dict[str, Any]:
    """The header of a small file, with some entries replaced, or left out where they are None."""
    out: dict[str, Any] = {"__metadata__": metadata or {"format": "het_tf rows", "version": "1"}}
    at = 0
    for name, (code, shape) in GOOD.items():
        end = at + int(np.prod(shape)) * {"I64": 8, "F32": 4, "U32": 4, "U16": 2}[code]
        out[name] = {"dtype": code, "shape": shape, "data_offsets": [at, end]}
        at = end
    for name, entry in (change or {}).items():
        if entry is None:
            del out[name]
        else:
            out[name] = {**out.get(name, {}), **entry} if isinstance(entry, dict) else entry
    return out


SIZE = 16 + 16 + 24 + 8 + 4
BAD_HEADERS = [
    ({"item/clocks": {"data_offsets": [8, 24]}}, "no whole safetensors file"),
    ({"item/clocks": {"data_offsets": [0, 16]}}, "no whole safetensors file"),
    ({"item/values": {"data_offsets": [32, 48]}}, "no whole safetensors file"),
    ({"item/values": {"shape": [2, 1 << 62]}}, "no whole safetensors file"),
    ({"item/values": {"shape": [-2, -3]}}, "no whole safetensors file"),
    ({"item/values": {"shape": 6}}, "no whole safetensors file"),
    ({"item/values": {"shape": [6]}}, "is no column of a table"),
    ({"item/values": {"shape": [1, 6]}}, "2 keys and 1 values"),
    ({"item/values": {"dtype": "I32"}}, "is no column of a table"),
    ({"item/values": {"dtype": "F99"}}, "no whole safetensors file"),
    ({"item/values": {"dtype": "F4", "shape": [2, 24]}}, "'item/values' is F4; het_tf reads F64"),
    ({"item/values": {"data_offsets": [32, 1 << 70]}}, "no whole safetensors file"),
    ({"item/values": 7}, "no whole safetensors file"),
    ({"item/counts": None}, "no whole safetensors file"),
    ({"item/more": {"dtype": "I64", "shape": [0], "data_offsets": [SIZE, SIZE]}}, "is no column of a table"),
    ({"keys": {"dtype": "I64", "shape": [0], "data_offsets": [SIZE, SIZE]}}, "is no column of a table"),
    (
        {"item/slots": {"dtype": "F32", "shape": [2, 9], "data_offsets": [SIZE, SIZE + 72]}},
        "no whole safetensors file",
    ),
    (
        {"x/keys": {"dtype": "I64", "shape": [0], "data_offsets": [SIZE, SIZE]}},
        "has no clocks, values, last_used",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD_HEADERS)
def test_headers_that_do_not_fit(tmp_path, change, message):
    path = tmp_path / "x"
    path.write_bytes(pack(header()) + bytes(SIZE))
    assert RowFile(path).tables["item"].rows == 2
    path.write_bytes(pack(header(change)) + bytes(SIZE))
    with pytest.raises(DamagedError, match=message.replace("(", r"\(")):
        RowFile(path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "its 0 bytes are no whole safetensors file"),
        (b"\1\2\3", "its 3 bytes are"),
        (b"\xff" * 8 + b"{}", "its 10 bytes are"),
        ((1 << 30).to_bytes(8, "little") + b"{}", "its 10 bytes are"),
        ((0).to_bytes(8, "little"), "its 8 bytes are"),
        ((2).to_bytes(8, "little") + b"{]", "no whole safetensors file"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "no whole safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "no whole safetensors file"),
        ((100_000).to_bytes(8, "little") + b"[" * 100_000, "no whole safetensors file"),
        (pack({"__metadata__": 5}), "no whole safetensors file"),
        (pack({}), "no row file"),
        (pack(header(metadata={"format": "pt"})) + bytes(SIZE), "no row file"),
        (pack(header(metadata={"format": "het_tf rows", "version": "2"})) + bytes(SIZE), "of version '2'"),
        (pack(header(metadata={"format": "het_tf rows"})) + bytes(SIZE), "of version None"),
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path, raw, message):
    path = tmp_path / "x"
    path.write_bytes(raw)
    with pytest.raises(DamagedError, match=message):
        RowFile(path)


def test_random_bytes_are_refused_and_nothing_else_happens(tmp_path):
    rng = np.random.default_rng(0)
    good = pack(header()) + bytes(SIZE)
    path = tmp_path / "x"
    for _ in range(round(300 * SCALE)):
        raw = bytearray(good)
        for at in rng.integers(0, len(good) - SIZE, rng.integers(1, 4)):
            raw[at] = rng.integers(0, 256)
        path.write_bytes(raw[: rng.integers(len(raw) // 2, len(raw) + 1)])
        try:
            RowFile(path).removed("item")
        except (DamagedError, KeyError):
            continue


# --- the command -------------------------------------------------------------------------------------


def test_wrong_arguments_and_paths(tmp_path):
    het_ckpt(status=2)
    het_ckpt("explode", status=2)
    het_ckpt("diff", "a", "b", "--examples", "-1", status=2)
    assert "inspect" in het_ckpt("--help").out
    assert "there is no checkpoint" in het_ckpt("inspect", tmp_path / "no", status=1).err
    assert "neither a checkpoint nor a directory of checkpoints" in het_ckpt("verify", tmp_path, status=1).err
    (tmp_path / "file").write_text("x")
    assert "is a file" in het_ckpt("verify", tmp_path / "file", status=1).err


def test_it_works_without_tensorflow_and_without_the_plugin(chain, tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/__init__.py").write_text("raise SystemExit('TensorFlow was imported')")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    script = tmp_path / "het-ckpt"
    script.write_text("import sys\nfrom het_tf.python.checkpoint.cli.cli import main\nsys.exit(main())\n")
    for command in (["-m", "het_tf.python.checkpoint.cli"], [str(script)]):
        done = subprocess.run(
            [sys.executable, *command, "verify", str(chain[2])],
            env=env,
            text=True,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0 and "is sound" in done.stdout, done.stderr
    piped = subprocess.run(
        f"{sys.executable} -m het_tf.python.checkpoint.cli inspect {chain[2]} | head -1", shell=True, env=env,
        text=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert piped.stdout.count("\n") == 1 and piped.stderr == ""


@pytest.mark.slow
def test_a_large_table_is_never_in_memory(tmp_path):
    count, dim = 400_000, 64
    path = tmp_path / "ckpt-00000001"
    write(path, [Table({}, dim=dim, slots=0)], files=1)
    (name,) = (one["name"] for one in manifest(path)["files"])
    (path / name).unlink()
    writer = RowWriter(path / name, {"item": (count, dim, 0, None)})
    for begin in range(0, count, 10_000):
        n = np.arange(begin, begin + 10_000)
        writer.append("item", {
            "keys": n, "clocks": n, "values": np.repeat(n[:, None], dim, 1).astype(np.float32),
            "last_used": n, "counts": n % 1000,
        })  # fmt: skip
    writer.close()
    reseal_file(path)
    document = manifest(path)
    document["tables"][0]["rows"] = count
    seal(path, document)
    size = (path / name).stat().st_size
    assert size > 100e6
    commands = [
        ("inspect", path), ("verify", path), ("merge", tmp_path / "copy", path),
        ("diff", path, tmp_path / "copy", "--exit-code"), ("to-npz", path, tmp_path / "x.npz"),
    ]  # fmt: skip
    for command in commands:
        tracemalloc.start()
        het_ckpt(*command)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 0.4 * size, f"{command[0]} took {peak / size:.2f} of the table"
    assert (tmp_path / "copy" / name).read_bytes() == (path / name).read_bytes()
