"""The command het data: files that are placed, which field to place by, and what is refused."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from cli_lib import Done, het

from het_tf.ext.placement.python.cli import profile, rules
from het_tf.ext.placement.python.location import Location, keys_of
from het_tf.ext.placement.python.pieces import Pieces
from het_tf.ext.placement.python.placement import Placement, hashes
from het_tf.inputs.python.criteo import parse, read_lines

SAMPLES, WORKERS, BATCH = 203, 3, 8
WHOLE = SAMPLES // (WORKERS * BATCH)


def matches(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text


def het_data(*words: object, status: int = 0) -> Done:
    return het("data", *words, status=status)


def values(samples: int = SAMPLES) -> np.ndarray:
    return np.random.default_rng(1).zipf(1.4, samples) % 1000


def lines(samples: int = SAMPLES) -> list[bytes]:
    """Lines of Criteo's format; I1 is the number of the line, C1 is sometimes missing, C2 depends on it."""
    found = []
    for number, value in enumerate(values(samples)):
        first = b"%08x" % value if value % 5 else b""
        numbers = [b"%d" % (number % 2), b"%d" % number, *[b"3"] * 12]
        found.append(b"\t".join([*numbers, first, b"%08x" % (value // 2), *[b"%08x" % number] * 24]))
    return found


def write_criteo(path: Path) -> Path:
    path.write_bytes(b"\r\n".join(lines()))  # and no end of the last line
    return path


def criteo(path: Path, part: str = "all") -> tuple[np.ndarray, np.ndarray]:
    """Numbers [N, 13] and ids [26, N] of a part of a file."""
    _, numbers, ids = parse([line for _, block in read_lines(path, part) for line in block])
    return numbers, ids


def write_parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    text = pa.array([f"u{one}" if one % 5 else None for one in values()])
    columns = {
        "n": pa.array(range(SAMPLES)), "id": pa.array(values(), pa.int32()), "user": text.dictionary_encode(),
        "price": pa.array(np.ones(SAMPLES)), "tags": pa.array([[1, 2]] * SAMPLES),
    }  # fmt: skip
    pq.write_table(pa.table(columns), path, row_group_size=50)
    return path


def write_csv(path: Path) -> Path:
    users = [f"u{one}" if one % 5 else "" for one in values()]
    rows = [f"{n},{one},{user},1.5" for n, (one, user) in enumerate(zip(values(), users, strict=True))]
    path.write_text("\n".join(["n,id,user,price", *rows]))
    return path


def write_tfrecord(path: Path) -> Path:
    import tensorflow as tf

    def feature(value: object) -> tf.train.Feature:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        if isinstance(value, float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        found = np.atleast_1d(value).tolist()
        return tf.train.Feature(int64_list=tf.train.Int64List(value=found))

    with tf.io.TFRecordWriter(str(path)) as out:
        for number, value in enumerate(values()):
            of = {"n": number, "id": int(value), "price": 1.0, "tags": [1, 2]}
            if value % 5:
                of["user"] = b"u%d" % value
            example = tf.train.Features(feature={name: feature(one) for name, one in of.items()})
            out.write(tf.train.Example(features=example).SerializeToString())
    return path


def numbers_of(path: Path) -> list[int]:
    """The samples of a file of any format, by the numbers they carry."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path)["n"].to_pylist()
    if path.suffix == ".tfrecord":
        import tensorflow as tf

        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        found = [tf.train.Example.FromString(one) for one in records]
        return [one.features.feature["n"].int64_list.value[0] for one in found]
    return [int(line.split(b"\t")[1]) for line in path.read_bytes().splitlines()]


WRITE = {"criteo": write_criteo, "csv": write_csv, "parquet": write_parquet, "tfrecord": write_tfrecord}
IDS = {"id": values(), "user": [f"u{one}" if one % 5 else "" for one in values()]}


def shard(source: Path, out: Path, by: str, *more: object, status: int = 0) -> Done:
    return het_data(
        "shard",
        source,
        "--by",
        by,
        "--workers",
        WORKERS,
        "--batch",
        BATCH,
        "--out",
        out,
        *more,
        status=status,
    )


@pytest.mark.parametrize("by", ["id", "user"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "tfrecord"])
def test_files_are_placed_as_the_rule_says(tmp_path: Path, kind: str, by: str) -> None:
    shard(WRITE[kind](tmp_path / f"a.{kind}"), tmp_path / "out", by)
    pieces = Pieces.read(tmp_path / "out")
    assert (pieces.samples, pieces.left_out) == (WHOLE * WORKERS * BATCH, SAMPLES % (WORKERS * BATCH))
    found = np.stack([numbers_of(pieces.file(worker)) for worker in range(WORKERS)])
    expected = Placement(by, WORKERS, BATCH).place(IDS[by])
    np.testing.assert_array_equal(found.reshape(WORKERS, WHOLE, BATCH), expected.swapaxes(0, 1))


@pytest.mark.parametrize("kind", ["parquet", "tfrecord"])
def test_files_are_placed_by_location(tmp_path: Path, kind: str) -> None:
    """Catches a rule that begins anew in each block, one that reads the field "location", or one field only;
    and a block that is placed though it is no whole global batch.
    """
    shard(WRITE[kind](tmp_path / f"a.{kind}"), tmp_path / "out", "location")
    pieces = Pieces.read(tmp_path / "out")
    assert (pieces.placement.by, pieces.left_out) == ("location", SAMPLES % (WORKERS * BATCH))
    found = np.stack([numbers_of(pieces.file(worker)) for worker in range(WORKERS)])
    of = {"n": np.arange(SAMPLES), **IDS}
    columns = [hashes(of[name]).view(np.int64)[:, None] for name in ("n", "id", "user")]
    rule, size = Location(pieces.placement), WORKERS * BATCH
    keys = keys_of(list(enumerate(columns)))
    owners = [rule.owners(keys[at : at + size]) for at in range(0, WHOLE * size, size)]
    expected = pieces.placement.place_owners(np.concatenate(owners))
    np.testing.assert_array_equal(found.reshape(WORKERS, WHOLE, BATCH), expected.swapaxes(0, 1))
    assert not np.array_equal(expected[-1], expected[0] + (WHOLE - 1) * size), "it remembers"


@pytest.mark.parametrize("part", ["all", "train"])
def test_criteo_lines_are_placed_by_reader_ids(tmp_path: Path, part: str) -> None:
    source = write_criteo(tmp_path / "day.tsv")
    done = shard(source, tmp_path / "out", "C1", "--part", part)
    numbers, ids = criteo(source, part)
    order = Placement("C1", WORKERS, BATCH).place(ids[0])
    assert f"{len(order)} global batches of 24 samples in 3 files" in done.out
    assert f"{len(numbers) % 24} samples of an incomplete one were left out" in done.out
    for worker, file in enumerate(sorted((tmp_path / "out").glob("*.tsv"))):
        assert b"\r" not in file.read_bytes()
        own_numbers, own_ids = criteo(file)
        mine = order[:, worker].ravel()
        np.testing.assert_array_equal(own_numbers, numbers[mine])
        np.testing.assert_array_equal(own_ids[25], ids[25, mine])
    compressed = tmp_path / "day.tsv.gz"
    compressed.write_bytes(gzip.compress(source.read_bytes()))
    shard(compressed, tmp_path / "same", "C1", "--part", part)
    assert Pieces.read(tmp_path / "same").id == Pieces.read(tmp_path / "out").id


def test_parts_of_int32_and_int64_are_one_stream(tmp_path: Path) -> None:
    """Parts of two writers were refused. pandas' index is no field of ids."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for name, kind, some in (("a", pa.int32(), slice(50)), ("b", pa.int64(), slice(50, SAMPLES))):
        numbers = pa.array(range(SAMPLES))[some]
        columns = {"n": numbers, "id": pa.array(values()[some], kind), "__index_level_0__": numbers}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    parts = (tmp_path / "a.parquet", tmp_path / "b.parquet")
    het_data("shard", *parts, "--by", "id", "--workers", WORKERS, "--batch", BATCH, "--out", tmp_path / "out")
    pieces = Pieces.read(tmp_path / "out")
    found = np.stack([numbers_of(pieces.file(worker)) for worker in range(WORKERS)])
    expected = Placement("id", WORKERS, BATCH).place(IDS["id"])
    np.testing.assert_array_equal(found.reshape(WORKERS, WHOLE, BATCH), expected.swapaxes(0, 1))
    done = het_data("fields", *parts, "--workers", WORKERS, "--batch", BATCH)
    assert "Not by __index_level_0__: each is an index of pandas." in done.out


def test_several_files_are_one_stream(tmp_path: Path) -> None:
    for name, some in (("a", lines()[:50]), ("b", lines()[50:])):
        (tmp_path / name).write_bytes(b"\n".join(some) + b"\n")
    het_data("shard", tmp_path / "a", tmp_path / "b", "--by", "C1", "--workers", 3, "--batch", 8,
             "--out", tmp_path / "out")  # fmt: skip
    shard(write_criteo(tmp_path / "day.tsv"), tmp_path / "one", "C1")
    assert Pieces.read(tmp_path / "out").id == Pieces.read(tmp_path / "one").id


# --- what is refused ---------------------------------------------------------------------------------------


REFUSED = {
    "no such field": ("criteo", "C27", [], "'C27', which .*a.criteo has not; .*: C1, C2, "),
    "a number": ("criteo", "I1", [], "'I1', which is a number, not an id"),
    "a float": ("parquet", "price", [], "'price', which is double, not an id; .*: n, id, user"),
    "a list": ("parquet", "tags", [], "'tags', which has several values a sample"),
    "a float of a record": (
        "tfrecord",
        "price",
        [],
        "'price', which is a number, not an id; .*: id, n, user",
    ),
    "a list of a record": ("tfrecord", "tags", [], "'tags', which has several values a sample"),
    "too few samples": (
        "criteo",
        "C1",
        ["--batch", 100],
        "203 samples, .* 3 workers has 300; give a smaller",
    ),
    "a part of Parquet": ("parquet", "id", ["--part", "train"], "--part is train, but only Criteo's lines"),
    "other lines": ("tfrecord", "C1", ["--format", "criteo"], r"line 1: has \d+ fields, not 40"),
    "no Parquet": ("criteo", "id", ["--format", "parquet"], "a.criteo cannot be read: .*magic bytes"),
    "no TFRecord": ("criteo", "id", ["--format", "tfrecord"], "is damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_placed_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    kind, by, more, message = REFUSED[name]
    done = shard(WRITE[kind](tmp_path / f"a.{kind}"), tmp_path / "out", by, *more, status=1)
    matches(message, done.err)
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{kind}"]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    bad = lines()
    bad[40] = bad[40].rsplit(b"\t", 1)[0] + b"\tzz"
    (tmp_path / "day.tsv").write_bytes(b"\n".join(bad))
    done = shard(tmp_path / "day.tsv", tmp_path / "out", "C1", status=1)
    matches(r"day\.tsv, line 41: has 'zz' in C26, not a hexadecimal number", done.err)


def test_wrong_arguments_and_a_directory_that_is_there(tmp_path: Path) -> None:
    source = write_criteo(tmp_path / "day.tsv")
    done = shard(source, tmp_path, "C1", status=1)
    matches("exists already", done.err)
    for words in (["--workers", 0], ["--batch", "x"], ["--part", "most"]):
        shard(source, tmp_path / "out", "C1", *words, status=2)
    matches("No such file", shard(tmp_path / "none", tmp_path / "out", "C1", status=1).err)
    os.mkfifo(tmp_path / "fifo")
    matches("is a FIFO, not a regular file", shard(tmp_path / "fifo", tmp_path / "out", "C1", status=1).err)
    assert not (tmp_path / "out").exists()
    assert "het data fields train.tsv" in het_data("--help").out


@pytest.mark.parametrize("how", ["grows", "replaced"])
def test_a_file_that_changes_meanwhile_is_refused(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_criteo(tmp_path / "day.tsv")
    inner = rules.hashes

    def change(of: object) -> np.ndarray:
        if how == "grows":
            with source.open("ab") as file:
                file.write(b"\n")
        else:
            (tmp_path / "new").write_bytes(source.read_bytes())
            (tmp_path / "new").rename(source)
        return inner(of)

    monkeypatch.setattr(rules, "hashes", change)
    done = shard(source, tmp_path / "out", "C1", status=1)
    matches(r"day\.tsv has changed while it was read", done.err)
    assert [path.name for path in tmp_path.iterdir()] == ["day.tsv"]


@pytest.mark.parametrize("kind", WRITE)
def test_a_full_disk_leaves_nothing(tmp_path: Path, kind: str) -> None:
    source = WRITE[kind](tmp_path / f"a.{kind}")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signals = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # no file may be larger
        done = shard(source, tmp_path / "out", "C1" if kind == "criteo" else "id", status=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, signals)
    matches(r"out/part-0000\d-of-00003\.\w+: .*File too large.*; nothing is left of .*/out", done.err)
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{kind}"]


def test_pieces_that_were_damaged_are_named(tmp_path: Path) -> None:
    shard(write_criteo(tmp_path / "day.tsv"), tmp_path / "out", "C1")
    file, document = (
        tmp_path / "out/placement.json",
        json.loads((tmp_path / "out/placement.json").read_text()),
    )
    with pytest.raises(FileNotFoundError, match=r"has no placement\.json; give a directory of het data"):
        Pieces.read(tmp_path)
    for change, message in (
        ({"rule": 2}, "was placed by rule 2, but this het_tf has rule 1"),
        ({"workers": 0}, "damaged: workers is 0"),
        ({"format": "x"}, "damaged: its format is 'x'"),
    ):
        file.write_text(json.dumps({**document, **change}))
        with pytest.raises(ValueError, match=message):
            Pieces.read(tmp_path / "out")
    file.write_text(json.dumps({name: document[name] for name in document if name != "by"}))
    with pytest.raises(ValueError, match="damaged: 'by' is missing"):
        Pieces.read(tmp_path / "out")
    file.write_text(json.dumps(document))
    pieces = Pieces.read(tmp_path / "out")
    with (tmp_path / "out/part-00001-of-00003.tsv").open("ab") as damaged:
        damaged.write(b"x")
    with pytest.raises(ValueError, match=r"part-00001.* has \d+ bytes, but placement\.json says"):
        pieces.file(1)
    (tmp_path / "out/part-00002-of-00003.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"part-00002.* is missing; copy"):
        pieces.file(2)


# --- fields ------------------------------------------------------------------------------------------------


def counted(numbers: np.ndarray, order: np.ndarray) -> tuple[float, ...]:
    """Computes `profile.count` by following every copy."""
    steps, workers, _ = order.shape
    ticks: dict[int, int] = {}
    copies: dict[tuple[int, int], int] = {}  # ticks of a row that a worker's copy has, its own included
    uses, new, changed, lags = 0, 0, 0, 0
    for step in range(steps):
        rows = [{int(one) for one in numbers[order[step, worker]].ravel()} for worker in range(workers)]
        seen = dict(ticks)
        for worker in range(workers):
            for row in rows[worker]:
                uses += 1
                has = copies.get((worker, row), None)
                new += has is None and row in seen
                changed += has is not None and seen[row] > has
                lags += 0 if has is None else seen[row] - has
                copies[worker, row] = seen.get(row, 0) + 1
                ticks[row] = ticks.get(row, 0) + 1
    batches = steps * workers
    return uses / batches, new / batches, changed / batches, lags / uses


def test_counts_are_those_of_copies_that_are_followed() -> None:
    rng = np.random.default_rng(5)
    numbers = np.stack([rng.zipf(1.5, 480) % 50, 50 + rng.integers(0, 30, 480)], axis=1)
    for order in (
        np.arange(480).reshape(15, 4, 8), Placement("f", 4, 8).place(numbers[:, 0]),
        Placement("f", 2, 16).place(numbers[:, 1]), np.arange(480).reshape(60, 1, 8),
    ):  # fmt: skip
        found = profile.count(numbers, order)
        np.testing.assert_allclose(
            (found.unique, found.new, found.changed, found.lag), counted(numbers, order)
        )


def test_fields_names_the_one_that_others_follow(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 300, 3000)
    rows = []
    for number, one in enumerate(user):
        texts = [b"%08x" % one for one in rng.integers(0, 300, 24)]
        texts[3], texts[5], texts[7] = b"%08x" % one, b"%08x" % (one // 2), b"%08x" % (number % 4 // 3)
        rows.append(b"\t".join([b"0"] * 14 + texts + [b"", b""]))
    source = tmp_path / "day.tsv"
    source.write_bytes(b"\n".join(rows))
    words = ["fields", source, "--workers", 3, "--batch", 10, "--samples", 2000]
    table = het_data(*words).out
    assert max(map(len, table.splitlines())) <= 80 and "2,000 samples, 3 workers of 10" in table
    assert "C6 saves most: het data shard --by C6" in table
    matches(r"\nC8 +2 +75\.0\*", table)  # of two values, the more frequent one above a third
    assert "Not by I1, I2" in table
    values = itertools.count()
    alone = [b"\t".join([b"0"] * 14 + [b"%08x" % next(values) for _ in range(26)]) for _ in range(200)]
    (tmp_path / "alone.tsv").write_bytes(b"\n".join(alone))
    said = het_data("fields", tmp_path / "alone.tsv", "--workers", 3, "--batch", 10).out
    assert "share rows in this sample: no field saves any" in said and "saves most" not in said
    document = json.loads(het_data(*words, "--json").out)
    # Location saves a little more, and is not worth its work.
    assert [one["name"] for one in document["by"]][:3] == ["location", "C6", "C4"], "a user goes with C6"
    best = document["by"][1]
    assert best["rows"]["new"] < 0.95 * document["unplaced"]["new"]
    assert best["distinct"] == len(np.unique(user[:1980] // 2))
    owners = Placement("C6", 3, 10).owners(hashes(criteo(source)[1][5, :1980]))
    above = sum(
        max(0, int((owners[at : at + 30] == w).sum()) - 10) for at in range(0, 1980, 30) for w in range(3)
    )
    assert best["spilled"] == pytest.approx(above / 1980)
    matches("two global batches of 3 workers have 6000", het_data(*words, "--batch", 1000, status=1).err)


def test_fields_counts_placing_by_location(tmp_path: Path) -> None:
    """Catches a line of location that is counted in another order than `het data shard` deals: here samples
    go together by a home that no field has, and each field is as good as none.
    """
    rng = np.random.default_rng(0)
    home = rng.integers(0, 400, 4000)
    texts = [[b"%08x" % (8 * one + rng.integers(0, 8)) for _ in range(5)] + [b""] * 21 for one in home]
    (tmp_path / "day.tsv").write_bytes(b"\n".join(b"\t".join([b"0"] * 14 + one) for one in texts))
    words = ["fields", tmp_path / "day.tsv", "--workers", 4, "--batch", 10, "--samples", 4000]
    table = het_data(*words).out
    matches(r"\nby location +- +- +-  ", table)
    assert "location saves most: het data shard --by location" in table
    document = json.loads(het_data(*words, "--json").out)
    best, other = document["by"][:2]
    assert (best["name"], best["distinct"]) == ("location", None)
    assert best["rows"]["new"] < 0.6 * other["rows"]["new"]
