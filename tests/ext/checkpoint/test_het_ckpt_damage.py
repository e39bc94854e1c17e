"""het ckpt and the reader of row files on damaged and impossible checkpoints, made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from het_ckpt_lib import (
    PARTITIONS,
    Table,
    columns,
    flip,
    het_ckpt,
    manifest,
    partition,
    reseal_file,
    rows,
    seal,
    tensor_bytes,
    write,
)

from het_tf.ext.checkpoint.python import manifest as manifests
from het_tf.ext.checkpoint.python.row_files import verify_rows
from het_tf.ext.checkpoint.python.tensors import TensorFile

NAN = float("nan")


def test_verify_says_that_all_is_well(chain):
    out = het_ckpt("verify", chain[2]).out
    assert "ckpt-00000003, which builds on ckpt-00000002, ckpt-00000001, is sound: 12 files" in out


@pytest.mark.slow
def test_any_flipped_bit_in_rows_is_detected(chain):
    entry = manifests.read_manifest(chain[0]).files[1]
    path = chain[0] / entry["name"]
    before = path.read_bytes()
    for at in range(0, len(before), 3):
        flip(path, at)
        with pytest.raises(ValueError):
            verify_rows(path, entry)
        path.write_bytes(before)
    verify_rows(path, entry)


def test_verify_lists_all_damage(chain):
    flip(chain[0] / "rows-00000-of-00003.safetensors", -1)
    flip(chain[2] / "dense.safetensors", -1)
    (chain[1] / "rows-00001-of-00002.safetensors").unlink()
    lines = het_ckpt("verify", chain[2], status=1).err.splitlines()
    assert len(lines) == 3 and all(line.startswith("het ckpt: ") for line in lines)
    assert "rows-00001-of-00002.safetensors is missing" in lines[1]
    assert "dense" in lines[2]


def set_rows(path: Path, of: Table, number: int = 0) -> None:
    """Replaces a file by one with these rows, wherever they belong, with checksums that fit."""
    everywhere = columns(of, {*range(PARTITIONS)}, True)
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
        (lambda ids, alien: Table({ids[0]: (1, [1, NAN, 1], [1], 1, 1)}), "'item/values' has NaN"),
        (lambda ids, alien: Table({ids[0]: (1, [1] * 3, [-NAN], 1, 1)}), "'item/slots' has NaN"),
        (lambda ids, alien: Table({ids[0]: (-1, [1] * 3, [1], 1, 1)}), "has a clock out of range"),
        (lambda ids, alien: Table(rows(ids[:3])), "rows and 0 removals in its files, and the manifest says"),
        (lambda ids, alien: Table(rows(ids[:3], dim=4), dim=4), "have 4 floats and 1 of slots, and by the"),
        (lambda ids, alien: Table(rows(ids[:3]), name="other"), "tables that the manifest lacks: other"),
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
    keys = TensorFile(file).tensors["item/keys"]
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
    assert f"its store has {PARTITIONS} partitions" in het_ckpt("verify", path, status=1).err


# --- files from anywhere -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested deeper than"),
        (b'{"x":' * 40 + b"1" + b"}" * 40, "nested deeper than"),
        (b'{"format": "\xff"}', "byte 12 is not UTF-8"),
        (b'{"created": NaN}', "NaN is not a number of JSON"),
        (b'{"created": 1e999}', "1e999 is not a number of JSON"),
        ('{"format": ""}'.encode("utf-16"), "byte 0 is not UTF-8"),
    ],
)
def test_manifests_that_are_no_json(chain, content, message):
    path = chain[0] / "manifest.json"
    path.write_bytes(content)
    err = het_ckpt("verify", chain[0], status=1).err
    assert f"{path} is damaged: it is not JSON (" in err and message in err


def test_a_manifest_is_not_read_whole_whatever_its_size(chain):
    path = chain[0] / "manifest.json"
    os.truncate(path, 200 << 20)
    assert f"{path} has more than 134 MB" in het_ckpt("verify", chain[0], status=1).err


@pytest.mark.parametrize(
    ("field", "value"),
    [("clock_floor", 1 << 63), ("applies", 1 << 63), ("name", "\ud800"), ("positions", ["\ud800"])],
)
def test_values_of_a_table_that_cannot_be(tmp_path, field, value):
    path = write(tmp_path / "ckpt-00000001", [Table(rows(range(10)))])
    document = manifest(path)
    document["tables"][0][field] = value
    seal(path, document)
    assert f"'{field}' of a table is" in het_ckpt("verify", path, status=1).err


def test_a_file_that_is_no_safetensors_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xff" * 8 + b"{}")
    with pytest.raises(ValueError, match="x is damaged: its 10 bytes are not a whole safetensors file"):
        TensorFile(path)
