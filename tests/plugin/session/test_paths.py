"""Paths on other storage are refused by all that reads or writes, and nothing is made in their place."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import het_tf
from het_tf import callbacks, checkpoint
from het_tf.ext.checkpoint.python import manifest
from het_tf.ext.monitor.python import log_dir
from het_tf.ext.serving.python.export.check import check
from het_tf.ext.sizing.python.stats import Stats
from het_tf.inputs import Graph
from het_tf.python import cli, files

pytestmark = pytest.mark.usefixtures("fresh")

_STORAGE = ["gs://bucket/x", "s3://bucket/x", "hdfs://h/x", "https://h/x", "file:///x", Path("gs://b/x")]
_CALLS = {
    "save": checkpoint.save,
    "since": lambda path: checkpoint.save("here", since=path),
    "restore": checkpoint.restore,
    "verify": checkpoint.verify,
    "checkpoints": checkpoint.checkpoints,
    "latest": checkpoint.latest,
    "read_manifest": manifest.read_manifest,
    "Checkpoint": callbacks.Checkpoint,
    "RestoreBest": lambda path: callbacks.RestoreBest(directory=path),
    "Publish": lambda path: callbacks.Publish(directory=path),
    "Progressive": lambda path: callbacks.ProgressiveEvaluation([tf.keras.metrics.AUC()], path=path),
    "check": lambda path: check(path, None, {}),
    "Stats": Stats.load,
    "Graph": Graph.open,
    "from_edges": lambda path: Graph.from_edges(path, np.zeros((1, 2), np.int64)),
}
_COMMANDS = {
    "ckpt": ("ckpt", "verify", "{}"),
    "plan": ("plan", "show", "{}"),
    "plan profile": ("plan", "profile", "--data", "a:b", "--out", "{}"),
    "ps": ("ps", "up", "--dir", "{}"),
    "serve": ("serve", "follow", "{}"),
}


REFUSED = r"files of this machine and its mounts|give the path without 'file://'"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
@pytest.mark.parametrize("path", _STORAGE, ids=str)
def test_a_call_refuses_other_storage(call, path):
    with pytest.raises(ValueError, match=REFUSED):
        call(path)


@pytest.mark.parametrize("command", _COMMANDS.values(), ids=_COMMANDS)
def test_a_command_refuses_other_storage(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([one.format("gs://bucket/x") for one in command])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "'gs://bucket/x', and het_tf reads and writes only files of this machine" in said


def test_an_export_refuses_other_storage():
    ids = tf.keras.Input((2,), dtype="int64")
    model = tf.keras.Model(ids, het_tf.keras.Embedding(4, combiner="sum")(ids))
    for path in _STORAGE:
        with pytest.raises(ValueError, match=r"path is '.*'.*(mounts|without 'file://')"):
            het_tf.export(model, path)


def test_files_of_keras_and_tensorboard_go_where_tensorflow_can_write():
    for path in ("nowhere://bucket/m.keras", "nowhere://b/m.weights.h5"):
        with pytest.raises(ValueError, match=r"filepath is 'nowhere.*; give another storage"):
            callbacks.Checkpoint(path)
    with pytest.raises(ValueError, match=r"nowhere.*cannot be written"):
        log_dir.made("nowhere://bucket/logs", "TableStats")
    with pytest.raises(ValueError, match=r"files of this machine"):
        log_dir.made(Path("gs://bucket/logs"), "TableStats")
    callbacks.Checkpoint("ram://m.keras")


def test_what_is_a_path(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert files.local_path("path", "~/a") == Path("/home/me/a")
    assert files.local_path("path", "a:b/c") == Path("a:b/c")
    assert files.local_path("path", Path("/a//b")) == Path("/a/b")
    for wrong in (None, 5, b"a"):
        with pytest.raises(TypeError, match=r"path is .*; give a path"):
            files.local_path("path", wrong)
    with pytest.raises(ValueError, match=r"path is ''; give a path"):
        files.local_path("path", "")
