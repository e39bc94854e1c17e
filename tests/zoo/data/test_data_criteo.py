"""The reader of Criteo's format: what it refuses, and what it makes of numbers, categories and parts."""

from __future__ import annotations

import gzip
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from het_tf.zoo.data import criteo, load, streams

INTEGERS = ["1", "-2", "", "5", "1382", "4", "15", "2", "181", "1", "2", "", "2"]
CATEGORIES = [f"{number:08x}" for number in range(1, 27)]


def line(label: str = "0", integers: list[str] | None = None, categories: list[str] | None = None) -> bytes:
    return "\t".join([label, *(integers or INTEGERS), *(categories or CATEGORIES)]).encode()


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


BAD = {
    "short": (line().rsplit(b"\t", 1)[0], r"has 39 fields, not 40"),
    "long": (line() + b"\tffffffff", r"has 41 fields, not 40"),
    "empty": (b"", r"has 1 fields, not 40"),
    "not UTF-8": (line().replace(b"00000003", b"000000\xff3"), r"has '000000\ufffd3' in C3"),
    "not hexadecimal": (line().replace(b"00000003", b"0000000g"), r"has '0000000g' in C3"),
    "not hexadecimal, short": (line().replace(b"00000003", b"xy"), r"has 'xy' in C3"),
    "not an integer": (line().replace(b"1382", b"13.2"), r"has '13\.2' in I5"),
    "a lone minus": (line().replace(b"1382", b"-"), r"has '-' in I5"),
    "too large an integer": (line().replace(b"1382", b"9" * 19), r"in I5, not an integer of up to 18 digits"),
    "no label": (line(label=""), r"has '' in label, not 0 or 1"),
    "label 2": (line(label="2"), r"has '2' in label"),
    "endless": (b"x" * (1 << 17), r"has 1 fields, not 40"),
    "long category": (line().replace(b"00000003", b"0" * 16), r"in C3, not a hexadecimal number of up to 15"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_line_error_has_file_line_reason_remedy(tmp_path: Path, name: str) -> None:
    bad, reason = BAD[name]
    path = write(tmp_path / "day.tsv", [line(), line(), bad, line()])
    with pytest.raises(ValueError, match=rf"day\.tsv, line 3: .*{reason}.*; correct the line, or remove it"):
        criteo(path).read()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"none\.tsv does not exist; give the path of Criteo's train\.txt"
    ):
        criteo(tmp_path / "none.tsv")
    with pytest.raises(FileNotFoundError, match="is a directory"):
        criteo(tmp_path)
    os.mkfifo(tmp_path / "fifo.tsv")
    with pytest.raises(FileNotFoundError, match=r"fifo\.tsv is not a regular file"):
        criteo(tmp_path / "fifo.tsv")
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(ValueError, match=r"empty\.tsv is empty; download or unpack it again"):
        criteo(tmp_path / "empty.tsv")
    plain = write(tmp_path / "plain.gz", [line()])
    with pytest.raises(ValueError, match=r"plain\.gz is damaged: .*gzip"):
        criteo(plain).read()
    whole = gzip.compress(line() * 100)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.gz is damaged: .*; unpack or download it again"):
        criteo(tmp_path / "cut.gz").read()


def test_arguments_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "day.tsv", [line()])
    with pytest.raises(ValueError, match=r"part is 'tset'; give one of 'all', 'train'"):
        criteo(path, part="tset")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="buckets is 0"):
        criteo(path, buckets=0)
    with pytest.raises(ValueError, match="shard 2 of 2 does not exist"):
        criteo(path).shard(2, 2)
    with pytest.raises(ValueError, match="batch_size is 0"):
        criteo(path).to_tf(0)


def test_numbers_become_log1p_and_invalid_ones_zero(tmp_path: Path) -> None:
    examples = criteo(write(tmp_path / "day.tsv", [line()])).read()
    counts = [1, 0, 0, 5, 1382, 4, 15, 2, 181, 1, 2, 0, 2]
    np.testing.assert_allclose(examples.numeric, [np.log1p(counts)], rtol=1e-6)


