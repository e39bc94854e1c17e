"""Sentinels, logins, and passwords that change while a job goes on. Roles that change: roles_test.cc."""

import contextlib
import subprocess
import time
from urllib.parse import quote

import numpy as np
import pytest
import redis_lib
from het_ps_lib import ask, picture

import het_tf
from het_tf.ext.ps.python.address import parse
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.node import Unreachable

pytestmark = redis_lib.MARKS

IDS = np.arange(8)


@contextlib.contextmanager
def running(directory, *arguments):
    """A server at a port; yields its place."""
    place = f"127.0.0.1:{(port := redis_lib.free_port())}"
    with redis_lib.running(directory, "--port", str(port), "--bind", "127.0.0.1", *arguments):
        yield place


def trains(layer: object, counts: np.ndarray) -> None:
    redis_lib.count(layer, IDS, counts)
    np.testing.assert_array_equal(het_tf.Table("t").lookup(IDS), -counts)


def test_a_sentinel_names_the_server(tmp_path):
    port = redis_lib.free_port()
    with running(tmp_path / "1") as place:
        conf = tmp_path / "sentinel.conf"
        watched = f"sentinel monitor models {place.replace(':', ' ')} 1\n"
        conf.write_text(f"port {port}\nbind 127.0.0.1\n{watched}")
        process = subprocess.Popen([redis_lib.PROGRAM, str(conf), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(Unreachable):
                    if ask(f"redis://127.0.0.1:{port}", "PING"):
                        break
                time.sleep(0.02)
            address = f"redis+sentinel://127.0.0.1:{port}/models"
            write = rf"is a Sentinel; write redis\+sentinel://127.0.0.1:{port}/SERV"
            for wrong, why in (
                (f"redis://127.0.0.1:{port}", write),
                (address.replace("/models", "/other"), "knows no service 'other'"),
                (f"redis+sentinel://{place}/models", r"is no Sentinel .*; write redis:// for a server"),
            ):
                with pytest.raises(RuntimeError, match=why):
                    het_tf.init(ps=wrong)
            het_tf.init(ps=address)
            trains(redis_lib.counter(staleness=0), np.zeros((8, 2)))
            (server,) = picture("--ps", address)["servers"]
            assert (server["role"], server["state"], server["place"]) == ("primary", "up", place)
        finally:
            process.kill()
            process.wait()


# Files and variables that have the password: test_where_a_password_is, roles_test.cc.
def test_a_password_changes_while_a_job_runs(tmp_path):
    first, second = "a@b/c%d:", "sEcond?&"
    now = [first]
    with running(tmp_path / "1", "--requirepass", first) as place:
        store = het_tf.Store(f"redis://{place}", password=lambda: now[0])
        het_tf.init(ps=store)
        layer, counts = redis_lib.counter(staleness=0), np.zeros((8, 2))
        trains(layer, counts)
        publisher = Client(parse(store.address, store.password))
        assert publisher.ask("key", "SET", "key", "value") == "OK"
        ask(f"redis://:{quote(first, safe='')}@{place}", "CONFIG", "SET", "requirepass", second)
        now[0] = second
        login = f"redis://:{quote(second, safe='')}@{place}"
        ask(login, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert publisher.ask("key", "GET", "key") == "value"
        publisher.close()
        trains(layer, counts)


def test_logins(tmp_path):
    with running(tmp_path / "1", "--requirepass", "a@b/c%d") as place:
        base, login = f"redis://{place}", f"redis://:secret@{place}"
        for store, error, why in (
            (base, ConnectionError, r"refuses: NOAUTH .*redis://USER:PASSWORD@HOST:PORT"),
            (login, ConnectionError, "refuses the login: WRONGPASS"),
            (het_tf.Store(base, password=lambda: {}["none"]), ConnectionError, "password of het_tf.Store"),
            (het_tf.Store(login, password="other"), ValueError, "the password is given twice"),
        ):
            with pytest.raises(error, match=why):
                het_tf.init(ps=store)
        with pytest.raises(ValueError, match="password is a int; give a string, or a function"):
            het_tf.Store(base, password=1)
        for store in (f"redis://:a%40b%2fc%25d@{place}", het_tf.Store(base, password="a@b/c%d")):
            het_tf.init(ps=store)
            het_tf.init(ps=store)  # the same one
            trains(redis_lib.counter(staleness=0), np.zeros((8, 2)))
            het_tf.Table("t").drop()
            redis_lib.leave()
