"""The command het plan profile: what it reads, what it prints, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from cli_lib import Done, het

import het_tf.planner
from het_tf.ext.placement.python.placement import hashes
from het_tf.ext.sizing.python.stats import Stats
from het_tf.inputs import Graph

SAMPLES = 500
USERS = np.random.default_rng(1).zipf(1.4, SAMPLES) % 100
LISTS = [[int(one), int(one) + 1] if one % 3 else None for one in USERS]
LENGTHS = np.array([2 * bool(one % 3) for one in USERS])
HISTORY = np.array([one for found in LISTS for one in found or []])


def het_plan(*words: object, status: int = 0) -> Done:
    return het("plan", *words, status=status)


def refused(*words: object) -> str:
    done = het_plan("profile", *words, status=1)
    assert done.err.startswith("het plan: ") and not done.out
    return done.err


def criteo(path: Path) -> Path:
    head = [b"1", *[b"3"] * 13]
    rows = [b"\t".join([*head, *[b"%08x" % one] * 25, b"%08x" % at]) for at, one in enumerate(USERS)]
    path.write_bytes(b"\n".join(rows))
    return path


def parquet(path: Path, part: slice = slice(None)) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {
        "price": pa.array(np.ones(SAMPLES)[part]),
        "user": pa.array(USERS[part], pa.int32()),
        "name": pa.array([f"u{one}" for one in USERS[part]]),
        "history": pa.array(LISTS[part], pa.list_(pa.int64())),
        "tags": pa.array([["a", f"b{one}"] for one in USERS[part]]),
        "vector": pa.array([[0.5, 1.5]] * len(USERS[part])),
    }
    pq.write_table(pa.table(columns), path, row_group_size=70)
    return path


def test_criteo(tmp_path):
    data = f"criteo:{criteo(tmp_path / 'a.tsv')}"
    done = het_plan(*"profile --dim 16 --dim C26=4 --data".split(), data, "--out", tmp_path / "out")
    stats = Stats.load(tmp_path / "out")
    assert stats.source == f"criteo:{tmp_path / 'a.tsv'}" and stats.samples == SAMPLES
    assert [table.name for table in stats.tables] == [f"C{number}" for number in range(1, 27)]
    assert [table.dim for table in stats.tables] == [16] * 25 + [4]
    assert stats.tables[0].rows == len(set(USERS)) and stats.tables[25].rows == SAMPLES
    first, *_, last = done.out.splitlines()
    assert first.startswith(f"criteo:{tmp_path}")
    assert re.fullmatch(r"C26 +4 +500 +1\.00 +500 +1 +500", last)
    assert max(map(len, done.out.splitlines()[2:])) <= 80


def test_parquet_with_lists_strings_and_shared_tables(tmp_path):
    parquet(tmp_path / "b.parquet", slice(200, None))
    parquet(tmp_path / "a.parquet", slice(200))
    out = tmp_path / "out"
    het_plan(
        "profile", "--data", f"parquet:{tmp_path}/*.parquet", "--out", out, "--table", "item=user,history"
    )
    stats = Stats.load(out)
    assert [(one.name, one.table) for one in stats.features] == [
        ("user", "item"), ("name", "name"), ("history", "item"), ("tags", "tags"),
    ]  # fmt: skip
    assert [one.ids_per_sample for one in stats.features] == [1, 1, LENGTHS.mean(), 2]
    keys, ids, samples = stats.keys(0)
    assert np.array_equal(np.unique(np.append(USERS, HISTORY)), keys)
    assert np.array_equal(keys[ids][np.diff(samples, prepend=-1) > 0], USERS)
    keys, ids, _ = stats.keys(1)
    assert np.array_equal(keys[ids], hashes(np.array([f"u{one}" for one in USERS], object)).view(np.int64))
    het_plan("profile", "--data", f"parquet:{tmp_path}/*.parquet", "--out", out, "--fields", "history,user",
             "--samples", 300)  # fmt: skip
    stats = Stats.load(out)
    assert stats.samples == 300 and [one.name for one in stats.tables] == ["history", "user"]
    assert np.array_equal(stats.keys(0)[0][stats.keys(0)[1]], HISTORY[: LENGTHS[:300].sum()])


def test_csv_counts_as_parquet_does(tmp_path):
    """csv:GLOB was taken for a module of Python. An index that pandas wrote is not counted."""
    for name, part in (("a", slice(200)), ("b", slice(200, None))):
        rows = [f"{at},{one},u{one},0.5" for at, one in enumerate(USERS[part])]
        (tmp_path / f"{name}.csv").write_text("\n".join([",user,name,price", *rows]) + "\n")
    parquet(tmp_path / "a.parquet")
    for data in (f"csv:{tmp_path}/*.csv", f"parquet:{tmp_path}/a.parquet"):
        het_plan("profile", "--data", data, "--out", tmp_path / data[:3], "--fields", "user,name", "--dim", 4)
    stats = [Stats.load(tmp_path / kind) for kind in ("csv", "par")]
    assert stats[0].samples == SAMPLES and stats[0].tables == stats[1].tables
    for table in (0, 1):
        for one, other in zip(*(of.keys(table) for of in stats), strict=True):
            np.testing.assert_array_equal(one, other)
    het_plan("profile", "--data", f"csv:{tmp_path}/*.csv", "--out", tmp_path / "all")
    assert [one.name for one in Stats.load(tmp_path / "all").features] == ["user", "name"]
    (tmp_path / "c.csv").write_bytes(b"user,name\n1,K\xf6ln\n")
    done = het_plan("profile", "--data", f"csv:{tmp_path}/c.csv", "--out", tmp_path / "no", status=1)
    assert "c.csv, line 2 is not UTF-8" in done.err


def test_tfrecord_with_lists(tmp_path):
    import tensorflow as tf

    def feature(values: list[int]) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as out:
        for user, history in zip(USERS, LISTS, strict=True):
            features = {"user": feature([user]), "history": feature(history or [])}
            out.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    het_plan("profile", "--data", f"tfrecord:{tmp_path}/a.tfrecord", "--out", tmp_path / "out")
    stats = Stats.load(tmp_path / "out")
    history, user = stats.tables
    assert (history.uses, history.rows, user.rows) == (len(HISTORY), len(set(HISTORY)), len(set(USERS)))
    assert np.array_equal(np.bincount(stats.keys(0)[2], minlength=SAMPLES), LENGTHS)
    for field in ("user", "history"):
        het_plan("profile", "--data", f"tfrecord:{tmp_path}/a.tfrecord", "--out", tmp_path, "--fields", field)
        assert [one.name for one in Stats.load(tmp_path).tables] == [field]


def test_graph(tmp_path):
    edges = np.random.default_rng(0).integers(0, 300, (900, 2))
    graph = Graph.from_edges(tmp_path / "a.graph", edges, 300)
    words = ("--data", f"graph:{graph.path}", "--dim", 8, "--out", tmp_path)
    het_plan("profile", *words)
    stats = Stats.load(tmp_path)
    assert (stats.samples, stats.tables[0].name, stats.tables[0].dim) == (300, "nodes", 8)
    assert stats.features[0].ids_per_sample == 1 + 10 + 10 * 5
    het_plan("profile", *words, "--fanout", "3")
    stats = Stats.load(tmp_path)
    keys, ids, _ = stats.keys(0)
    rows = keys[ids].reshape(300, 4)
    assert sorted(rows[:, 0]) == list(range(300))
    assert all(set(row[1:]) <= {row[0], *graph.neighbours(int(row[0]))} for row in rows)
    assert "fanouts is (3, 0)" in refused(*words, "--fanout", "3,x")
    assert "give a file of het_tf.inputs.Graph" in refused(
        "--data", f"graph:{tmp_path}/none", "--out", tmp_path
    )


MODULE = """
    import het_tf, tensorflow as tf

    table = het_tf.TableConfig("item", 4)
    layer = het_tf.keras.EmbeddingCollection({
        "item": het_tf.FeatureConfig(table),
        "history": het_tf.FeatureConfig(table, padding_id=-1, max_sequence_length=2),
        "user": het_tf.FeatureConfig(het_tf.TableConfig("user", 8), "sum"),
    })
    data = tf.data.Dataset.from_tensor_slices({
        "item": [1, 2, 3, 4, 5], "history": [[-1, 1, 9]] * 5,
        "user": tf.ragged.constant([[1], [], [2, 3], [], [1]]),
    }).batch(2)
    labelled = lambda: (data.map(lambda x: (x, 1.0)), layer)
    moved = lambda: (data.map(lambda x: x["item"]), layer,
                     lambda item: {"item": item, "history": tf.stack([item, item], 1), "user": item[:, None]})
    endless = lambda: (data.repeat(), layer)
    no_pair = lambda: [data, layer]
    no_data = lambda: ([1, 2], layer)
    floats = lambda: (data.map(lambda x: {**x, "item": tf.cast(x["item"], tf.float32)}), layer)
