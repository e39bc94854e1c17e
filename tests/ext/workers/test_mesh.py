"""How ranks without Horovod find each other at the parameter server; ranks are threads of this process."""

import contextlib
import ctypes
import json
import os
import pickle
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import redis_lib
import tensorflow as tf

from het_tf.ext.ps.python import job_server, reports
from het_tf.ext.ps.python.address import parse
from het_tf.ext.workers.python import joining, mesh, mesh_tensors
from het_tf.ext.workers.python.environments.process import Process
from het_tf.python.session import native
from het_tf.python.session.workers import Workers, objects, packed
from het_tf.python.table.notes import HetWarning

pytestmark = redis_lib.SERVER


def at(rank, size=3, run="run"):
    return Process("het run", rank, size, rank, size, run)


def meet(server, *processes, limit=30.0):
    """What each has got, or the error of it."""

    def one(where):
        try:
            return joining.meet(where, parse(server.address))
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
    assert client.ask("het-run:run", "EXISTS", "het-run:run") == 0


def test_two_runs_do_not_meet(server):
    found = meet(server, *[at(rank, 2, run) for run in ("a", "b") for rank in (0, 1)])
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
        client.ask("het-run:run", "HSET", "het-run:run", rank, json.dumps(["127.0.0.1", port, "0" * 32]))
    check(meet(server, at(0, 2), at(1, 2)))


def test_ranks_that_do_not_come_are_named(server):
    (found, _) = meet(server, at(0, 4), at(2, 4), limit=0.5)
    assert isinstance(found, TimeoutError)
    assert "rank 0 of 4 has waited 0.5 s for rank 1, 3 of run run" in str(found)
    assert "HET_WORKERS_JOIN_TIMEOUT" in str(found)


def talk(change=None, other=b"k", rank=2):
    """A handshake of ranks 0 and `rank` of 3; change(n, words) changes message n. Returns what both get."""
    sides = [joining._admit(b"k", 0, 3), joining._join(other, 0, rank)]
    next(sides[1])
    words, ends = next(sides[0])[0], [None, None]
    for number in range(4):
        side = 1 - number % 2
        words = change(number, words) if change else words
        try:
            words, wants, _ = sides[side].send(words)
            if wants == 0:
                next(sides[side])
        except StopIteration as end:
            ends[side] = end.value
        except PermissionError:
            break
    return ends


def test_both_sides_prove_that_they_know_the_key():
    """Would catch a stranger that becomes a rank, with bytes of its own or with what it has overheard."""
    assert talk() == [2, 0]
    assert talk(other=b"another") == talk(rank=0) == talk(rank=3) == talk(rank=2**32 - 1) == [None, None]
    for number, size in enumerate((16, 52, 32, 32)):
        for at in range(size):

            def flip(n, words, number=number, at=at):
                return words[:at] + bytes([words[at] ^ 1]) + words[at + 1 :] if n == number else words

            assert talk(flip)[0] is None, (number, at)
            assert number == 3 or talk(flip)[1] is None, (number, at)
    heard = []
    talk(lambda n, words: (heard.append(words), words)[1])
    for number in (1, 2, 3):
        assert talk(lambda n, words, number=number: heard[n] if n == number else words)[0] is None, "replayed"
    heard = []
    assert talk(lambda n, words: heard[2] if n == 3 else (heard.append(words), words)[1])[0] is None


def joined(process, others=()):
    """A future of the connections of a rank that listens here, its text, and the place where it does."""
    mine = joining.Listener(None)
    pool = ThreadPoolExecutor(1)

    def join():
        with mine:
            return mine.join(process, lambda: [*others, mine.text])

    found = pool.submit(join)
    pool.shutdown(wait=False)
    host, port, _ = json.loads(mine.text)
    return found, mine.text, (host, port)


def joins(first, text):
    """Rank 1 of 2 meets rank 0."""
    second, *_ = joined(at(1, 2), [text])
    check([first.result(), second.result()])


