"""describe and tabular: CSV, Parquet, frames; types, holes, shards, errors that name file and line."""

from __future__ import annotations

import datetime
import gzip
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from het_tf.zoo.data import Description, Field, describe, tabular

ROWS = [
    "user,item,age,price,when,clicked",
    "anna,7,31,2.5,2024-01-01,1",
    ",8,,3,2024-01-02,0",
    "bo,,40,,2024-01-03,1",
]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def columns(**more: Any) -> dict[str, Any]:
    return {"user": [1, 2, 3], "clicked": [0, 1, 1], **more}


def test_a_csv_with_strings_holes_and_dates(tmp_path: Path) -> None:
    """Strings are ids, holes are -1, "" and NaN, and a date is no id: each would have a row of no use."""
    path = write(tmp_path / "x.csv", ROWS)
    about = describe(path, numeric=["age"])
    assert about.categorical == (Field("user", None, dtype="string"), Field("item", None))
    assert (about.numeric, about.labels, about.sequences) == (("age", "price"), ("clicked",), ())
    found = {column.name: column for column in about.columns}
    assert {name: column.use for name, column in found.items()} == {
        "user": "ids", "item": "ids", "age": "numeric", "price": "numeric", "when": "date",
        "clicked": "label",
    }  # fmt: skip
    assert (found["age"].low, found["age"].high, found["age"].missing) == (31, 40, 1)
    assert str(found["price"]) == "price: double, numeric, 2.5 to 3, 1 missing"

    stream = tabular(path, about)
    assert stream.rows == 3
    rows = stream.read()
    assert rows.categorical["user"].tolist() == ["anna", "", "bo"]
    assert rows.categorical["item"].tolist() == [7, 8, -1]
    np.testing.assert_array_equal(rows.numeric, np.float32([[31, 2.5], [np.nan, 3], [40, np.nan]]))
    assert rows.label.tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet", "directory", "list", "table", "dict"])
def test_every_kind_of_source_has_the_same_rows(kind: str, tmp_path: Path) -> None:
    """Also of several files: in their order, each once."""
    data = {"user": [f"u{n}" for n in range(9)], "n": list(range(9)), "clicked": [n % 2 for n in range(9)]}
    table = pa.table(data)
    lines = [",".join(data), *(f"{u},{n},{c}" for u, n, c in zip(*data.values(), strict=True))]
    source: Any = tmp_path / f"x.{kind}"
    if kind == "csv.gz":
        source.write_bytes(gzip.compress("\n".join(lines).encode()))
    elif kind in ("csv", "tsv"):
        write(source, [line.replace(",", "\t") if kind == "tsv" else line for line in lines])
    elif kind == "parquet":
        pq.write_table(table, source, row_group_size=4)
    elif kind in ("directory", "list"):
        (tmp_path / "d").mkdir()
        for number in range(3):
            pq.write_table(table.slice(3 * number, 3), tmp_path / "d" / f"{number}.parquet")
        source = tmp_path / "d" if kind == "directory" else sorted((tmp_path / "d").iterdir())
    else:
        source = table if kind == "table" else data
    rows = tabular(source, describe(source)).read()
    assert rows.categorical["user"].tolist() == data["user"] and rows.label.tolist() == data["clicked"]
    assert rows.categorical["n"].tolist() == data["n"]


