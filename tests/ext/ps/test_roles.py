"""Servers that change roles, Sentinels, and logins that change, while a job goes on."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import redis_lib

import het_tf
from het_tf.ext.ps.python.address import parse
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.node import Node, Refused, Unreachable

pytestmark = redis_lib.MARKS

IDS = np.arange(8)


class Tcp(redis_lib.Server):
    """A server at a port."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        directory.mkdir(parents=True)
        self.port = redis_lib.free_port()
        where = ("--port", str(self.port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
        super().__init__(directory, *where, *arguments)

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def replication(self) -> dict[str, str]:
        with node(self.port) as server:
            return server.info("replication")


@contextlib.contextmanager
def started(*servers: Tcp) -> Iterator[None]:
    try:
        for server in servers:
            server.start()
        yield
    finally:
        redis_lib.leave()
        for server in servers:
            server.stop()


@contextlib.contextmanager
def sentinel(directory: Path, watched: Tcp) -> Iterator[str]:
    """The address of a Sentinel that watches a server."""
    port = redis_lib.free_port()
    conf = directory / "sentinel.conf"
    conf.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor models 127.0.0.1 {watched.port} 1\n"
        "sentinel down-after-milliseconds models 1000\n"
    )
    process = subprocess.Popen([redis_lib.PROGRAM, str(conf), "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        with node(port) as server:
            await_that(lambda: answers(server))
        yield f"redis+sentinel://127.0.0.1:{port}/models"
    finally:
        process.kill()
        process.wait()


def node(port: int, login: str = "") -> Node:
    return Node.of(parse(f"redis://{login}127.0.0.1:{port}"))


def answers(server: Node) -> bool:
    with contextlib.suppress(Unreachable):
        return bool(server.ask("PING"))
    return False


def fails_over(server: Node) -> bool:
    """Whether a Sentinel begins a failover: not before it knows that the replica is well."""
    try:
        return bool(server.ask("SENTINEL", "FAILOVER", "models"))
    except Refused as error:
        assert "NOGOODSLAVE" in str(error)
        return False


def await_that(holds: Callable[[], object]) -> None:
    while not holds():
        time.sleep(0.02)


def link(one: Tcp, two: Tcp) -> None:
    """Makes `two` the replica of `one`, and waits until it has everything."""
    assert two.command("REPLICAOF", "127.0.0.1", str(one.port)).startswith(b"+OK")
    await_that(lambda: copied(one, two))


def copied(one: Tcp, two: Tcp) -> bool:
    """Whether a replica has everything: WAIT would look at the writes of its own connection alone."""
    until, now = one.replication(), two.replication()
    return now.get("master_link_status") == "up" and int(now["slave_repl_offset"]) >= int(
        until["master_repl_offset"]
    )


def trains(layer: object, counts: np.ndarray) -> None:
    redis_lib.count(layer, IDS, counts)
    np.testing.assert_array_equal(het_tf.Table("t").lookup(IDS), -counts)


# Would catch READONLY until the deadline although the other address is the primary, and rows of two stores.
def test_a_pair_changes_roles(tmp_path):
    one, two = Tcp(tmp_path / "1"), Tcp(tmp_path / "2")
    with started(one, two):
        link(one, two)
        with pytest.raises(
            ConnectionError, match=f"is a read-only replica of {one.place}; give the address of"
        ):
            het_tf.init(ps=f"redis://{two.place}")
        address = f"redis://{two.place},{one.place}"
        het_tf.init(ps=address)
        layer, counts = redis_lib.counter(staleness=0), np.zeros((8, 2))
        trains(layer, counts)
        for old, new in ((one, two), (two, one)):
            await_that(lambda old=old, new=new: copied(old, new))
            assert new.command("REPLICAOF", "NO", "ONE").startswith(b"+OK")
            link(new, old)
            trains(layer, counts)
            with Client(parse(address)) as client:  # het publish's
                assert client.ask("key", "SET", "key", "value") == "OK"


def test_a_sentinel_names_the_server(tmp_path):
    one, two = Tcp(tmp_path / "1"), Tcp(tmp_path / "2")
    with started(one, two), sentinel(tmp_path, one) as address:
        link(one, two)
        at = address.replace("+sentinel", "").removesuffix("/models")
        with pytest.raises(
            RuntimeError, match=r"is a Sentinel; write redis\+sentinel://127.0.0.1:\d+/SERVICE"
        ):
            het_tf.init(ps=at)
        with pytest.raises(RuntimeError, match="knows no service 'other'"):
            het_tf.init(ps=address.replace("/models", "/other"))
        with pytest.raises(RuntimeError, match=r"is no Sentinel .*; write redis:// for a server of tables"):
            het_tf.init(ps=f"redis+sentinel://{one.place}/models")
        het_tf.init(ps=address)
        layer, counts = redis_lib.counter(staleness=0), np.zeros((8, 2))
        trains(layer, counts)
        with node(parse(at).places[0].port) as server:
            # It learns of replicas every ten seconds.
            await_that(lambda: server.ask("SENTINEL", "REPLICAS", "models"))
            await_that(lambda: copied(one, two))
            await_that(lambda: fails_over(server))
            named = ["127.0.0.1", str(two.port)]
            await_that(lambda: server.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "models") == named)
        trains(layer, counts)
        command = [
            sys.executable,
            "-m",
            "het_tf",
            "ps",
            "status",
            "--ps",
            address,
            "--interval",
            "0.1",
        ]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert f"primary  up  {two.place}" in shown.stdout, shown


@pytest.mark.parametrize("source", ["function", "file", "environment"])
def test_a_password_changes_while_a_job_runs(tmp_path, monkeypatch, source):
    first, second = "a@b/c%d:", "sEcond?&"
    now = {"password": first}
    file = tmp_path / "password"

    def change(password: str) -> None:
        now["password"] = password
        file.write_text(password + "\n")
        monkeypatch.setenv("HET_TEST_PASSWORD", password)

    change(first)
    server = Tcp(tmp_path / "1", "--requirepass", first)
    base = f"redis://{server.place}"
    stores = {
        "function": het_tf.Store(base, password=lambda: now["password"]),
        "file": het_tf.Store(f"{base}?password_file={file}"),
        "environment": het_tf.Store(f"{base}?password_env=HET_TEST_PASSWORD"),
    }
    with started(server):
        het_tf.init(ps=stores[source])
        layer, counts = redis_lib.counter(staleness=0), np.zeros((8, 2))
        trains(layer, counts)
        publisher = Client(
            parse(base if source == "function" else stores[source].address, stores[source].password)
        )
        assert publisher.ask("key", "SET", "key", "value") == "OK"
        with node(server.port, f":{quote(first, safe='')}@") as client:
            client.ask("CONFIG", "SET", "requirepass", second)
            change(second)
            client.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert publisher.ask("key", "GET", "key") == "value"
        publisher.close()
        trains(layer, counts)


def test_logins(tmp_path):
    server = Tcp(tmp_path / "1", "--requirepass", "a@b/c%d")
    with started(server):
        with pytest.raises(ConnectionError, match=r"refuses: NOAUTH .*redis://USER:PASSWORD@HOST:PORT"):
            het_tf.init(ps=f"redis://{server.place}")
        with pytest.raises(ConnectionError, match="refuses the login: WRONGPASS"):
            het_tf.init(ps=f"redis://:secret@{server.place}")
        with pytest.raises(ConnectionError, match=r"password of het_tf.Store: KeyError: 'none'"):
            het_tf.init(ps=het_tf.Store(f"redis://{server.place}", password=lambda: {}["none"]))
        with pytest.raises(ValueError, match="the password is given twice"):
            het_tf.init(ps=het_tf.Store(f"redis://:secret@{server.place}", password="other"))
        with pytest.raises(ValueError, match="password is a int; give a string, or a function"):
            het_tf.Store(f"redis://{server.place}", password=1)
        for store in (
            f"redis://:a%40b%2fc%25d@{server.place}",
            het_tf.Store(f"redis://{server.place}", password="a@b/c%d"),
        ):
            het_tf.init(ps=store)
            het_tf.init(ps=store)  # the same one
            trains(redis_lib.counter(staleness=0), np.zeros((8, 2)))
            het_tf.Table("t").drop()
            redis_lib.leave()
