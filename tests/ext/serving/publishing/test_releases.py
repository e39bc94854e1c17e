"""het publish release, rollback and resume, with followers at a server."""

from __future__ import annotations

import os
import signal
import time

import redis_lib
from cli_lib import het
from followed_lib import Followed

import het_tf

pytestmark = redis_lib.MARKS


def publish(*words, status=0):
    return het("publish", *words, status=status)


def test_followers_wait_for_the_release_of_a_candidate(server, tmp_path):
    """Would catch followers that serve candidates."""
    followed = Followed(server, tmp_path)
    with followed.follower("--poll", 0.02):
        followed.until(lambda: followed.says("up to date"))
        followed.publish(2.0)
        followed.train(4.0)
        version = het_tf.publish(followed.model, release=False)
        followed.until(lambda: followed.served() == (4, 2))  # rows go on, dense weights do not
        assert not followed.says(f"version {version.number} is in force")
        publish("release", server.address, version.number)
        followed.until(lambda: followed.served() == (4, 4))


def test_followers_go_back_and_on(server, tmp_path):
    """Would catch rows that stay, and a follower that goes on by itself: after kill -9, too."""
    followed = Followed(server, tmp_path)
    with followed.follower("--poll", 0.02) as process:
        followed.until(lambda: followed.says("up to date"))
        for value in (2.0, 3.0, 4.0):
            followed.publish(value)
        publish("rollback", server.address, 1)
        followed.until(lambda: followed.served() == (2, 2))
        assert followed.says("go back to version 1, until `het publish resume`")
        assert followed.status(0)["rolled_back"] == 1
        assert "to version 1" in het("serve", "status", followed.path, status=0).out
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
        followed.publish(2.0)
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
