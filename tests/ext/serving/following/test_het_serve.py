"""het serve: a served model follows training at a server, through restarts and decisions.

Random runs, and faults of every kind, are the matter of follower_random_test.cc and served_faults_test.cc.
"""

import contextlib
import os
import signal
import time

import pytest
import redis_lib
from cli_lib import het
from followed_lib import IDS, Followed, make_model

import het_tf
from het_tf.ext.serving.python.following import target

pytestmark = redis_lib.MARKS


def test_rows_and_dense_weights_follow(fresh, tmp_path):
    """Would catch followers that serve candidates, or weights of another model; a rollback that stops rows,
    or that versions pass, or that is forgotten after kill -9.
    """
    with redis_lib.running(tmp_path / "server", "--appendonly", "yes") as server:
        followed = Followed(server, tmp_path)

        def publish(*words):
            het("publish", words[0], server.address, *words[1:])

        def serves(row, weight):
            followed.until(lambda: followed.served() == (row, weight))

        het("serve", "status", followed.path, status=1)
        assert followed.status(1)["age"] is None
        with followed.follower("--poll", 0.02) as process:
            followed.until(lambda: followed.says("up to date"))
            assert followed.served() == (1, 1)
            begin = time.time()
            followed.train(2.0)
            serves(2, 1)  # dense weights wait for a version
            assert het_tf.publish(followed.model).number == 1
            serves(2, 2)
            status = followed.status(0)
            assert (status["pid"], status["version"], status["rows"]) == (process.pid, 1, [len(IDS)])
            assert status["age"] is not None and status["trained_through"] >= begin
            text = het("serve", "status", followed.path, status=0).out
            assert f"process {process.pid}" in text and "300 s" in text

            followed.train(3.0)
            het_tf.publish(followed.model, release=False)
            serves(3, 2)
            assert not followed.says("version 2 is in force")
            publish("release", 2)
            serves(3, 3)
            het_tf.publish(make_model(units=7))
            followed.until(lambda: followed.says("version 3 is refused"))
            assert followed.says("names, shapes or types") and followed.served() == (3, 3)
            followed.publish(4.0)
            followed.until(lambda: followed.says("version 4 is in force"))
            files = followed.path / "het_live" / "dense"
            followed.until(lambda: len(list(files.iterdir())) == 1)  # of the version in force

            publish("rollback", 3)
            followed.until(lambda: followed.says("cannot go back to version 3"))
            followed.train(5.0)
            het_tf.publish(followed.model)
            serves(5, 4)
            time.sleep(0.6)
            assert followed.served() == (5, 4)
            publish("rollback", 1)
            serves(5, 2)
            assert followed.says("go back to version 1, until `het publish resume`; rows go on")
            assert followed.status(0)["version"] == 1
            os.kill(process.pid, signal.SIGKILL)
        with followed.follower("--poll", 0.02) as process:
            followed.train(6.0)
            serves(6, 2)
            publish("rollback", 2)
            serves(6, 3)
            publish("resume")
            serves(6, 5)
            server.kill()
            followed.until(lambda: followed.says("grow old"))
            before = followed.status(0)["age"]
            time.sleep(0.5)
            assert followed.status(0)["age"] > before + 0.4 and followed.served() == (6, 5)
            server.start()
            followed.until(lambda: followed.says("up to date again"))
            with contextlib.suppress(ConnectionError):  # it finds out that the server is another one
                followed.train(7.0)
            followed.publish(7.0)
            assert followed.log.read_text().count("grow old") == 1, "one line a change"
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0 and followed.says("ended")
        assert followed.status(1)["pid"] is None and followed.served() == (7, 7)
        followed.train(8.0)
        het_tf.publish(followed.model)
        for _ in range(2):
            assert followed.command("--once").wait(300) == 0 and followed.served() == (8, 8)
        assert followed.says("up to date: 0 rows have come"), "it asks only for changes"


def test_rows_that_go_on_without_a_publisher_are_reported(server, tmp_path):
    followed = Followed(server, tmp_path, max_skew=0.1)
    assert followed.status(1)["skew"] is None
    with followed.follower("--poll", 0.02):
        het_tf.publish(followed.model)
        followed.until(lambda: followed.says("version 1 is in force"))
        for value in (2.0, 3.0):
            followed.train(value)
            followed.until(lambda value=value: followed.served() == (value, 1))
            time.sleep(0.2)
        followed.until(lambda: followed.says("newer than the dense weights"))
        status = followed.status(1)
        assert status["skew"] > status["max_skew"] == 0.1


def test_it_says_what_is_missing(server, tmp_path):
    followed = Followed(server, tmp_path)
    rights = redis_lib.rights()["het-follower"]
    server.command("ACL", "SETUSER", "reader", *rights, "-get", "on", ">word")
    address = server.address.replace("unix://", "unix://reader:word@")
    with followed.follower(HET_SERVE_PS=address):
        followed.until(lambda: followed.says("up to date"))
        het_tf.publish(followed.model)
        followed.until(lambda: followed.says("versions cannot be read"))
        assert followed.says("NOPERM") and followed.says("'get'")
        server.command("ACL", "SETUSER", "reader", "+get")
        followed.until(lambda: followed.says("version 1 is in force"))
        server.command("ACL", "SETUSER", "reader", "-het.changes")
        followed.until(lambda: followed.says("'het.changes'"))
    server.command("ACL", "DELUSER", "reader")
    done = het("serve", "follow", tmp_path, status=1)
    assert "follow.json" in done.err and "Native()" in done.err
    het("serve", "follow", tmp_path, "--poll", 0, status=2)
    (followed.path / "assets" / "follow.json").write_text("{}")
    with pytest.raises(ValueError, match="damaged"):
        target.read(followed.path)
