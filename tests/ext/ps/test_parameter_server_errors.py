"""Faults of a parameter server: reported at once with a remedy, and without loss."""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from het_ps_lib import het_ps

import het_tf
from het_tf.python.session import native, settings

pytestmark = redis_lib.MARKS


@pytest.mark.parametrize(
    "option, why",
    [
        (
            {"durability": "often"},
            "durability is \"often\"; it must be 'applied', 'replicated' or 'checkpoint'",
        ),
        ({"durability": "replicated", "min_replicas": 0}, "min_replicas is 0; .*at least 1"),
        ({"min_replicas": 1.5}, "min_replicas is 1.5; it must be a whole number"),
        ({"keep_bytes": -1}, "keep_bytes is -1; .*at least 0"),
        ({"timeout": 0}, "timeout is 0; it must be seconds"),
        ({"deadline": "long"}, 'deadline is "long"; it must be seconds'),
    ],
)
def test_an_option_that_is_none(server, option, why):
    with pytest.raises(ValueError, match=why):
        het_tf.init(ps=het_tf.Store(server.address, **option))
    het_tf.keras.Embedding(2, name="t")  # tables are here, as before
    assert het_tf.Table("t").stats()["mode"] == "direct"


@pytest.mark.parametrize(
    "arguments",
    [
        {"ps": 6379},  # what is no text is nothing for the native library
        {"ps": Path("/socket")},
        {"threads": "4"},
        {"threads": 1.5},
        {"accumulate": "no"},
        {"timeout": "10"},
        {"deadline": float("nan")},
        {"keep_bytes": 1.5},
        {"min_replicas": True},
    ],
    ids=str,
)
def test_arguments_of_another_type(arguments):
    ((name, value),) = arguments.items()
    shown = re.escape(json.dumps(value)) if name in ("timeout", "min_replicas") else ".*"
    with pytest.raises(ValueError, match=f"{name} is {shown}"):
        given = {} if name in ("ps", "threads", "accumulate") else {"ps": het_tf.Store(**arguments)}
        het_tf.init(**(given or arguments))
    assert settings.current.ps == ""


def test_durability_needs_a_server():
    with pytest.raises(ValueError, match="durability is 'checkpoint', but there is no parameter server"):
        het_tf.init(ps=het_tf.Store(durability="checkpoint"))


def test_the_deadline_is_the_users(tmp_path):
    with redis_lib.running(tmp_path / "r") as server:
        het_tf.init(ps=het_tf.Store(server.address, deadline=2))
        layer = redis_lib.counter(staleness=0)
        redis_lib.train(layer, 1)
        assert server.command("CONFIG", "SET", "min-replicas-to-write", "1").startswith(b"+OK")
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"NOREPLICAS.*het_tf.Store\(deadline"):
            redis_lib.train(layer, 1)
        assert server.command("CONFIG", "SET", "min-replicas-to-write", "0").startswith(b"+OK")
        het_tf.init(
            ps=het_tf.Store(server.address, deadline=2)
        )  # nothing is different: fine, though there are tables
        with pytest.raises(RuntimeError, match="somewhere else already"):
            het_tf.init(ps=het_tf.Store(server.address, deadline=5))


def test_a_checkpoint_lets_kept_pushes_go(server):
    het_tf.init(ps=het_tf.Store(server.address, durability="checkpoint", keep_bytes=20_000))
    layer = redis_lib.counter(staleness=0)
    for _ in range(20):
        redis_lib.train(layer, 1)
        native.call("HetMarkDurable", "")
    assert het_tf.Table("t").stats()["cache"]["dropped_pushes"] == 0
    redis_lib.train(layer, 20)
    assert het_tf.Table("t").stats()["cache"]["dropped_pushes"] > 0


def test_no_server_there(tmp_path, monkeypatch):
    with pytest.raises(ConnectionError, match=r"cannot connect to .*Check the address"):
        het_tf.init(ps=f"unix://{tmp_path}/none")
    with pytest.raises(ConnectionError, match=r"cannot connect to 127.0.0.1:1: Connection refused"):
        het_tf.init(ps="redis://127.0.0.1:1")
    monkeypatch.setenv("HET_PS", "redis://127.0.0.1:1")
    with pytest.raises(ConnectionError, match="Connection refused"):
        het_tf.init()
    monkeypatch.delenv("HET_PS")
    het_tf.init()


