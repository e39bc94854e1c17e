"""het-publish guard, rollback and resume, with followers at a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import redis_lib
from cli_lib import run
from followed_lib import Followed

import het_tf
from het_tf.python.following import cli as serve
from het_tf.python.releasing import cli
from het_tf.python.session.native import KERAS_3

pytestmark = [
    *redis_lib.MARKS,
    pytest.mark.skipif(not KERAS_3, reason="an export that follows needs Keras 3"),
]


def publish(*words, status=0):
    return run("het-publish", cli.main, words, status)


def test_a_guard_releases_what_passes_and_holds_what_does_not(server, tmp_path):
    """Would catch followers that serve candidates, and a test with rows or weights of another version."""
    followed = Followed(server, tmp_path, units=1)
    np.savez(tmp_path / "sample.npz", id=np.arange(8), label=np.full(8, 14.0))  # 3 * 2 * 2 + 2
    words = ["guard", followed.path, "--ps", server.address, "--sample", tmp_path / "sample.npz"]
    words += ["--hold-if", "mse > 1"]
    code = "import sys; from het_tf.python.releasing.cli import main; sys.exit(main())"
    with followed.follower("--poll", 0.02):
        followed.until(lambda: followed.says("up to date"))
        log = followed.log.open("a")
        arguments = [sys.executable, "-c", code, *map(str, words), "--output", "y"]
        guard = subprocess.Popen(arguments, stderr=log)
        try:
            followed.train(3.0)
            het_tf.publish(followed.model, release=False)
            followed.until(lambda: followed.says("version 1 is held: mse 256 of 8 examples; hold if mse > 1"))
            followed.train(2.0)
            het_tf.publish(followed.model, release=False)
            followed.until(lambda: followed.says("version 2 is released: mse 0"))
            followed.until(lambda: followed.served() == (2, 2))
            followed.train(4.0)
            het_tf.publish(followed.model, release=False)
            followed.until(lambda: followed.says("version 3 is held"))
            time.sleep(0.5)
            assert followed.served() == (4, 2), "rows go on, dense weights do not"
            publish("release", server.address, 3)
            followed.until(lambda: followed.served() == (4, 4))
            guard.send_signal(signal.SIGTERM)
            assert guard.wait(300) == 0
        finally:
            guard.kill()
            guard.wait()
    assert not followed.says("version 1 is in force")
    # The rows of the guard are its own; it continues with them.
    followed.train(2.0)
    het_tf.publish(followed.model, release=False)
    done = subprocess.run([*arguments, "--once"], stderr=subprocess.PIPE, text=True, check=True)
    assert "version 4 is released" in done.stderr


def test_a_guard_says_what_is_wrong_at_once(server, tmp_path):
    followed = Followed(server, tmp_path, units=1)
    np.savez(tmp_path / "sample.npz", uid=np.arange(8), label=np.arange(8) % 2)
    words = ["guard", followed.path, "--sample", tmp_path / "sample.npz", "--hold-if", "auc < 0.5"]
    assert "name one by --output" in publish(*words, status=1).err
    assert "has no output 'z', only row, y" in publish(*words, "--output", "z", status=1).err
    assert "lacks the model's input 'id'" in publish(*words, "--output", "y", status=1).err
    assert "has the metric 'f1'" in publish(*words, "--hold-if", "f1 < 1", status=2).err
    assert "can be followed" in publish("guard", tmp_path, *words[2:], status=1).err


def test_followers_go_back_and_on(server, tmp_path):
    """Would catch rows that stay, and a follower that goes on by itself: after kill -9, too."""
    followed = Followed(server, tmp_path)
    with followed.follower("--poll", 0.02) as process:
        followed.until(lambda: followed.says("up to date"))
        for value in (2.0, 3.0, 4.0):
            followed.train(value)
            het_tf.publish(followed.model)
            followed.until(lambda value=value: followed.served() == (value, value))
        publish("rollback", server.address, 1)
        followed.until(lambda: followed.served() == (2, 2))
        assert followed.says("go back to version 1, until `het-publish resume`")
        assert followed.status(0)["rolled_back"] == 1
        assert "to version 1" in run("het-serve", serve.main, ("status", followed.path), 0).out
        followed.train(5.0)
        het_tf.publish(followed.model)
        time.sleep(0.6)
        assert followed.served() == (2, 2)
        os.kill(process.pid, signal.SIGKILL)
    with followed.follower("--poll", 0.02):
        time.sleep(1.0)
        assert followed.served() == (2, 2)
        publish("resume", server.address)
        followed.until(lambda: followed.served() == (5, 5))
        followed.until(lambda: followed.says("version 4 is in force"))
        publish("rollback", server.address, 3, "--partial")
        followed.until(lambda: followed.served() == (5, 4))
        followed.train(6.0)
        followed.until(lambda: followed.served() == (6, 4))
        publish("resume", server.address)
        het_tf.publish(followed.model)
        followed.until(lambda: followed.served() == (6, 6))


def test_a_follower_without_the_rows_refuses(server, tmp_path):
    """Would catch a host that is new, or keeps no journals, and serves the bad version."""
    followed = Followed(server, tmp_path)
    with followed.follower("--poll", 0.02, "--keep-undo", 0):
        followed.until(lambda: followed.says("up to date"))
        followed.train(2.0)
        het_tf.publish(followed.model)
        followed.until(lambda: followed.served() == (2, 2))
        publish("rollback", server.address, 1)
        followed.until(lambda: followed.says("cannot go back to version 1"))
        assert followed.says("it can go back to no version") and followed.says("--partial")
        followed.train(3.0)
        het_tf.publish(followed.model)
        followed.until(lambda: followed.served() == (3, 2))
        time.sleep(0.6)
        assert followed.served() == (3, 2)
        publish("resume", server.address)
        followed.until(lambda: followed.served() == (3, 3))