def test_a_scanner_of_ports_delays_nobody():
    """Twenty meetings: while one silent connection was waited for, the ranks did not find each other."""
    for _ in range(20):
        first, text, place = joined(at(0, 2))
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                assert stack.enter_context(socket.create_connection(place)).recv(1), "it was accepted"
            joins(first, text)


def test_silent_connections_are_few_and_end(monkeypatch):
    monkeypatch.setattr(joining, "_STRANGERS", 3)
    first, text, place = joined(at(0, 2))
    silent = [socket.create_connection(place) for _ in range(7)]
    for one in silent[:2]:
        assert len(one.recv(17, socket.MSG_WAITALL)) == 16, "the oldest of more than five"
    silent[2].setblocking(False)
    assert len(silent[2].recv(17)) == 16
    with pytest.raises(BlockingIOError):
        silent[2].recv(1)
    joins(first, text)
    monkeypatch.setattr(joining, "_PATIENCE", 0.1)
    first, text, place = joined(at(0, 2))
    assert len(socket.create_connection(place).recv(17, socket.MSG_WAITALL)) == 16
    joins(first, text)


def test_a_connection_that_was_given_up_counts_for_nothing():
    """Would catch a socket that is accepted late and takes the place of the rank's next try."""
    first, text, place = joined(at(0, 2))
    given_up = []
    for confirms in (False, False, True):  # the last one comes in pieces, and its mesh begins at once
        one = socket.create_connection(place)
        side = joining._join(joining._key(json.loads(text)[2]), 0, 1)
        next(side)
        send = side.send(one.recv(16, socket.MSG_WAITALL))[0]
        for byte in send:
            one.sendall(bytes([byte]))
        send = side.send(one.recv(32, socket.MSG_WAITALL))[0]
        if not confirms:
            given_up.append(one)  # open: it cannot be told from one that lives
    assert given_up[0].recv(1) == b"", "the second has taken its place"
    one.sendall(send[:5])
    one.sendall(send[5:] + b"of the mesh")
    (_, found) = first.result()
    assert found.recv(11, socket.MSG_WAITALL) == b"of the mesh"
    found.sendall(b"!")
    assert one.recv(1) == b"!"


def test_a_place_where_a_stranger_listens_is_asked_again():
    """A port that another program has got, or a text of the store that no rank has written."""
    for text in (None, "{", "7", "[1, 2, 3]", '["::1", 99999, ""]', '["::1", 7, 0]', "[" * 100_000,
                 '["a..b", 7, ""]', '["::1", 7, "\\ud800"]'):  # fmt: skip
        assert joining._place(text) is None
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        said = [json.dumps([*stranger.getsockname(), "0" * 32])]
        second, *_ = joined(at(1, 2), said)
        accepted, _ = stranger.accept()
        accepted.sendall(bytes(16))
        accepted.sendall(accepted.recv(52, socket.MSG_WAITALL)[-32:])  # its own proof in place of a welcome
        first, said[0], _ = joined(at(0, 2))
        check([first.result(), second.result()])


def test_ranks_of_another_secret_do_not_meet(monkeypatch):
    monkeypatch.setenv("HET_RUN_SECRET", "one")
    monkeypatch.setenv(mesh.JOIN, "0.3")
    first, text, _ = joined(at(0, 2))
    monkeypatch.setenv("HET_RUN_SECRET", "another")
    second, *_ = joined(at(1, 2), [text])
    for one in (first, second):
        with pytest.raises(TimeoutError, match="with the same parameter server and HET_RUN_SECRET"):
            one.result()


