"""het publish release, rollback and resume, with followers at a server."""

from __future__ import annotations

import os
import signal
import time

import redis_lib
from cli_lib import het
from followed_lib import Followed, make_model

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
    """Would catch rows that stop, and a follower that goes on by itself: after kill -9, too."""
    followed = Followed(server, tmp_path)
    with followed.follower("--poll", 0.02) as process:
        followed.until(lambda: followed.says("up to date"))
        for value in (2.0, 3.0, 4.0):
            followed.publish(value)
        publish("rollback", server.address, 1)
        followed.until(lambda: followed.served() == (4, 2))
        assert followed.says("go back to version 1, until `het publish resume`; rows go on")
        assert followed.status(0)["version"] == 1
        followed.train(5.0)
        het_tf.publish(followed.model)
        followed.until(lambda: followed.served() == (5, 2))
        os.kill(process.pid, signal.SIGKILL)
    with followed.follower("--poll", 0.02):
        followed.train(6.0)
        followed.until(lambda: followed.served() == (6, 2))
        publish("rollback", server.address, 3)
        followed.until(lambda: followed.served() == (6, 4))
        publish("resume", server.address)
        followed.until(lambda: followed.served() == (6, 5))
        followed.until(lambda: followed.says("version 4 is in force"))


def test_a_follower_that_cannot_go_back_says_so(server, tmp_path):
    """Would catch weights of another model that a rollback puts in force, and versions that pass it."""
    followed = Followed(server, tmp_path)
    with followed.follower("--poll", 0.02):
        followed.until(lambda: followed.says("up to date"))
        het_tf.publish(make_model(units=7))
        followed.until(lambda: followed.says("version 1 is refused"))
        assert followed.says("names, shapes or types") and followed.served() == (1, 1)
        followed.publish(2.0)
        publish("rollback", server.address, 1)
        followed.until(lambda: followed.says("cannot go back to version 1"))
        followed.train(3.0)
        het_tf.publish(followed.model)
        followed.until(lambda: followed.served() == (3, 2))
        time.sleep(0.6)
        assert followed.served() == (3, 2)
        publish("resume", server.address)
        followed.until(lambda: followed.served() == (3, 3))
