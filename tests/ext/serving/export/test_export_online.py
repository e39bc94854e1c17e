"""The online export: a SavedModel that reads the live tables of a parameter server."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from rules_lib import learn

import het_tf
from het_tf.python.session import reporting

pytestmark = [
    pytest.mark.slow,
    redis_lib.SERVER,
    pytest.mark.usefixtures("fresh"),
    pytest.mark.filterwarnings("error::het_tf.python.table.notes.TablesNotSavedWarning"),
]

keras = tf.keras
IDS = np.arange(-8, 8)


def connected(server: Any, **options: Any) -> Any:
    het_tf.init(ps=het_tf.Store(server.address, **options))
    return server


def make_model(name: str = "item", dim: int = 3) -> Any:
    """Rows of one feature of one id, and the mean of a padded one."""
    table = het_tf.TableConfig(name, dim, het_tf.optimizers.SGD(1.0))
    features = {
        "id": het_tf.FeatureConfig(table),
        "past": het_tf.FeatureConfig(table, combiner="mean", padding_id=-1),
    }
    inputs = {
        "id": keras.Input((), dtype="int64", name="id"),
        "past": keras.Input((3,), dtype="int64", name="past"),
    }
    rows = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(staleness=0))(inputs)
    return keras.Model(inputs, {"id": rows["id"] * 1.0, "past": rows["past"] * 1.0})


def step(model: Any, ids: Any = IDS) -> None:
    """One tick of each row, by a whole number, sent at once."""
    ids = tf.constant(ids, tf.int64)
    inputs = {"id": ids, "past": tf.fill([len(ids), 3], tf.constant(-1, tf.int64))}
    learn(model, lambda: model(inputs, training=True)["id"])


def batch() -> dict[str, Any]:
    past = np.stack([IDS, IDS[::-1], np.full(len(IDS), -1)], 1)
    return {"id": tf.constant(IDS, tf.int64), "past": tf.constant(past, tf.int64)}


def answer(loaded: Any) -> dict[str, np.ndarray]:
    out = loaded.signatures["serving_default"](**batch())
    return {name: value.numpy() for name, value in out.items()}


def wanted(model: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model(batch(), training=False).items()}


def assert_equal(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)


def stats(namespace: str = "") -> dict[str, Any]:
    (found,) = [one for one in het_tf.serving.stats()["online"] if one["namespace"] == namespace]
    return found


def test_predictions_follow_training(server: Any, tmp_path: Path) -> None:
    connected(server)
    model = make_model()
    het_tf.export(model, tmp_path / "m", het_tf.serving.Online(pull_bound=0), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    for _ in range(3):
        assert_equal(answer(loaded), wanted(model))  # untrained rows, too
        step(model)
    assert_equal(answer(loaded), wanted(model))
    assert stats()["refreshed"] > 0
    before = stats()
    assert_equal(answer(loaded), wanted(model))
    after = stats()
    assert after["refreshed"] == before["refreshed"] and after["fetched"] == before["fetched"]
    assert after["confirmed"] == before["confirmed"] + len(IDS)


@pytest.mark.long
def test_two_namespaces(server: Any, tmp_path: Path) -> None:
    connected(server)
    models, loaded = {}, {}
    for name in ("one", "two"):
        with het_tf.namespace(name):
            models[name] = make_model()
        het_tf.export(models[name], tmp_path / name, het_tf.serving.Online(pull_bound=0), verbose=False)
        loaded[name] = tf.saved_model.load(str(tmp_path / name))
    for steps, model in enumerate(models.values(), 1):
        for _ in range(steps):
            step(model)
    for name, model in models.items():
        assert_equal(answer(loaded[name]), wanted(model))
    assert not np.array_equal(answer(loaded["one"])["id"], answer(loaded["two"])["id"])
    for name in models:
        het_tf.reset(name)


SERVE = """
import json, sys
import numpy as np
import tensorflow as tf
import het_tf.keras
loaded = tf.saved_model.load(sys.argv[1])
for line in sys.stdin:
    ids = np.array(json.loads(line))
    past = np.stack([ids, ids[::-1], np.full(len(ids), -1)], 1)
    try:
        out = loaded.signatures["serving_default"](id=tf.constant(ids), past=tf.constant(past))
        print(json.dumps({name: value.numpy().tolist() for name, value in out.items()}), flush=True)
    except tf.errors.OpError as error:
        print(json.dumps({"error": type(error).__name__, "message": error.message}), flush=True)