def test_types(caplog: pytest.LogCaptureFixture) -> None:
    """Floats that are whole and have a hole were integers; what is neither number nor id is left out."""
    source = columns(
        flag=[True, None, False],
        kind=pa.array(["a", "b", None]).dictionary_encode(),
        codes=pa.array([5, 6, None]).dictionary_encode(),
        big=np.array([2**63 + 5, 1, 2], np.uint64),
        pandas=[5.0, np.nan, 7.0],
        whole=[5.0, 6.0, 7.0],
        at=[datetime.datetime(2024, 1, 1)] * 3,
        past=[[1, 2], [], None],
        tags=[["x"], ["y", "z", "x"], []],
        bytes=[b"a", b"b", b"c"],
        zip=[1, 20, 300],
    )
    with caplog.at_level(logging.WARNING, "het_tf"):
        about = describe(source, strings=["zip"], leave_out=["whole"])
    assert "column 'pandas': whole numbers as double, 1 missing: taken for ids" in caplog.text
    kinds = {field.name: (field.dtype, field.length) for field in about.fields}
    assert kinds == {
        "user": ("int64", None), "flag": ("int64", None), "kind": ("string", None), "codes": ("int64", None),
        "big": ("int64", None), "pandas": ("int64", None), "zip": ("string", None), "past": ("int64", 2),
        "tags": ("string", 3),
    }  # fmt: skip
    uses = {column.name: column.use for column in about.columns}
    assert (uses["at"], uses["bytes"], uses["whole"], about.numeric) == ("date", "left out", "left out", ())
    rows = tabular(source, about).read()
    assert rows.categorical["flag"].tolist() == [1, -1, 0]
    assert rows.categorical["kind"].tolist() == ["a", "b", ""]
    assert rows.categorical["codes"].tolist() == [5, 6, -1]
    assert rows.categorical["big"].tolist() == [5 - 2**63, 1, 2]
    assert rows.categorical["pandas"].tolist() == [5, -1, 7]
    assert rows.categorical["zip"].tolist() == ["1", "20", "300"]
    assert rows.sequences["past"].tolist() == [[1, 2], [-1, -1], [-1, -1]]
    assert rows.sequences["tags"].tolist() == [["x", "", ""], ["y", "z", "x"], ["", "", ""]]


def test_several_labels() -> None:
    """Each is a column of the label, in the order in which they are given."""
    source = columns(bought=[True, False, False])
    about = describe(source, label=["bought", "clicked"])
    assert about.labels == ("bought", "clicked") and [field.name for field in about.fields] == ["user"]
    assert tabular(source, about).read().label.tolist() == [[1, 0], [0, 1], [0, 1]]


def test_pandas() -> None:
    """Nullable and categorical columns, strings with None, an index that is no column."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "user": pd.array([5, None, 7], dtype="Int64"),
            "kind": pd.Categorical(["a", None, "b"]),
            "name": ["x", None, "y"],
            "flag": pd.array([True, None, False], dtype="boolean"),
            "hole": [1.0, None, 3.0],
            "price": [0.5, np.nan, 1.5],
            "clicked": [0, 1, 1],
        },
        index=["p", "q", "r"],
    )
    about = describe(frame)
    assert [field.name for field in about.categorical] == ["user", "kind", "name", "flag", "hole"]
    assert about.numeric == ("price",)
    rows = tabular(frame, about).read()
    assert {name: ids.tolist() for name, ids in rows.categorical.items()} == {
        "user": [5, -1, 7], "kind": ["a", "", "b"], "name": ["x", "", "y"], "flag": [1, -1, 0],
        "hole": [1, -1, 3],
    }  # fmt: skip
    with pytest.raises(ValueError, match="column mixed"):
        describe(frame.assign(mixed=pd.Series([1, "a", 2], index=frame.index, dtype=object)))


@pytest.mark.slow
def test_a_file_is_read_in_parts(tmp_path: Path) -> None:
    """Shards are disjoint and equal, also across batches and files, and to_tf has strings beside numbers."""
    tf = pytest.importorskip("tensorflow")
    count = 150_001
    n = np.arange(count)
    table = pa.table({"n": n, "text": n.astype(str), "x": n / 2.0, "clicked": n % 2})
    for number, part in enumerate((table.slice(0, 70_003), table.slice(70_003))):
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=40_000)
    about = describe(tmp_path)
    stream = tabular(tmp_path, about)
    assert stream.rows == count and about.columns[0].high == count - 1
    shards = [stream.shard(index, 4) for index in range(4)]
    found = [shard.read().categorical["n"] for shard in shards]
    assert [len(one) for one in found] == [shard.rows for shard in shards] == [count // 4] * 4
    np.testing.assert_array_equal(np.stack(found, axis=1).ravel(), n[: count // 4 * 4])
    again = stream.shard(1, 2).shard(1, 2).read(3)
    assert again.categorical["n"].tolist() == [3, 7, 11]

    dataset = shards[0].to_tf(1000, shuffle=True)
    assert int(dataset.cardinality()) == 38
    inputs, label = next(iter(dataset))
    assert inputs["text"].dtype == tf.string and inputs["numeric"].shape == (1000, 1)
    ids = inputs["n"].numpy()
    assert [int(one) for one in inputs["text"].numpy()] == ids.tolist()
    np.testing.assert_array_equal(label, ids % 2)


def test_a_pass_needs_no_memory_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow keeps the bytes of all row groups unless told otherwise: a pass took the memory of the file.

    How far Arrow reads ahead is its own, and depends on the load: what it is told is looked at.
    """
    pq.write_table(pa.table({"x": np.arange(300_000), "clicked": np.zeros(300_000)}), tmp_path / "x.parquet")
    about = describe(tmp_path / "x.parquet")
    told = []

    def noted(*args: Any, **options: Any) -> Any:
        told.append(options)
        return opened(*args, **options)

    opened = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", noted)
    blocks = [len(block) for block in tabular(tmp_path / "x.parquet", about).blocks()]
    assert sum(blocks) == 300_000 and max(blocks) <= 150_000, "a block at a time"
    assert told and all(not one["pre_buffer"] and one["buffer_size"] <= 1 << 20 for one in told)


