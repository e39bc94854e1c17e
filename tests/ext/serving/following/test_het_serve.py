"""het serve: a served model follows training at a server, through restarts, and says what is wrong."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest
import redis_lib
from cli_lib import het
from followed_lib import IDS, Followed

import het_tf
from het_tf.ext.serving.python.following import target

pytestmark = redis_lib.MARKS


@pytest.fixture
def followed(server, tmp_path):
    return Followed(server, tmp_path)


def test_rows_and_dense_weights_follow_until_sigterm(followed):
    het("serve", "status", followed.path, status=1)
    assert followed.status(1)["age"] is None
    with followed.follower("--poll", 0.02) as process:
        followed.until(lambda: followed.says("up to date"))
        assert followed.served() == (1, 1)
        begin = time.time()
        followed.train(2.0)
        followed.until(lambda: followed.served()[0] == 2)
        assert followed.served() == (2, 1), "dense weights wait for a version"
        version = het_tf.publish(followed.model)
        followed.until(lambda: followed.served() == (2, 2))
        status = followed.status(0)
        assert status["pid"] == process.pid
        assert status["version"] == version.number == 1
        assert status["age"] is not None
        assert status["rows"] == [len(IDS)]
        assert status["trained_through"] >= begin
        text = het("serve", "status", followed.path, status=0).out
        assert f"process {process.pid}" in text and "300 s" in text
        for value in (3.0, 4.0, 5.0):
            followed.publish(value)
        followed.until(lambda: followed.says("version 4 is in force"))
        files = followed.path / "het_live" / "dense"
        followed.until(lambda: len(list(files.iterdir())) == 1)  # of the version in force
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    assert followed.says("ended")
    assert followed.status(1)["pid"] is None
    assert followed.served() == (5, 5)


def test_it_goes_on_after_kill_9_and_asks_only_for_changes(followed):
    with followed.follower():
        followed.until(lambda: followed.says("up to date"))
        followed.publish(2.0)
    followed.train(3.0)
    het_tf.publish(followed.model)
    assert followed.command("--once").wait(300) == 0
    assert followed.served() == (3, 3)
    assert followed.log.read_text().count("10 rows have come") >= 1
    assert followed.command("--once").wait(300) == 0
    assert followed.says("up to date: 0 rows have come")


def test_rows_grow_old_while_the_server_is_away(tmp_path, fresh):
    with redis_lib.running(tmp_path / "server", "--appendonly", "yes") as server:
        followed = Followed(server, tmp_path)
        with followed.follower("--poll", 0.02):
            followed.until(lambda: followed.says("up to date"))
            followed.publish(2.0)
            server.kill()
            followed.until(lambda: followed.says("grow old"))
            before = followed.status(0)["age"]
            time.sleep(0.5)
            assert followed.status(0)["age"] > before + 0.4
            assert followed.served() == (2, 2)
            server.start()
            followed.until(lambda: followed.says("up to date again"))
            with contextlib.suppress(ConnectionError):  # it finds out that the server is another one
                followed.train(3.0)
            followed.publish(3.0)
        assert followed.log.read_text().count("grow old") == 1, "one line a change"
        redis_lib.leave()


def test_rows_that_go_on_without_a_publisher_are_reported(server, tmp_path):
    followed = Followed(server, tmp_path, max_skew=0.1)
    assert followed.status(1)["skew"] is None
    with followed.follower("--poll", 0.02):
        het_tf.publish(followed.model)
        followed.until(lambda: followed.says("version 1 is in force"))
        followed.train(2.0)
        followed.until(lambda: followed.served() == (2, 1))
        time.sleep(0.2)
        followed.train(3.0)
        followed.until(lambda: followed.served() == (3, 1))
        followed.until(lambda: followed.says("newer than the dense weights"))
        status = followed.status(1)
        assert status["skew"] > status["max_skew"] == 0.1


def test_a_missing_right_is_named(followed):
    rights = redis_lib.rights()["het-follower"]
    followed.server.command("ACL", "SETUSER", "reader", *rights, "-get", "on", ">word")
    address = followed.server.address.replace("unix://", "unix://reader:word@")
    with followed.follower(HET_SERVE_PS=address):
        followed.until(lambda: followed.says("up to date"))
        het_tf.publish(followed.model)
        followed.until(lambda: followed.says("versions cannot be read"))
        assert followed.says("NOPERM") and followed.says("'get'")
        followed.server.command("ACL", "SETUSER", "reader", "+get")
        followed.until(lambda: followed.says("version 1 is in force"))
        followed.server.command("ACL", "SETUSER", "reader", "-het.changes")
        followed.until(lambda: followed.says("'het.changes'"))
    followed.server.command("ACL", "DELUSER", "reader")


def test_it_says_why_a_directory_cannot_be_followed(followed, tmp_path):
    done = het("serve", "follow", tmp_path, status=1)
    assert "follow.json" in done.err and "Native()" in done.err
    with pytest.raises(ValueError, match="damaged"):
        (followed.path / "assets" / "follow.json").write_text("{}")
        target.read(followed.path)
    het("serve", "follow", tmp_path, "--poll", 0, status=2)
