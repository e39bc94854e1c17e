"""Smaller rows, filters of rows; check; exports of several processes."""

import json
import time

import export_lib as lib
import numpy as np
import pytest
import tensorflow as tf
from rules_lib import keras, learn

import het_tf
from het_tf.ext.serving.python.export import check, front
from het_tf.serving import Portable

ROWS = ("float32", "float16", "bfloat16", "int8")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh", "eagerly")]


@pytest.mark.parametrize("rows", ROWS)
def test_rows_are_those_of_numpy(rows, rng, tmp_path):
    """In both formats, to the last bit."""
    model = lib.one_table(16)
    ids = np.arange(1000)
    values = lib.fill("item", ids, rng) * np.float32(10) ** rng.integers(-4, 4, (1000, 1)).astype(np.float32)
    values[7] = 0
    values[8, 3] = 1e4
    het_tf.Table("item").assign(ids, values)
    of_row = {"float32": 64, "float16": 32, "bfloat16": 32, "int8": 20}[rows]
    answers = []
    for format in (Portable, het_tf.serving.Native):
        path = tmp_path / format.__name__
        result = het_tf.export(model, path, format(row_dtype=rows), verbose=False)
        got = lib.serve(path)(ids=np.concatenate([ids, [5000]]))["ids"]
        if rows == "int8":
            scale = np.abs(values).max(1, keepdims=True) / np.float32(127)
            assert (np.abs(got[:-1] - values) <= scale / 2 * 1.00001).all()
            assert (got[7] == 0).all() and np.isfinite(got).all()
            assert len(np.unique(got[3])) > 8  # not all rounded to one number
        else:
            kind = tf.as_dtype(rows).as_numpy_dtype
            np.testing.assert_array_equal(got[:-1], values.astype(kind).astype(np.float32))
        # An unknown id's row is not stored, and not rounded.
        np.testing.assert_array_equal(got[-1], het_tf.Table("item").lookup([5000])[0])
        assert [table.bytes for table in result.tables] == [1000 * of_row]
        answers.append(got)
    np.testing.assert_array_equal(*answers)
    disk = sum(file.stat().st_size for file in (tmp_path / "Portable" / "variables").iterdir())
    assert 1000 * of_row <= disk <= 1000 * (of_row * 1.07 + 10) + 10_000


def test_constants_of_unknown_ids_in_every_type(tmp_path):
    model = lib.one_table(16, initializer=het_tf.initializers.Constant(0.1))
    for rows in ROWS:
        het_tf.export(model, tmp_path / rows, Portable(row_dtype=rows), verbose=False)
        got = lib.serve(tmp_path / rows)(ids=np.array([3]))["ids"]
        np.testing.assert_allclose(got, np.float32(0.1), rtol=0 if rows == "float32" else 1e-2)


def test_rows_of_few_updates_are_left_out(rng, tmp_path, capsys):
    model = lib.one_table(2)
    layer = model.get_layer("tables")
    for ids in ([1, 2, 3], [1, 2], [1]):  # 3, 2 and 1 updates
        inputs = {"ids": tf.constant(ids, tf.int64)}
        learn(layer, lambda: tf.reduce_sum(layer(inputs, training=True)["ids"]))  # noqa: B023
    live = het_tf.Table("item")
    result = het_tf.export(model, tmp_path / "1", Portable(min_count=2))
    assert "2 rows of 2" in capsys.readouterr().out
    (summary,) = result.tables
    assert (summary.rows, summary.dropped, summary.bytes) == (2, 1, 16)
    assert "1 rows left out" in str(result)
    got = lib.serve(tmp_path / "1")(ids=np.array([1, 2, 3]))["ids"]
    np.testing.assert_array_equal(got[:2], live.lookup([1, 2]))
    live.remove([3])  # its initial row again
    np.testing.assert_array_equal(got[2], live.lookup([3])[0])
    everything = het_tf.export(model, tmp_path / "2", Portable(min_count=4), verbose=False)
    assert everything.tables[0].rows == 0


