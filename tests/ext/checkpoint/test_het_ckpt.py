"""het ckpt verify on checkpoints made by hand."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from het_ckpt_lib import (
    Table,
    het_ckpt,
    manifest,
    partition,
    reseal_file,
    rows,
    seal,
    tensor_bytes,
    write,
)  # fmt: skip

import het_tf
from het_tf.ext.checkpoint.python.row_files import place_of

ROOT = Path(het_tf.__file__).parents[1]
SCALE = float(os.environ.get("HET_TEST_SCALE", "1"))


@pytest.mark.parametrize("partitions", [1, 8, 64, 127])
def test_where_a_table_lies(partitions):
    place = place_of("ü", partitions)
    used = {partition(key, "ü", partitions) for key in range(50 * partitions)}
    assert used == {*range(place["first"], partitions, partitions // place["group"])}


def test_checkpoints_without_rows_and_without_tables(tmp_path):
    het_ckpt("verify", write(tmp_path / "ckpt-00000001", [Table({})], step=None))
    het_ckpt("verify", write(tmp_path / "ckpt-00000002", []))


def test_a_base_that_lacks_a_table(tmp_path):
    full = write(tmp_path / "ckpt-00000001", [Table(rows(range(9)))])
    other = write(tmp_path / "ckpt-00000002", [Table(rows([1]), [], False, name="other")], full)
    assert (
        f"{full} has no table 'other', whose rows {other} builds" in het_ckpt("verify", other, status=1).err
    )


def test_wrong_arguments_and_paths(tmp_path):
    assert "there is no checkpoint" in het_ckpt("verify", tmp_path / "no", status=1).err
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
        assert main(["ckpt", "verify", sys.argv[2]]) == 0
        print(1024 * (most() - before))
    """
    small = write(tmp_path / "ckpt-00000000", [Table(rows(range(9)))])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), small, path], text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 0.4 * size
