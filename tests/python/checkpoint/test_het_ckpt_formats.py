"""het-ckpt to-parquet."""

from __future__ import annotations

import json
import os
import sys

import pytest
from het_ckpt_lib import content, het_ckpt

from het_tf.python.checkpoint.cli import convert


def test_what_is_no_plain_file_is_never_replaced(chain, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is missing")
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    for force in ([], ["--force"]):
        err = het_ckpt("to-parquet", chain[2], pipe, "--table", "item", *force, status=1).err
        assert "is not a plain file" in err
        assert pipe.is_fifo()


def test_to_parquet_overwrites_nothing_unasked(chain, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is missing")
    (tmp_path / "rows.pq").write_text("kept")
    assert "give a directory" in het_ckpt("to-parquet", chain[2], tmp_path / "rows.pq", status=1).err
    assert (tmp_path / "rows.pq").read_text() == "kept"
    file = tmp_path / "rows.parquet"
    file.write_text("kept")
    to_file = ("to-parquet", chain[2], file, "--table", "item")
    assert "--force" in het_ckpt(*to_file, status=1).err
    assert file.read_text() == "kept"
    het_ckpt(*to_file, "--force")
    assert file.read_bytes()[:4] == b"PAR1"
    (tmp_path / "directory.parquet").mkdir()
    err = het_ckpt("to-parquet", chain[2], tmp_path / "directory.parquet", "--table", "item", status=1).err
    assert "is a directory" in err
    err = het_ckpt("to-parquet", chain[2], tmp_path / "none/x.parquet", "--table", "item", status=1).err
    assert "does not exist; make it" in err and "none" in err and ".tmp-" not in err


def test_damaged_rows_are_not_converted(chain, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is missing")
    path = next(chain[0].glob("rows-*"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "is damaged" in het_ckpt("to-parquet", chain[2], tmp_path / "out", status=1).err
    assert not (tmp_path / "out").exists()


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
    assert found == content(chain[2])["item"]
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


def test_to_parquet_without_pyarrow(chain, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    err = het_ckpt("to-parquet", chain[2], tmp_path / "out", status=1).err
    assert "pip install pyarrow" in err and "het_tf[parquet]" in err
    assert not (tmp_path / "out").exists()