def test_rows_of_long_ago_are_left_out(rng, tmp_path, monkeypatch):
    model = lib.one_table(2)
    lib.fill("item", [1, 2, 3], rng)
    format = Portable(max_age=600)
    assert het_tf.export(model, tmp_path / "1", format, verbose=False).tables[0].dropped == 0
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 1000)
    summary = het_tf.export(model, tmp_path / "2", format, verbose=False).tables[0]
    assert (summary.rows, summary.dropped) == (0, 3)


def test_check_export(rng, tmp_path, capsys, monkeypatch):
    model = lib.trained(rng, cache=het_tf.Cache(rows=4, wire="int8"))
    for name, format in {"a": Portable(), "b": het_tf.serving.Native(row_dtype="int8")}.items():
        het_tf.export(model, tmp_path / name, format, verbose=False)  # a process each
    sample = lib.tensors(lib.toy_batch(rng, 50))
    ask, answers = check._ask, []
    monkeypatch.setattr(check, "_ask", lambda *given: answers.append(ask(*given)) or answers[-1])
    checks = het_tf.serving.check(tmp_path, sample, model)
    assert [(one.format, one.row_dtype) for one in checks] == [("portable", "float32"), ("native", "int8")]
    assert checks[0].difference <= 1e-6 < checks[1].difference < 0.1
    said = capsys.readouterr().out
    assert "max difference" in said
    assert said.endswith("\nRight: every answer is that of the live model, within the tolerance.\n")
    lib.fill("toy/deep", np.arange(5), rng)  # trained on: the export is of before
    monkeypatch.setattr(check, "_ask", lambda *_: answers[0])  # what it would answer again
    with pytest.raises(RuntimeError, match="NOT RIGHT"):
        het_tf.serving.check(tmp_path / "a", sample, model, verbose=False)


@pytest.mark.long
def test_check_export_without_a_model(rng, tmp_path):
    words = keras.Input((2,), dtype="string", name="words")
    config = het_tf.TableConfig("word", 3)
    model = lib.embedding_model({"words": het_tf.FeatureConfig(config, "sum")}, {"words": words})
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        het_tf.export(model, path, verbose=False)
    sample = {"words": np.array([["cat", "dog"], ["", "näme"]])}
    assert [check.difference for check in het_tf.serving.check(paths, sample)] == [0, 0]
    (paths[1] / "saved_model.pb").write_bytes(b"damaged")
    with pytest.raises(RuntimeError, match=r"does not load or does not answer in a separate process:\n\w+: "):
        het_tf.serving.check(paths, sample, verbose=False)


def test_check_export_refuses(tmp_path):
    model, path = lib.one_table(), tmp_path / "1"
    het_tf.export(model, path, verbose=False)
    for arguments, error, message in (
        ((tmp_path / "2", {"ids": [1]}, model), FileNotFoundError, "not a SavedModel"),
        ((path, {"ids": np.array([1])}), ValueError, "no model to compare"),
        ((path, tf.data.Dataset.range(3), model), ValueError, "one batch of inputs"),
        (([], {"ids": np.array([1])}, model), ValueError, "path is empty"),
    ):
        with pytest.raises(error, match=message):
            het_tf.serving.check(*arguments)


def test_the_record_says_what_an_export_is(rng, tmp_path):
    model = lib.one_table(16)
    lib.fill("item", [1], rng)
    het_tf.export(model, tmp_path / "1", Portable(row_dtype="float16", unknown="zeros"), verbose=False)
    record = json.loads((tmp_path / "1" / front.RECORD).read_text())
    assert (record["format"], record["row_dtype"], record["unknown"]) == ("portable", "float16", "zeros")
    table = {"name": "item", "namespace": "", "dim": 16, "rows": 1, "dropped": 0, "bytes": 32}
    assert record["tables"] == [table]