"""


@pytest.fixture
def module(fresh, tmp_path, monkeypatch):
    """A module of functions in the directory in which the command runs."""
    (tmp_path / "train_module.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    yield "train_module"
    sys.modules.pop("train_module", None)


def test_a_function_of_a_module(module, tmp_path):
    het_plan("profile", "--data", f"{module}:labelled", "--out", "out")
    stats = Stats.load("out")
    assert [(one.name, one.table, one.ids_per_sample) for one in stats.features] == [
        ("item", "item", 1), ("history", "item", 1), ("user", "user", 0.8),
    ]  # fmt: skip
    assert [(one.dim, one.uses, one.rows) for one in stats.tables] == [(4, 10, 5), (8, 4, 3)]
    keys, ids, _ = stats.keys(0)
    assert keys[ids].tolist() == [1, 1, 2, 1, 3, 1, 4, 1, 5, 1]
    assert stats.keys(1)[2].tolist() == [0, 2, 2, 4]
    train = sys.modules[module]
    assert het_tf.planner.profile(train.data, train.layer, out="api").tables == stats.tables
    het_plan("profile", "--data", f"{module}:endless", "--out", "out", "--samples", 7)
    assert Stats.load("out").samples == 7


def test_inputs_say_where_the_ids_are(module):
    """As of het_tf.lookahead: `inputs` is called with the components of an element."""
    het_plan("profile", "--data", f"{module}:moved", "--out", "out")
    of_command = Stats.load("out")
    dataset, layer, _ = sys.modules[module].moved()

    def inputs(item):
        import tensorflow as tf

        return {"item": item, "history": tf.stack([item, item], 1), "user": item[:, None]}

    stats = het_tf.planner.profile(dataset, layer, inputs, "out")
    assert stats.tables == of_command.tables
    assert [one.ids_per_sample for one in stats.features] == [1, 2, 1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["no_pair"], "train_module:no_pair gives list; let it return"),
        (["no_data"], "dataset is a list; give a tf.data.Dataset"),
        (["missing"], "has no attribute 'missing'; give criteo:FILE, "),
        (["endless"], r"the dataset has no end; give the number .*--samples"),
        (["floats"], "'item': ids are float32"),
        (["labelled", "--dim", "4"], "--dim does not go with --data train_module:labelled; leave it out"),
        (["labelled", "--fields", "a"], "--fields does not go with"),
        (["labelled", "--fanout", "3"], "--fanout does not go with"),
    ],
)
def test_functions_that_do_not_fit(module, words, text):
    assert re.search(text, refused("--data", f"{module}:{words[0]}", *words[1:], "--out", "out"))
    assert not Path("out").exists()


def test_files_that_do_not_fit(tmp_path):
    out = ("--out", tmp_path / "out")
    data = ("--data", f"parquet:{parquet(tmp_path / 'a.parquet')}", *out)
    for words, text in [
        (
            ("--fields", "price"),
            "--fields has 'price', which is double, not an id; fields of ids: user, name",
        ),
        (("--fields", "user,vector"), "'vector', which is list<.*double.*>, not an id"),
        (("--fields", "users"), "'users', which is not there"),
        (("--table", "item=users"), "--table item=users: give NAME=FIELD,FIELD, each once, of user, name"),
        (("--table", "a=user", "--table", "b=user"), "--table b=user"),
        (("--table", "=user"), "--table =user"),
        (("--dim", "0"), "--dim 0: give 1 to 65536, or NAME=N; the tables are user, name"),
        (("--dim", "users=4"), "--dim users=4: .* the tables are user"),
        (("--samples", "0"), "samples is 0; give an integer of 1 or more"),
        (("--fanout", "3"), "--fanout does not go with"),
    ]:
        assert re.search(text, refused(*data, *words)), words
    for given, text in [
        ("parquet", "--data is 'parquet'; give criteo:FILE, csv:GLOB"),
        (":a", "--data is ':a'"),
        (f"parquet:{tmp_path}/b*", "there is no such file; give one, or a pattern"),
        ("s3:bucket", "--data s3:bucket: No module named 's3'; give criteo:FILE"),
        (f"parquet:{criteo(tmp_path / 'a.tsv')}", "a.tsv cannot be read: "),
        (f"criteo:{tmp_path}", "is a directory, not a regular file"),
    ]:
        assert text in refused("--data", given, *out)
    (tmp_path / "empty.tsv").touch()
    assert "empty.tsv has no samples" in refused("--data", f"criteo:{tmp_path}/empty.tsv", *out)
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pq.read_table(tmp_path / "a.parquet", columns=["price"]), tmp_path / "prices.parquet")
    text = "prices.parquet has no samples, or no field of integers or strings"
    assert text in refused("--data", f"parquet:{tmp_path}/prices.parquet", *out)
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "out").touch()
    data = f"criteo:{criteo(tmp_path / 'a.tsv')}"
    text = f"{tmp_path}/out is a file; give a directory"
    assert text in refused("--data", data, "--out", tmp_path / "out")  # before the pass, not behind it


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["criteo", "parquet"])
def test_files_are_read_without_tensorflow(tmp_path, kind):
    path = criteo(tmp_path / "a") if kind == "criteo" else parquet(tmp_path / "a")
    code = "import sys; from het_tf.python.cli import main; status = main(['plan', *sys.argv[1:]]); "
    code += "sys.exit(status or 3 * ('tensorflow' in sys.modules))"
    words = [
        sys.executable,
        "-c",
        code,
        "profile",
        "--data",
        f"{kind}:{path}",
        "--out",
        str(tmp_path / "out"),
    ]
    subprocess.run(words, check=True, capture_output=True)