BAD_CSV = [
    (["a,clicked", "1,0", "x,1"], "line 3, column 'a'.*'x'.*strings="),
    (["a,clicked", "1,0", "2"], "line 3: Expected 2 columns, got 1"),
    (["a,clicked", "1,0", "2,"], "row 2, column 'clicked': a label is missing"),
    (["a,clicked", "1,yes"], "column 'clicked': is string, not a number"),
    (["a,clicked"], "has no rows"),
    ([""], "cannot be read.*Empty CSV"),
    (["a,a,clicked", "1,2,0"], "multiple columns named a"),
    (["a,label", "1,0"], r"has no columns \['clicked'\]; it has \['a', 'label'\]"),
    (["a,clicked", "18446744073709551615,0"], "column 'a': whole numbers up to 184.*strings="),
]


@pytest.mark.parametrize(("lines", "message"), BAD_CSV)
def test_bad_csv(lines: list[str], message: str, tmp_path: Path) -> None:
    """Each names the file, and the line and column where there is one. Types are those of the first megabyte,
    so the bad line of the first case comes after it."""
    if "x,1" in lines:
        lines = [lines[0], *["1,0"] * 300_000, lines[2]]
        message = message.replace("line 3", "line 300002")
    path = write(tmp_path / "bad.csv", lines)
    with pytest.raises(ValueError, match=f"(?s)bad.csv.*{message}"):
        describe(path)


def test_bad_files(tmp_path: Path) -> None:
    """Cut, empty, of other columns, of two types, of no kind, not there."""
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table(columns(more=np.arange(3000).astype(str)[:3])), good)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(good.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"cut.parquet cannot be read.*copy it again"):
        describe(cut)
    (tmp_path / "none.parquet").touch()
    with pytest.raises(ValueError, match=r"none.parquet cannot be read.*0 bytes"):
        describe(tmp_path / "none.parquet")
    zipped = gzip.compress("\n".join(["a,clicked", *(f"{n},1" for n in range(400_000))]).encode())
    (tmp_path / "cut.csv.gz").write_bytes(zipped[: len(zipped) * 3 // 4])
    with pytest.raises(ValueError, match=r"(?s)cut.csv.gz cannot be read.*Truncated"):
        describe(tmp_path / "cut.csv.gz")

    about = describe(good)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table(columns()), other)
    with pytest.raises(ValueError, match=r"other.parquet has no columns \['more'\]"):
        tabular(other, about)
    with pytest.raises(ValueError, match=r"other.parquet has no column 'more', but .*good.parquet has"):
        describe([good, other])
    narrow = pa.table(
        columns(user=pa.array([4, 5, 6], pa.int32()), more=pa.array(["a"] * 3, pa.large_string()))
    )
    pq.write_table(narrow, other)
    assert tabular([good, other], describe([good, other])).read().categorical["user"].tolist() == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    pq.write_table(pa.table(columns(more=[1, 2, 3])), other)
    with pytest.raises(
        ValueError, match=r"other.parquet: column 'more' is int64, but in files before it string"
    ):
        describe([good, other])
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.csv"):
        describe(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"is neither a file \*.csv"):
        describe(write(tmp_path / "x.txt", ROWS))
    with pytest.raises(ValueError, match="give files of one kind"):
        describe([good, write(tmp_path / "x.csv", ROWS)])
    with pytest.raises(ValueError, match="source is a int"):
        describe(7)
    pq.write_table(pa.table(columns()).slice(0, 0), tmp_path / "zero.parquet")
    with pytest.raises(ValueError, match=r"zero.parquet has no rows"):
        describe(tmp_path / "zero.parquet")


MIXED = Description("mixed", (Field("user", None),), sequences=(Field("past", None, length=2),))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"user": [1, 1.7, 2.5]}, r"row 2, column 'user': an id is not a whole number \(2 of 3 here\)"),
        ({"user": np.array([1, 2**24, 3], np.float32)}, "row 2, column 'user': an id is 16777216 or more"),
        ({"user": [1, -(2**63), 3]}, r"row 2.*'user': an id is -2\^63, which NaN becomes.*1 of 3"),
        ({"user": ["a", "b", "c"]}, "column 'user': is string, but ids are int64; describe it by strings="),
        ({"user": [1, "b", 3]}, "column 'user': Could not convert 'b'.*a column has one type"),
        ({"past": [1, 2, 3]}, "column 'past': is int64, but the field has lists"),
        ({"clicked": [1, None, 0]}, "row 2, column 'clicked': a label is missing"),
    ],
)
def test_bad_values(source: dict[str, Any], message: str) -> None:
    """1.7 became id 1, NaN -2^63, 2^24 + 1 its neighbour, each silently."""
    with pytest.raises(ValueError, match=message):
        tabular({**columns(past=[[1], [2], []]), **source}, MIXED).read()