def test_categories_are_hashes_of_field_and_value(tmp_path: Path) -> None:
    same = ["68fd1e64"] * 26
    missing = ["68fd1e64"] * 25 + [""]
    upper, zeros = ["68FD1E64"] * 26, ["0"] * 26
    lines = [line(categories=row) for row in (same, missing, upper, zeros, same)]
    ids = criteo(write(tmp_path / "day.tsv", lines)).read().categorical
    assert list(ids) == [f"C{number}" for number in range(1, 27)]
    assert len({int(column[0]) for column in ids.values()}) == 26, "one value has another id in each field"
    for column in ids.values():
        assert column.dtype == np.int64
        assert column[0] == column[2] == column[4]
        assert column[3] != column[0]
    assert len({int(value) for value in ids["C26"]}) == 3, "a missing category is a value of its own"
    assert ids["C1"][0] == -8670557026418185878, "ids must not change from version to version"


def test_no_two_values_of_a_field_collide(tmp_path: Path) -> None:
    values = np.random.default_rng(0).choice(1 << 32, 5000, replace=False)
    lines = [line(categories=[f"{value:08x}"] * 26) for value in values]
    ids = criteo(write(tmp_path / "day.tsv", lines)).read().categorical
    assert len(np.unique(np.concatenate(list(ids.values())))) == 26 * 5000


def test_buckets_bound_the_ids(tmp_path: Path) -> None:
    stream = criteo(write(tmp_path / "day.tsv", [line()] * 3), buckets=100)
    assert all(field.size == 100 for field in stream.description.categorical)
    assert all(((ids >= 0) & (ids < 100)).all() for ids in stream.read().categorical.values())


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_line_ends_and_compression_make_no_difference(tmp_path: Path, ending: bytes) -> None:
    text = line("1") + (b"\r\n" if ending == b"\r\n" else b"\n") + line("0") + ending
    (tmp_path / "day.tsv").write_bytes(text)
    (tmp_path / "day.tsv.gz").write_bytes(gzip.compress(text))
    for name in ("day.tsv", "day.tsv.gz"):
        examples = criteo(tmp_path / name).read()
        assert examples.label.tolist() == [1, 0]
        assert examples.categorical["C26"][0] == examples.categorical["C26"][1]


def numbered(path: Path, rows: int) -> Path:
    return write(path, [line(integers=[str(row)] * 13) for row in range(rows)])


def row_numbers(examples) -> list[int]:
    return np.rint(np.expm1(examples.numeric[:, 0].astype(np.float64))).astype(int).tolist()


@pytest.mark.slow
def test_parts_and_shards_are_disjoint_and_complete(tmp_path: Path) -> None:
    path = numbered(tmp_path / "day.tsv", 5000)
    assert row_numbers(criteo(path).read()) == list(range(5000))
    splits = load(f"criteo:{path}")
    parts = [row_numbers(part.read()) for part in splits[:3]]
    assert sorted(itertools.chain(*parts)) == list(range(5000))
    assert 3750 < len(parts[0]) < 4250 and 350 < len(parts[1]) < 650 and 350 < len(parts[2]) < 650
    shards = [row_numbers(splits.train.shard(index, 3).read()) for index in range(3)]
    assert sorted(itertools.chain(*shards)) == parts[0]
    nested = [row_numbers(splits.train.shard(1, 3).shard(index, 2).read()) for index in range(2)]
    assert sorted(itertools.chain(*nested)) == shards[1] and all(nested)
    sizes = [len(splits.train.shard(index, 16).read()) for index in range(16)]
    assert min(sizes) > 0.75 * max(sizes), "shards are of about one size"


def test_a_long_stream_is_shuffled_window_by_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SHUFFLE_WINDOW", 100)
    stream = criteo(numbered(tmp_path / "day.tsv", 1050))
    batches = [row_numbers(batch) for batch in stream.batches(50, np.random.default_rng(0))]
    assert [len(batch) for batch in batches] == [50] * 21
    rows = list(itertools.chain(*batches))
    for begin in range(0, 1050, 100):
        window = rows[begin : begin + 100]
        assert window != sorted(window) and sorted(window) == list(range(begin, min(begin + 100, 1050)))


def test_to_tf(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    stream = criteo(numbered(tmp_path / "day.tsv", 100))
    batches = list(stream.to_tf(32, drop_remainder=True))
    assert len(batches) == 3
    inputs, label = batches[0]
    assert set(inputs) == set(stream.description.inputs())
    for name, (shape, dtype) in stream.description.inputs().items():
        assert inputs[name].shape == (32, *shape) and inputs[name].dtype == dtype
    assert label.shape == (32,) and label.dtype == "float32"
    dataset = stream.to_tf(100, shuffle=True, seed=1)
    first, second = (next(iter(dataset))[0]["numeric"].numpy()[:, 0] for _ in range(2))
    assert (first != second).any() and sorted(first) == sorted(second), "each epoch has an order of its own"