"""


class Serving:
    """A process that serves an export: one line of ids in, one line of outputs back."""

    def __init__(self, path: Path, **environment: str) -> None:
        source = str(Path(het_tf.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source, **environment},
        )

    def ask(self, ids: Any = IDS) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(np.asarray(ids).tolist()) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()[-2000:]
        said = json.loads(line)
        return said if "error" in said else {name: np.float32(rows) for name, rows in said.items()}

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: Any) -> None:
        self.errors = self.process.communicate(timeout=600)[1]
        self.process.stdout.close()


def test_a_fresh_process_may_only_read(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no more than the rights that the manual names, and makes nothing at the server."""
    connected(server, deadline=3.0)
    model = make_model()
    step(model)
    het_tf.export(model, tmp_path / "m", het_tf.serving.Online(pull_bound=0), verbose=False)
    rights = redis_lib.rights()["het-serving"]
    assert server.command("ACL", "SETUSER", "reader", "on", ">secret", *rights).startswith(b"+OK")
    address = server.address.replace("unix://", "unix://reader:secret@")
    try:
        with Serving(tmp_path / "m", HET_SERVE_PS=address) as serving:
            assert_equal(serving.ask(), wanted(model))
            step(model)
            assert_equal(serving.ask(), wanted(model))
            assert server.command("FLUSHALL").startswith(b"+OK")
            assert "DeadlineExceededError" in serving.ask()["error"]
        reporting.stop()  # this process trains, and leaves reports
        assert server.command("DBSIZE") == b":0\r\n"
        for other, error, message in (
            (address, tf.errors.FailedPreconditionError, "no namespace ''"),
            (f"unix://{tmp_path}/none.sock", tf.errors.DeadlineExceededError, r"none\.sock"),
            (address.replace("secret", "guess"), tf.errors.DeadlineExceededError, "WRONGPASS"),
        ):
            monkeypatch.setenv("HET_SERVE_PS", other)
            with pytest.raises(error, match=message):
                answer(tf.saved_model.load(str(tmp_path / "m")))
        assert server.command("DBSIZE") == b":0\r\n"
    finally:
        assert server.command("ACL", "DELUSER", "reader").startswith(b":1")
        with contextlib.suppress(Exception):
            het_tf.reset()


def test_tables_that_are_not_there(server: Any, tmp_path: Path) -> None:
    connected(server)
    model = make_model()
    other = make_model("other")
    step(other)
    het_tf.export(model, tmp_path / "m", het_tf.serving.Online(pull_bound=0), verbose=False)
    het_tf.Table("item").drop()
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=r"no table 'item'.*'other'.*never makes a table"
    ):
        answer(loaded)
    del model
    with pytest.raises(RuntimeError, match="no table 'item'"):
        het_tf.export(make_gone("item"), tmp_path / "n", het_tf.serving.Online(pull_bound=0), verbose=False)
    assert not (tmp_path / "n").exists()


def make_gone(name: str) -> Any:
    """A model whose table was dropped."""
    model = make_model(name)
    het_tf.Table(name).drop()
    return model


def test_a_server_that_goes_and_comes_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with redis_lib.running(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always") as server:
        connected(server)
        model = make_model()
        step(model)
        format = het_tf.serving.Online(pull_bound=0, deadline=2)
        het_tf.export(model, tmp_path / "strict", format, verbose=False)
        het_tf.export(model, tmp_path / "lenient", dataclasses.replace(format, stale_ok=True), verbose=False)
        strict, lenient = (tf.saved_model.load(str(tmp_path / name)) for name in ("strict", "lenient"))
        first = wanted(model)
        assert_equal(answer(strict), first)
        assert_equal(answer(lenient), first)
        server.kill()
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"redis\.sock(.|\n)*stale_ok"):
            answer(strict)
        assert "rows are served that may be older" not in capfd.readouterr().err
        assert_equal(answer(lenient), first)
        assert "rows are served that may be older" in capfd.readouterr().err
        with pytest.raises(tf.errors.DeadlineExceededError, match="never read"):
            lenient.signatures["serving_default"](
                id=tf.constant([1000], tf.int64), past=tf.constant([[5, -1, -1]], tf.int64)
            )
        server.start()
        step(model)
        assert_equal(answer(strict), wanted(model))
        until = time.monotonic() + 300
        while not np.array_equal(answer(lenient)["id"], wanted(model)["id"]):
            assert time.monotonic() < until, "the lenient one has not come back"
            time.sleep(0.1)  # it does not contact the server again for its deadline


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "one of max_lag .* and pull_bound"),
        ({"max_lag": 1.0, "pull_bound": 1}, "one of max_lag .* and pull_bound"),
        ({"max_lag": -1}, "max_lag is -1"),
        ({"pull_bound": -1}, "pull_bound is -1"),
        ({"pull_bound": 0.5}, "pull_bound is 0.5"),
        ({"pull_bound": 0, "cache_rows": -1}, "cache_rows is -1"),
        ({"pull_bound": 0, "deadline": 0}, "deadline is 0"),
        ({"pull_bound": 0, "connections": 0}, "connections is 0"),
        ({"pull_bound": 0, "stale_ok": "yes"}, "stale_ok is"),
        ({"pull_bound": 0, "ps": 6379}, "ps is 6379"),
        ({"pull_bound": 0, "ps": "nonsense"}, "nonsense"),
        ({"pull_bound": 0, "ps": "redis://me:secret@localhost"}, "password.*HET_SERVE_PS"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, server: Any, tmp_path: Path) -> None:
    connected(server)
    model = make_model()
    with pytest.raises(ValueError, match=message):
        het_tf.export(model, tmp_path / "m", het_tf.serving.Online(**options), verbose=False)
    assert not (tmp_path / "m").exists()


def test_tables_in_this_process_are_not_online(tmp_path: Path) -> None:
    model = make_model()
    with pytest.raises(ValueError, match="there is none; give Online"):
        het_tf.export(model, tmp_path / "m", het_tf.serving.Online(pull_bound=0), verbose=False)