@pytest.mark.parametrize("text", [False, True])
def test_longer_lists_are_cut_to_their_last_ids_and_counted(text: bool, caplog: Any) -> None:
    """Would catch: the first ids in place of the last, ids of a neighbour, and a job that ends tomorrow."""
    name = str if text else int
    lists = [[1], [1, 2, 3, 4], None, [5, 6, 7], [], [8, 9]]
    given = {"past": [one and [name(id) for id in one] for one in lists], "clicked": [0, 1] * 3}
    about = describe(given, lengths={"past": 2})
    assert about.sequences == (Field("past", None, length=2, dtype="string" if text else "int64"),)
    assert [(one.name, one.cut) for one in about.columns] == [("past", 2), ("clicked", 0)]
    assert ", 2 longer lists cut" in str(about.columns[0])
    none = "" if text else -1
    expected = [[1, none], [3, 4], [none, none], [6, 7], [none, none], [8, 9]]
    expected = [[one if one == none else name(one) for one in row] for row in expected]
    stream = tabular(given, about)
    for _ in range(2):
        caplog.clear()
        assert stream.read().sequences["past"].tolist() == expected
        assert stream.cut == {"past": 2}
        (line,) = [record.getMessage() for record in caplog.records]
        assert "row 2, column 'past': a list has more than 2 ids; of such lists the last ids are read" in line
    assert describe(given).sequences[0].length == 4
    assert describe(given, lengths={"past": 9}).sequences[0].length == 9


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"tags": 3}, r"has no columns \['tags'\]"),
        ({"user": 3}, "lengths has column 'user', which is int64; give columns of lists"),
        ({"past": 0}, r"lengths\['past'\] is 0; give a number of ids, an integer of 1 or more"),
        ({"past": 2.0}, r"lengths\['past'\] is 2\.0"),
    ],
)
def test_lengths_of_no_list_are_refused(lengths: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        describe(columns(past=[[1], [2], []]), lengths=lengths)


def test_strings_where_the_field_is_one_of_strings() -> None:
    """Floats are no text: 7.0 and 7 would be two ids."""
    field = Description("x", (Field("user", None, dtype="string"),))
    with pytest.raises(ValueError, match="column 'user': is double, but ids are strings"):
        tabular(columns(user=[7.5, 1.0, 2.0]), field).read()
    with pytest.raises(ValueError, match="dtype is 'str'; give one of"):
        Field("user", None, dtype="str")
    with pytest.raises(ValueError, match="strings have no size, but it is 5"):
        Field("user", 5, dtype="string")
    with pytest.raises(ValueError, match=r"shares 'a'; give .* dtype, string"):
        Description(
            "x", (Field("a", None),), sequences=(Field("h", None, length=2, shares="a", dtype="string"),)
        )
