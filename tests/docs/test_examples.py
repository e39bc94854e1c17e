"""The examples, as a user runs them: good runs on small data, and bad arguments."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = ["wide_deep", "train", "two_tower", "graphsage"]


def run(script: str, *arguments: object, tree: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    if tree:
        environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def succeed(script: str, *arguments: object, **options: bool) -> str:
    done = run(script, *arguments, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_auc(text: str) -> float:
    found = re.search(r"^test AUC (\d\.\d{4}), log loss (\d\.\d{4}) \(([\d,]+) rows", text, re.MULTILINE)
    assert found, text[-2000:]
    assert 0.0 < float(found[2]) < 1.5
    return float(found[1])


test_auc.__test__ = False  # type: ignore[attr-defined]


def fails(script: str, *arguments: object) -> str:
    """Returns the one line of an error; what TensorFlow logs by itself does not count."""
    done = run(script, *arguments)
    noise = re.compile(r"^(WARNING: All log messages|[IWE]\d{4} |\d{4}-\d\d-\d\d |To enable the following)")
    lines = [line for line in done.stderr.splitlines() if line and not noise.match(line)]
    assert done.returncode == 2, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"{script}.py: error: ")
    return lines[0]


@pytest.fixture(scope="module")
def tsv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file of Criteo's format; the label follows C1."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(2000):
        kind = rng.integers(0, 8)
        numbers = "\t".join(map(str, rng.integers(0, 50, 13)))
        others = "\t".join(f"{one:08x}" for one in rng.integers(0, 30, 25))
        lines.append(f"{kind % 2}\t{numbers}\t{kind:08x}\t{others}\n")
    path = tmp_path_factory.mktemp("criteo") / "train.txt"
    path.write_text("".join(lines))
    return path


# --- the command line -------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_reads_without_tensorflow(script: str, tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('help imports TensorFlow')")
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), "--help"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "--data" in done.stdout and "--epochs" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("wide_deep", ["--data", "censos"], "there is no data set 'censos'; give census, movielens"),
        ("wide_deep", ["--epochs", "0"], "--epochs: '0' is not a whole number of 1 or more"),
        ("wide_deep", ["--epochs", "2.5"], "'2.5' is not a whole number"),
        ("train", ["--batch-size", "-1"], "--batch-size: '-1' is not a whole number of 1 or more"),
        ("train", ["--embedding-dim", "70000"], "from 1 to 65536"),
        ("train", ["--learning-rate", "nan"], "'nan' is not a number of 0 or more"),
        ("train", ["--learning-rate", "inf"], "'inf' is not a number of 0 or more"),
        ("wide_deep", ["--optimizer", "lion"], "invalid choice: 'lion'"),
        ("wide_deep", ["--staleness", "-1"], "'-1' is not a whole number of 0 or more, or 'unbounded'"),
        ("wide_deep", ["--cache-rows", "many"], "'many' is not a whole number of 0 or more, or 'none'"),
        ("wide_deep", ["--hidden", "64,x"], "(as in 128,64)"),
        ("wide_deep", ["--dropout", "1"], "from 0 to 0.99"),
        ("train", ["--cross-rank", "0"], "--cross-rank: '0'"),
        ("train", ["--model", "bst"], "invalid choice: 'bst'"),
        ("two_tower", ["--k", "0"], "--k: '0' is not a whole number of 1 or more"),
        ("two_tower", ["--data", "census"], "invalid choice: 'census'"),
        ("train", ["--structure", "serial"], "invalid choice: 'serial'"),
        ("wide_deep", ["--cross-rank", "1"], "unrecognized arguments: --cross-rank 1"),
        ("graphsage", ["--data", "cora"], "there is no graph 'cora'; give pubmed, blogcatalog, debian"),
        ("graphsage", ["--fanouts", "25,0"], "'0' is not a whole number of 1 or more"),
    ],
)
def test_bad_arguments(script: str, arguments: list[str], message: str) -> None:
    assert message in fails(script, *arguments)


def test_command_line_has_all_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import arguments

    from het_tf.python.table import optimizers

    assert set(arguments.TABLE_OPTIMIZERS) == {one._name for one in optimizers._CLASSES}
    assert all(getattr(arguments.parse(arguments.parser(""), []), name) for name in ("epochs", "hidden"))


def test_exact_auc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from report import exact_auc

    rng = np.random.default_rng(0)
    score, label = rng.integers(0, 12, 200) / 7.0, rng.integers(0, 2, 200).astype(np.float32)
    pairs = [np.sign(a - b) for a in score[label == 1] for b in score[label == 0]]
    assert exact_auc(label, score) == pytest.approx((np.mean(pairs) + 1) / 2)
    assert np.isnan(exact_auc(np.ones(3), np.ones(3)))


# --- data that is missing or bad --------------------------------------------------------------------------


@pytest.mark.long
def test_data_that_is_not_there() -> None:
    message = "/there/is/none does not exist; give the path"  # more refusals: test_data_*.py
    assert message in fails("train", "--data", "criteo:/there/is/none")


# --- good runs --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wide_deep_on_census_without_an_installed_package() -> None:
    output = succeed("wide_deep", "--epochs", 1, tree=False)
    assert test_auc(output) > 0.89
    for part in ("val_auc", "wide_deep/deep", "wide_deep/wide", "found in the cache", "2,608"):
        assert part in output


@pytest.mark.long
def test_deepfm_on_movielens_without_a_cache() -> None:
    output = succeed(
        "train", "--data", "movielens", "--epochs", 1, "--cache-rows", "none", "--optimizer", "adam"
    )
    assert test_auc(output) > 0.6
    assert "deepfm/linear" in output and "found in the cache" not in output


@pytest.mark.long
def test_dcn_on_criteo_like_with_logs(tmp_path: Path) -> None:
    import tensorflow as tf

    arguments = ["--cross-rank", 4, "--structure", "stacked", "--staleness", "unbounded", "--cache-rows", 500]
    arguments += ["--log-dir", tmp_path / "runs" / "dcn"]
    output = succeed("train", "--model", "dcn", "--data", "criteo_like:5000", *arguments)
    assert test_auc(output) > 0.45
    tags = {}
    for run_dir in ("train", "validation", "tables"):
        (path,) = (tmp_path / "runs" / "dcn" / run_dir).iterdir()
        events = tf.compat.v1.train.summary_iterator(str(path))
        tags[run_dir] = {
            value.tag: tf.make_ndarray(value.tensor) for e in events for value in e.summary.value
        }
    assert {"epoch/loss", "epoch/auc"} <= set(tags["train"]) and "epoch/auc" in tags["validation"]
    assert tags["tables"]["dcn/deep/hit_rate"] > 0 and tags["tables"]["dcn/deep/rows"] > 1000


@pytest.mark.long
@pytest.mark.parametrize("model", ["dlrm", "xdeepfm", "autoint", "din"])
def test_other_rankers(model: str) -> None:
    data = "movielens" if model == "din" else "census"
    output = succeed("train", "--model", model, "--data", data, "--epochs", 1)
    assert test_auc(output) > (0.6 if model == "din" else 0.88)
    assert f"{model}/deep" in output


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "data", "labels"),
    [
        ("mmoe", "census", ["income above $50K", "never married"]),
        ("ple", "movielens", ["rated 4 or 5", "rated 5"]),
    ],
)
def test_models_of_two_labels(model: str, data: str, labels: list[str]) -> None:
    output = succeed("train", "--model", model, "--data", data, "--epochs", 1)
    found = re.findall(r"^test AUC (\S+), log loss \S+ \(.* rows; label: (.*)\)$", output, re.MULTILINE)
    assert [label for _, label in found] == labels
    assert all(float(auc) > 0.6 for auc, _ in found), output
    assert f"{model}/deep" in output


@pytest.mark.long
def test_two_towers_find_what_was_left_out(tmp_path: Path) -> None:
    arguments = ["--epochs", 1, "--negatives", 64, "--export", tmp_path / "1"]
    output = succeed("two_tower", *arguments)
    recall, by_chance = re.search(r"^recall@100 (\S+) .*; (\S+) by chance", output, re.MULTILINE).groups()
    assert float(recall) > 3 * float(by_chance)
    assert (tmp_path / "1" / "saved_model.pb").exists()
    output = succeed("two_tower", *arguments[:2], "--no-logq", "--k", 5)
    assert "recall@5 " in output and "SavedModel" not in output


@pytest.mark.long
def test_save_go_on_and_export(tmp_path: Path) -> None:
    import tensorflow as tf

    checkpoints, place = tmp_path / "runs", tmp_path / "models" / "1"
    arguments = ["--data", "criteo_like:3000", "--hidden", "8", "--checkpoint", checkpoints]
    output = succeed("wide_deep", *arguments, "--epochs", 2)
    (_, last) = sorted(path.name for path in checkpoints.iterdir())
    assert f"checkpoint: {checkpoints / last} (het ckpt inspect {checkpoints} shows it)" in output
    assert "goes on from" not in output and "SavedModel" not in output

    output = succeed("wide_deep", *arguments, "--epochs", 1, "--export", place)
    assert f"goes on from {checkpoints / last}" in output
    steps = int(last.removeprefix("ckpt-"))
    assert checkpoints / f"ckpt-{steps + steps // 2:08d}" in checkpoints.iterdir()
    assert f"SavedModel: {place} (saved_model_cli show --all --dir {place} shows it)" in output
    assert "serving_default" in tf.saved_model.load(str(place)).signatures

    assert f"--export: {place} exists" in fails("wide_deep", *arguments, "--export", place)
    assert "give the arguments with which it was saved" in fails("train", *arguments)
    assert "cannot be made" in fails("wide_deep", *arguments[:-1], place / "saved_model.pb")


@pytest.mark.long
def test_wide_deep_on_a_criteo_file(tsv: Path, tmp_path: Path) -> None:
    packed = tmp_path / "train.txt.gz"
    packed.write_bytes(gzip.compress(tsv.read_bytes()))
    arguments = ["--batch-size", 32, "--epochs", 5, "--hidden", "16", "--learning-rate", 0.2]
    assert test_auc(succeed("wide_deep", "--data", f"criteo:{packed}", *arguments)) > 0.95


@pytest.mark.long
def test_seeds_repeat() -> None:
    first, again, other = (
        test_auc(succeed("train", "--epochs", 1, "--batch-size", 512, "--seed", seed)) for seed in (1, 1, 2)
    )
    assert first == pytest.approx(again, abs=2e-4)
    assert other > 0.8


@pytest.mark.long
def test_compare_with_keras(tmp_path: Path) -> None:
    out = tmp_path / "new" / "compare.json"
    succeed(
        "../benchmarks/compare_with_keras/run", "--models", "dcn", "--seeds", 1, "--epochs", 1, "--out", out
    )
    document = json.loads(out.read_text())["census"]
    assert [one["side"] for one in document["runs"]] == [
        "het",
        "keras",
        "keras, own rows",
        "keras, as shipped",
    ]
    assert abs(document["summary"]["dcn"]["het_minus"]["keras"]) < 1e-4
    assert abs(document["summary"]["dcn"]["het_minus"]["keras, own rows"]) < 0.01
    assert all(one["test_auc"] > 0.85 for one in document["runs"])


@pytest.mark.long
def test_graphsage_by_links_and_classes(tmp_path: Path) -> None:
    import tensorflow as tf

    data = ["--data", "graph_like:10000", "--embedding-dim", 16, "--units", 16, "--batch-size", 128]

    def accuracy(*more: object, script: str = "graphsage") -> float:
        output = succeed(script, *data, *more)
        found = re.search(
            r"^test accuracy (0\.\d{4}) \(1,000 nodes; class: community\)", output, re.MULTILINE
        )
        assert found, output
        return float(found[1])

    place = tmp_path / "graphsage"
    het, keras = accuracy("--export", place), accuracy(script="../benchmarks/graph/twin")
    assert het > 0.8 and het == pytest.approx(keras, abs=0.01)
    assert "serving_default" in tf.saved_model.load(str(place)).signatures
    assert accuracy("--link-epochs", 4, "--epochs", 3) > 0.15  # chance is 1 in 16
    assert "NODES is 'many'" in fails("graphsage", "--data", "graph_like:many")