def test_the_worker_of_users_conf_meets_and_others_do_not_see_where(server, client):
    """Would catch a right that ranks need and workers lack, and readers of rows that could become ranks."""
    users = redis_lib.rights()
    for user, rights in users.items():
        client.ask("", "ACL", "SETUSER", user, "on", ">pw", *rights)
    worker = server.address.replace("unix://", "unix://het-worker:pw@")
    with ThreadPoolExecutor(2) as pool:
        check(pool.map(lambda rank: joining.meet(at(rank, 2), parse(worker)), range(2)))
    client.ask("", "HSET", "het-run:run", 0, "text")
    for user in users:
        for words in ("HGETALL", "HGET 0", "HMGET 0", "GET", "HSETNX 0 x", "DUMP"):
            name, *rest = words.split()
            denied = client.ask("", "ACL", "DRYRUN", user, name, "het-run:run", *rest)
            may = user == "het-worker" and name in ("HGET", "HMGET", "GET", "HSETNX")
            assert may == (denied == "OK"), (user, words)
    client.ask("", "ACL", "DELUSER", *users)


def test_ranks_exchange_json_and_evaluate_nothing():
    class Evil:
        def __reduce__(self):
            return pytest.fail, ("it was run",)

    line = packed({"a": (1, np.float32(0.5)), 2: np.int64(3)}, "label")
    assert objects(line + packed(None, "label"), 2) == [{"a": [1, 0.5], "2": 3}, None]
    for lines in (pickle.dumps(Evil()), line, line * 3, b"[" * 100_000):
        with pytest.raises(ValueError, match=r"no JSON|2 ranks have sent"):
            objects(lines, 2)
    for value in (Evil(), {"a": {1}}, b"bytes", np.ones(2)):
        with pytest.raises(TypeError, match="collective label takes a value for JSON, and not this: a "):
            packed(value, "label")


@pytest.mark.parametrize("kind", [mesh_tensors.TensorMesh, mesh.Mesh])
def test_a_part_of_a_row_is_refused(kind):
    """Would catch a rank that writes behind the end of another one's result."""
    mine, other = socket.socketpair()
    sockets = (ctypes.c_int64 * 2)(-1, mine.detach())
    native.call("HetJoinRanks", ctypes.c_int64(0), ctypes.c_int64(2), sockets, ctypes.c_double(10))

    def answer():
        header = struct.Struct("<IIIIQ")  # kind, bytes of label and description, waited, bytes of data
        while True:
            kind, label, what, _, size = header.unpack(other.recv(header.size, socket.MSG_WAITALL))
            text = other.recv(label + what, socket.MSG_WAITALL) if label else b""
            if kind == 0 and other.recv(size, socket.MSG_WAITALL):
                return other.sendall(header.pack(0, label, what, 0, 13) + text + bytes(13))

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        with pytest.raises((tf.errors.InternalError, ValueError)):
            object.__new__(kind).gather(np.ones((1, 2), np.float32), "rows")
        answered.result()
    other.close()
    native.call("HetLeaveRanks")


def test_a_server_that_does_not_answer_is_an_error():
    with pytest.raises(ConnectionError, match="the ranks meet at the parameter server: "):
        joining.meet(at(0), parse("redis://127.0.0.1:1"))


def test_ranks_that_run_other_programs_are_told(monkeypatch):
    mesh_of_two = object.__new__(mesh.Mesh)
    mesh_of_two._process = at(1, 2)
    for others, told, words in (
        ([("a.py", "jax", []), ("b.py", "jax", [])], ValueError, "rank 0 runs a.py and rank 1 runs b.py"),
        ([("a.py", "tensorflow", []), ("a.py", "jax", [])], ValueError,
         "backend is 'tensorflow' on rank 0 and 'jax' on rank 1; set K"),
        ([("a.py", "jax", ["--x"]), ("a.py", "jax", [])], HetWarning, "rank 0 has '--x'"),
    ):  # fmt: skip
        expect = (pytest.warns if told is HetWarning else pytest.raises)(told, match=re.escape(words))
        monkeypatch.setattr(mesh_of_two, "gather_objects", lambda *_, others=others: others)
        with expect:
            mesh_of_two._compare_programs()


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf"])
def test_limits_are_seconds(monkeypatch, text):
    monkeypatch.setenv(mesh.TIMEOUT, text)
    with pytest.raises(ValueError, match=rf"HET_WORKERS_TIMEOUT is '{text}'; give a number of seconds"):
        mesh.seconds(mesh.TIMEOUT)


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
