"""tf.distribute: two replicas learn what they learn with Keras' own layer; other strategies are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import replicas_worker
import tensorflow as tf
from played_lib import Played
from rules_lib import embedding, step

from het_tf.ext.workers.python.horovod_workers import Horovod
from het_tf.python.session import settings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def printed():
    """The output of the cases."""
    script = Path(replicas_worker.__file__)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{script.parents[2]}:{script.parent}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    return subprocess.run(
        [sys.executable, script, *replicas_worker.CASES], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("case", replicas_worker.CASES)
def test_two_replicas(case, printed):
    """The assertions of a case are in replicas_worker.py."""
    assert f"{case}: ok\n" in printed, printed[-6000:]


@pytest.mark.parametrize("name", ["TPUStrategy", "ParameterServerStrategy", "MultiWorkerMirroredStrategy"])
def test_strategies_of_several_hosts_are_refused_by_name(fresh, monkeypatch, name):
    kind = getattr(tf.distribute, name)
    layer = embedding()
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: object.__new__(kind))
    with pytest.raises(
        RuntimeError, match=rf"'other' is used under {name}, .* take tf\.distribute\.Mirrored"
    ):
        embedding(name="other")
    with pytest.raises(RuntimeError, match=f"'t' is used under {name}"):
        step(layer, [1], "eager")


def test_mirrored_strategy_across_hosts_is_refused(fresh, monkeypatch):
    class Mirrored(tf.distribute.MirroredStrategy):
        def __init__(self):
            pass

        extended = property(lambda self: self)
        worker_devices = ("/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0")
        num_replicas_in_sync = 2

    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", Mirrored)
    with pytest.raises(RuntimeError, match="devices of 2 hosts"):
        embedding()
    Mirrored.worker_devices = ("/device:CPU:0", "/device:CPU:1")
    embedding()
    monkeypatch.setattr(settings.current, "workers", Horovod(Played()))
    with pytest.raises(RuntimeError, match=r"2 replicas in a job of several ranks.*horovodrun"):
        embedding(name="other")
