"""Users' files: parts of several types, encodings, holes, indices of pandas, ratings, infinite numbers."""

from __future__ import annotations

import gzip
import json
import logging
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from het_tf.zoo.data import Description, describe, tabular


def columns(**more: Any) -> dict[str, Any]:
    return {"user": [1, 2, 3], "clicked": [0, 1, 1], **more}


def parts(directory: Path, *tables: dict[str, Any]) -> Path:
    directory.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), directory / f"{number}.parquet")
    return directory


KIN = {
    "int32, int64": (pa.array([1], pa.int32()), pa.array([2**40]), "int64", [1, 2**40]),
    "int64, int32": (pa.array([2**40]), pa.array([1], pa.int32()), "int64", [2**40, 1]),
    "int8, uint8": (pa.array([-1], pa.int8()), pa.array([255], pa.uint8()), "int16", [-1, 255]),
    "nothing, int64": (pa.array([None]), pa.array([7]), "int64", [-1, 7]),
    "categories, strings": (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), "string", ["a", "b"]),
    "two kinds of strings": (pa.array(["a"]), pa.array(["b"], pa.large_string()), "large_string", ["a", "b"]),
}


@pytest.mark.parametrize("kind", KIN)
def test_parts_of_two_types_have_the_wider_one(kind: str, tmp_path: Path) -> None:
    """The type of the first file was that of all: 2^40 was not in its range, or files were refused."""
    first, second, wide, ids = KIN[kind]
    source = parts(tmp_path / "x", {"id": first, "clicked": [0]}, {"id": second, "clicked": [1]})
    about = describe(source)
    assert about.columns[0].type == wide and about.columns[0].use == "ids"
    rows = tabular(source, about).read()
    assert rows.categorical["id"].tolist() == ids and rows.label.tolist() == [0, 1]


def test_parts_of_lists_and_of_numbers(tmp_path: Path) -> None:
    """Integers in one file, fractions in the next, are numbers; lists have the wider elements."""
    narrow = {"past": pa.array([[1]], pa.list_(pa.int32())), "x": [1], "clicked": [0]}
    source = parts(tmp_path / "x", narrow, {"past": [[2**40, 5]], "x": [0.5], "clicked": [1]})
    rows = tabular(source, describe(source)).read()
    assert rows.sequences["past"].tolist() == [[1, -1], [2**40, 5]]
    assert rows.numeric.tolist() == [[1], [0.5]]


def test_parts_that_no_type_holds(tmp_path: Path) -> None:
    """Ids above 2^53 do not fit beside floats: they would be rounded."""
    source = parts(tmp_path / "x", {"id": [2**60 + 1], "clicked": [0]}, {"id": [1.0], "clicked": [0]})
    with pytest.raises(ValueError, match=r"0.parquet cannot be read: Integer value .*write the column alike"):
        describe(source)
    words = parts(tmp_path / "y", {"id": [1], "clicked": [0]}, {"id": ["a"], "clicked": [0]})
    with pytest.raises(ValueError, match=r"1.parquet: column 'id' is string, but in files before it int64"):
        describe(words)


def test_csv_parts_of_two_types(tmp_path: Path) -> None:
    """1 and 1.5 are numbers, whichever file comes first."""
    for name, text in (("a", "x,clicked\n1,0\n"), ("b", "x,clicked\n1.5,1\n")):
        (tmp_path / f"{name}.csv").write_text(text)
    source = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert tabular(source, describe(source)).read().numeric.tolist() == [[1], [1.5]]


@pytest.mark.parametrize("where", ["a value", "a late value", "the header", "gzip", "UTF-16"])
def test_a_file_that_is_not_utf8(where: str, tmp_path: Path) -> None:
    """A column of another encoding was left out without a word. The remedy reads it."""
    lines = ["user,city,clicked", "1,Köln,1", "2,Bonn,0"]
    line, encoding, path = 2, "latin-1", tmp_path / "x.csv"
    if where == "a late value":
        lines[1:1] = ["3,Ulm,0"] * 200_000
        line = 200_002
    elif where == "the header":
        lines[0], line = "user,città,clicked", 1
    elif where == "UTF-16":
        encoding, line = "utf-16", 1
    content = "\n".join(lines).encode(encoding)
    if where == "gzip":
        path, content = tmp_path / "x.csv.gz", gzip.compress(content)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"x.csv(.gz)?, line {line} is not UTF-8: .*iconv") as refused:
        describe(path)
    if where != "gzip" and shutil.which("iconv"):
        command = (
            str(refused.value).split("`")[1].replace("OLD", str(path)).replace("NEW", f"{tmp_path}/y.csv")
        )
        subprocess.run(command, shell=True, check=True)
        assert len(describe(tmp_path / "y.csv").categorical) == 2