def test_a_server_without_room_for_another_client_says_so(tmp_path):
    """Would catch: "Broken pipe" or a refused login, after which a user looks for another fault."""
    full = (
        r"redis.sock has no room for more clients \(ERR max number of clients reached\); raise its maxclients"
    )
    with redis_lib.running(tmp_path / "r", "--maxclients", "2") as server, contextlib.ExitStack() as held:
        for _ in range(2):
            client = held.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(server.socket))
            client.sendall(b"PING\r\n")
            assert client.recv(64) == b"+PONG\r\n"
        for login in ("", ":secret@"):
            with pytest.raises(ConnectionError, match=f"{full}, as by CONFIG SET maxclients, .*workers$"):
                het_tf.init(ps=f"unix://{login}{server.socket}")
        assert re.search(full, het_ps("status", "--ps", server.address, status=1).err)
        held.close()
        het_tf.init(ps=server.address)


def test_another_spec_is_refused(server):
    het_tf.init(ps=server.address)
    het_tf.keras.Embedding(2, name="t")
    het_tf.reset()
    with pytest.raises(ValueError, match=r"'t' exists with another spec: dim is 2, and 3 is wanted\. Use"):
        het_tf.keras.Embedding(3, name="t")


def test_rights_that_are_missing_are_no_wait(tmp_path):
    with redis_lib.running(tmp_path / "r") as server:
        rules = "on nopass ~het:* +@all -het.step".split()
        assert server.command("ACL", "SETUSER", "worker", *rules).startswith(b"+OK")
        het_tf.init(ps=f"unix://worker:any@{server.socket}")
        layer = redis_lib.counter(staleness=0)
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"NOPERM.*het.step.*are kept"):
            redis_lib.train(layer, 1)
        stats = server.command("INFO", "commandstats").decode()
        refused = int(re.search(r"cmdstat_het.step:.*rejected_calls=(\d+)", stats)[1])
        assert refused <= 64, "each partition is asked once: the refusal does not pass by itself"
        assert server.command("ACL", "SETUSER", "worker", "+het.step").startswith(b"+OK")
        redis_lib.train(layer, 1, seed=1)
        assert redis_lib.rows_of("t")["clocks"].sum() > 30, "what was kept has arrived"


def test_a_full_server_lets_rows_go(tmp_path):
    with redis_lib.running(tmp_path / "r") as server:
        het_tf.init(ps=server.address)
        het_tf.keras.Embedding(2, name="t")
        table = het_tf.Table("t")
        table.assign([1, 2, 3], np.ones((3, 2), np.float32))
        assert server.command("CONFIG", "SET", "maxmemory", "100kb").startswith(b"+OK")
        with pytest.raises(MemoryError, match="raise maxmemory"):
            table.assign([4], np.ones((1, 2), np.float32))
        assert table.remove([1, 2, 9]) == 2
        assert table.size == 1


def test_an_address_that_fails_changes_nothing(server):
    het_tf.init(ps=server.address)
    with pytest.raises(ValueError, match="begins with none of"):
        het_tf.init(ps="nonsense", gradient_scale="sum", namespace="x", threads=3)
    layer = het_tf.keras.Embedding(2, name="t")
    assert layer.namespace == ""
    with pytest.raises(RuntimeError, match="table 't' of the namespace '' is somewhere else already; call"):
        het_tf.init(ps="", namespace="other")


def test_a_server_that_is_gone_can_be_left(tmp_path):
    server = redis_lib.Server(tmp_path)
    server.start()
    try:
        het_tf.init(ps=server.address)
        het_tf.keras.Embedding(2, name="t")
        het_tf.reset()
    finally:
        server.stop()
    het_tf.reset()
    het_tf.init(ps="")
    het_tf.keras.Embedding(2, name="t")
    assert het_tf.Table("t").stats()["mode"] == "direct"


def test_lost_updates_are_reported(tmp_path):
    with redis_lib.running(tmp_path / "r") as server:
        het_tf.init(ps=het_tf.Store(server.address, deadline=0.5, timeout=0.5))
        redis_lib.train(redis_lib.counter(staleness=math.inf), 1)
        server.kill()
        with pytest.warns(het_tf.HetWarning, match="are lost: .*Check the servers") as told:
            het_tf.reset()
    assert not any("are kept" in str(one.message) for one in told)


def test_tables_elsewhere_come_before_the_address(server):
    het_tf.keras.Embedding(2, name="t")
    with pytest.raises(RuntimeError, match="table 't' of the namespace '' is somewhere else already; call"):
        het_tf.init(ps=server.address)
