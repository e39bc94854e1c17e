"""How ranks without Horovod find each other at the parameter server; ranks are threads of this process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis_lib

from het_tf.ext.ps.python import job_server, reports
from het_tf.ext.ps.python.address import parse
from het_tf.ext.workers.python import mesh
from het_tf.ext.workers.python.environments.process import Process
from het_tf.python.session.workers import Workers
from het_tf.python.table.notes import HetWarning

pytestmark = pytest.mark.skipif(bool(redis_lib.missing()), reason=redis_lib.missing() or "there is a server")


def at(rank, size=3, run="run"):
    return Process("het run", rank, size, rank, size, run)


def meet(server, *processes, limit=30.0):
    """What each has got, or the error of it."""

    def one(where):
        try:
            return mesh.meet(where, parse(server.address))
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(processes)) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setenv(mesh.JOIN, str(limit))
        return list(pool.map(one, processes))


def check(connections):
    """Every two ranks are connected to each other."""
    for rank, peers in enumerate(connections):
        assert not isinstance(peers, Exception), peers
        assert peers[rank] is None
        for other, one in enumerate(peers):
            if one is not None:
                one.sendall(f"{rank} to {other}.".encode())
    for rank, peers in enumerate(connections):
        for other, one in enumerate(peers):
            if one is not None:
                assert one.recv(100) == f"{other} to {rank}.".encode()
                one.close()


def test_every_two_ranks_are_connected_and_leave_nothing_at_the_server(server, client):
    check(meet(server, *(at(rank, 5) for rank in range(5))))
    assert client.ask("het:run:run", "EXISTS", "het:run:run") == 0


def test_two_runs_do_not_meet(server):
    processes = [at(rank, 2, run) for run in ("a", "b") for rank in (0, 1)]
    found = meet(server, *processes)
    check(found[:2])
    check(found[2:])


def test_a_rank_that_is_there_twice_is_refused(server):
    """Would catch a job in which two processes train as one rank, such as a TF_CONFIG given twice."""
    found = meet(server, at(1, 2), at(1, 2), limit=3.0)
    refused = [one for one in found if isinstance(one, ValueError)]
    assert len(refused) == 1 and "rank 1 of run run is there twice" in str(refused[0])
    assert [type(one) for one in found if one is not refused[0]] == [TimeoutError]


def test_what_a_run_that_has_died_has_written_does_not_disturb(server, client):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    for rank in (0, 1):
        client.ask("het:run:run", "HSET", "het:run:run", rank, json.dumps(["127.0.0.1", port, "0" * 32]))
    check(meet(server, at(0, 2), at(1, 2)))


def test_ranks_that_do_not_come_are_named(server):
    (found, _) = meet(server, at(0, 4), at(2, 4), limit=0.5)
    assert isinstance(found, TimeoutError)
    assert "rank 0 of 4 has waited 0.5 s for rank 1, 3 of run run" in str(found)
    assert "HET_WORKERS_JOIN_TIMEOUT" in str(found)


def test_who_does_not_know_the_token_is_not_accepted(server, client):
    """Would catch a stranger at the port that becomes a rank."""
    key = "het:run:run"

    def strangers():
        while (text := client.ask(key, "HGET", key, 0)) is None:
            pass
        host, port, token = json.loads(text)
        for words in (b"GET / HTTP/1.1\r\n", f"{'0' * 32}00000001".encode(), f"{token}00000007".encode()):
            with socket.create_connection((host, port)) as one:
                one.sendall(words.ljust(40))
                with contextlib.suppress(ConnectionError):
                    assert one.recv(1) == b""
        return mesh.meet(at(1, 2), parse(server.address))

    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(mesh.meet, at(0, 2), parse(server.address)), pool.submit(strangers)]
        check([rank.result() for rank in ranks])


def test_a_server_that_does_not_answer_is_an_error():
    with pytest.raises(ConnectionError, match="the ranks meet at the parameter server: "):
        mesh.meet(at(0), parse("redis://127.0.0.1:1"))


def test_ranks_that_run_other_programs_are_told(monkeypatch):
    mesh_of_two = object.__new__(mesh.Mesh)
    mesh_of_two._process = at(1, 2)
    for others, expect in (
        (
            [("a.py", "jax", []), ("b.py", "jax", [])],
            pytest.raises(ValueError, match=r"rank 0 runs a\.py and rank 1 runs b\.py"),
        ),
        (
            [("a.py", "tensorflow", []), ("a.py", "jax", [])],
            pytest.raises(ValueError, match=r"backend is 'tensorflow' on rank 0 and 'jax' on rank 1; set K"),
        ),
        ([("a.py", "jax", ["--x"]), ("a.py", "jax", [])], pytest.warns(HetWarning, match="rank 0 has '--x'")),
    ):
        monkeypatch.setattr(mesh_of_two, "gather_objects", lambda *_, others=others: others)
        with expect:
            mesh_of_two._compare_programs()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf"])
def test_limits_are_seconds(monkeypatch, text):
    monkeypatch.setenv(mesh.TIMEOUT, text)
    with pytest.raises(ValueError, match=rf"HET_WORKERS_TIMEOUT is '{text}'; give a number of seconds"):
        mesh._seconds(mesh.TIMEOUT)


def reported(client, **more):
    name = reports.key("jobs", "workers", 0)
    report = {"rank": 0, "size": 2, "host": "elsewhere", "pid": 4711, **more}
    client.ask(name, "SET", name, reports.packed(report), "EX", reports.KEEP)


def test_a_second_job_in_a_namespace_is_refused(server, client, monkeypatch):
    """Would catch two jobs that train one set of tables, each with a model of its own."""
    monkeypatch.setattr(reports, "LIVES", 3.0)

    def check():
        job_server.refuse_second_job(Workers(), server.address, "jobs", None)

    check()
    reported(client, host=socket.gethostname(), pid=os.getppid())
    with pytest.raises(ValueError, match=rf"namespace is 'jobs', .*process {os.getppid()} of this machine"):
        check()
    reported(client, host=socket.gethostname(), pid=2**22 + 1)  # has been killed
    check()
    reported(client)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(check)
        while not asking.done():  # the other job renews its report
            time.sleep(0.3)
            reported(client)
        with pytest.raises(ValueError, match=r"process 4711 of elsewhere .*het_tf\.init\(namespace=\.\.\.\)"):
            asking.result()
    reported(client)
    check()  # no longer