def test_holes_are_counted(tmp_path: Path) -> None:
    """A CSV has no nulls: its empty texts were counted as 0 missing. What is not read has no count."""
    (tmp_path / "x.csv").write_text(
        "user,city,age,when,clicked\n1,Bonn,,2024-01-01,1\n,,3,,0\n3,,4.5,2024-01-02,1\n"
    )
    about = describe(tmp_path / "x.csv")
    assert {one.name: one.missing for one in about.columns} == {
        "user": 1, "city": 2, "age": 1, "when": None, "clicked": 0,
    }  # fmt: skip
    assert [str(about.columns[n]) for n in (1, 3)] == [
        "city: string, ids, 2 missing",
        "when: date32[day], date",
    ]
    assert describe(tmp_path / "x.csv", strings=["user"]).columns[0].missing == 1
    nulls = describe(columns(city=["a", None, ""])).columns[2]
    assert nulls.missing == 2


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_an_index_of_pandas_is_no_feature(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each row would have an id of its own. Naming the column makes it one."""
    data = {name: [7, 8, 9], **columns()}
    path = tmp_path / "x.csv"
    path.write_text(
        "\n".join([",".join(data), *(",".join(map(str, row)) for row in zip(*data.values(), strict=True))])
    )
    if name.startswith("__"):
        path = path.with_suffix(".parquet")
        pq.write_table(pa.table(data), path)
    with caplog.at_level(logging.WARNING, "het_tf"):
        about = describe(path)
    assert [field.name for field in about.fields] == ["user"]
    assert f"column {name!r} is an index of pandas" in caplog.text
    assert str(about.columns[0]) == f"{name}: int64, index"
    assert [field.name for field in describe(path, ids=[name]).fields] == [name, "user"]


def test_no_column_is_left_out_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Types are those of the first megabyte: a column that is empty there had no type, and was not read."""
    path = tmp_path / "x.csv"
    path.write_text("user,coupon,clicked\n" + "7,,1\n" * 400_000)
    with caplog.at_level(logging.WARNING, "het_tf"):
        about = describe(path)
    assert "column 'coupon' has a type of neither ids nor numbers" in caplog.text
    assert str(about.columns[1]) == "coupon: null, left out, 400,000 missing"
    with path.open("a") as file:
        file.write("7,A17,1\n")
    with pytest.raises(ValueError, match=r"line 400002, column 'coupon': .*'A17'.*strings=\['coupon'\]"):
        describe(path)
    assert describe(path, strings=["coupon"]).columns[1].missing == 400_000
    caplog.clear()
    with caplog.at_level(logging.WARNING, "het_tf"):
        describe(columns(raw=[b"a", b"b", b"c"], day=[b"x"] * 3), leave_out=["day"])
    assert "column 'raw' has a type of neither" in caplog.text and "'day'" not in caplog.text


def test_ratings(tmp_path: Path) -> None:
    """A label of 5 makes binary_crossentropy fall without end. Both remedies of the message work."""
    source = {"user": [1, 2, 3], "rating": [1, 4, 5]}
    with pytest.raises(ValueError, match=r"row 2.*'rating': a label is 4, .*thresholds=\{'rating': 5\}"):
        describe(source, label="rating")
    about = describe(source, label="rating", thresholds={"rating": 4})
    assert tabular(source, about).read().label.tolist() == [0, 1, 1]
    plain = describe(source, label="rating", thresholds={"rating": None})
    assert tabular(source, plain).read().label.tolist() == [1, 4, 5]
    with pytest.raises(ValueError, match=r"row 1, column 'clicked': a label is -1"):
        tabular(columns(clicked=[-1, 0, 1]), describe(columns())).read()
    assert describe(columns(clicked=[0.25, 1, 0])).columns[1].high == 1
    for wrong in ({"stars": 4}, 4):
        with pytest.raises(ValueError, match=r"thresholds is .*; name them, as in \{'rating': 4\}"):
            describe(source, label="rating", thresholds=wrong)  # type: ignore[arg-type]

    from het_tf.zoo.models.base import description_from_config

    assert description_from_config(json.loads(json.dumps(asdict(about)))) == about


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_an_infinite_number(value: float) -> None:
    """One makes the mean infinite, and every prediction NaN; 1e300 is infinite as float32."""
    with pytest.raises(
        ValueError, match=r"row 2, column 'x': a number is infinite as float32.*\(1 of 3 here\)"
    ):
        describe(columns(x=[1.5, value, 2]))
    about = describe(columns(x=[1.5, 2, 2]))
    with pytest.raises(ValueError, match="column 'x': a number is infinite"):
        tabular(columns(x=[1.5, value, 2]), about).read()


def test_patterns(tmp_path: Path) -> None:
    """A pattern is the files that it matches, in the order of their names, also in a list."""
    for day in (2, 1, 3):
        (tmp_path / f"day-{day}.csv").write_text(f"user,clicked\n{day},1\n")
    about = describe(f"{tmp_path}/day-*.csv")
    assert isinstance(about, Description)
    for source in (f"{tmp_path}/day-*.csv", [tmp_path / "day-[12].csv", f"{tmp_path}/day-3.csv"]):
        assert tabular(source, about).read().categorical["user"].tolist() == [1, 2, 3]
    with pytest.raises(FileNotFoundError, match=r"there is no file .*night-\*.csv"):
        describe(f"{tmp_path}/night-*.csv")
