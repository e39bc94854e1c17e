"""Faults of a parameter server: reported at once with a remedy, and without loss."""

import contextlib
import math
import re
import socket
from pathlib import Path

import pytest
import redis_lib
import tensorflow as tf
from het_ps_lib import het_ps

import het_tf
from het_tf.python.session import settings

pytestmark = redis_lib.MARKS


STORE = {
    "durability": [("often", "durability is \"often\"; it must be 'applied', 'replicated' or 'checkpoint'")],
    "min_replicas": [(1.5, "min_replicas is 1.5; it must be a whole number"), (True, "min_replicas is true")],
    "keep_bytes": [(-1, "keep_bytes is -1; .*at least 0"), (1.5, "keep_bytes is")],
    "timeout": [(0, "timeout is 0; it must be seconds"), ("10", 'timeout is "10"')],
    "deadline": [("long", 'deadline is "long"; it must be seconds'), (float("nan"), "deadline is")],
}
OPTIONS = [
    *[({name: value}, why) for name, listed in STORE.items() for value, why in listed],
    ({"durability": "replicated", "min_replicas": 0}, "min_replicas is 0; .*at least 1"),
]
NOWHERE = "redis://127.0.0.1:1"


@pytest.mark.parametrize(("options", "why"), OPTIONS)
def test_an_option_of_the_store_that_is_none(options, why):
    with pytest.raises(ValueError, match=why):
        het_tf.Store(NOWHERE, **options)


BAD_INITS = [
    ({"ps": 6379}, ValueError, "ps is"),  # what is no text is nothing for the native library
    ({"ps": Path("/socket")}, ValueError, "ps is"),
    ({"threads": "4"}, ValueError, "threads is"),
    ({"threads": 1.5}, ValueError, "threads is"),
    ({"accumulate": "no"}, ValueError, "accumulate is"),
    ({"ps": "nonsense", "gradient_scale": "sum", "namespace": "x", "threads": 3}, ValueError,
     "begins with none of"),
    ({"ps": het_tf.Store(durability="checkpoint")}, ValueError,
     "durability is 'checkpoint', but there is no parameter server"),
    ({"ps": "unix:///none"}, ConnectionError, r"cannot connect to .*Check the address"),
    ({"ps": NOWHERE}, ConnectionError, "cannot connect to 127.0.0.1:1: Connection refused"),
    ({}, ConnectionError, "Connection refused"),  # HET_PS
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "why"), BAD_INITS)
def test_an_init_that_fails_changes_nothing(monkeypatch, arguments, error, why):
    monkeypatch.setenv("HET_PS", "" if arguments else NOWHERE)
    with pytest.raises(error, match=why):
        het_tf.init(**arguments)
    monkeypatch.delenv("HET_PS")
    assert settings.current.ps == "" and het_tf.keras.Embedding(2, name="t").namespace == ""
    assert het_tf.Table("t").stats()["mode"] == "direct", "tables are here, as before"


def test_the_deadline_is_the_users(tmp_path):
    with redis_lib.running(tmp_path / "r") as server:
        het_tf.init(ps=het_tf.Store(server.address, deadline=2))
        layer = redis_lib.counter(staleness=0)
        redis_lib.train(layer, 1)
        assert server.command("CONFIG", "SET", "min-replicas-to-write", "1").startswith(b"+OK")
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"NOREPLICAS.*het_tf.Store\(deadline"):
            redis_lib.train(layer, 1)
        assert server.command("CONFIG", "SET", "min-replicas-to-write", "0").startswith(b"+OK")
        het_tf.init(ps=het_tf.Store(server.address, deadline=2))  # nothing is different: there may be tables
        with pytest.raises(RuntimeError, match="somewhere else already"):
            het_tf.init(ps=het_tf.Store(server.address, deadline=5))


def test_a_server_without_room_for_another_client_says_so(tmp_path):
    """Would catch: "Broken pipe" or a refused login, after which a user looks for another fault."""
    full = r"sock has no room for more clients \(ERR max number of clients reached\); raise its maxclients"
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


def test_lost_updates_are_reported(tmp_path):
    with redis_lib.running(tmp_path / "r") as server:
        het_tf.init(ps=het_tf.Store(server.address, deadline=0.5, timeout=0.5))
        redis_lib.train(redis_lib.counter(staleness=math.inf), 1)
        server.kill()
        with pytest.warns(het_tf.HetWarning, match="are lost: .*Check the servers") as told:
            het_tf.reset()
        het_tf.init(ps="")  # it can be left
        het_tf.keras.Embedding(2, name="t")
        assert het_tf.Table("t").stats()["mode"] == "direct"
    assert not any("are kept" in str(one.message) for one in told)


def test_tables_elsewhere_come_before_the_address(server):
    elsewhere = "table 't' of the namespace '' is somewhere else already; call"
    for first, second in (("", server.address), (server.address, "")):
        het_tf.reset()
        het_tf.init(ps=first)
        het_tf.keras.Embedding(2, name="t")
        with pytest.raises(RuntimeError, match=elsewhere):
            het_tf.init(ps=second, namespace="other")
