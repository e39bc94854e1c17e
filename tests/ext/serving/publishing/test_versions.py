"""Versions at a server: what readers get, who may write, and what a publisher that dies leaves."""

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import het_ps_lib
import numpy as np
import pytest
import redis_lib
from safetensors.numpy import load
from versions_lib import DIGEST, version

import het_tf
from het_tf.ext.ps.python import address, partitions
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.node import Node, Refused, Unreachable
from het_tf.ext.serving.python.publishing import dense_store
from het_tf.ext.serving.python.publishing import publish as publishing
from het_tf.ext.serving.python.publishing.versions import (
    Decision,
    TakenError,
    Version,
    VersionError,
    Versions,
    parse_entry,
)
from het_tf.python import files

pytestmark = redis_lib.MARKS


@pytest.fixture
def publisher(server):
    """Publishes given arrays in the place of a model's; the namespace exists."""
    het_tf.init(ps=server.address)
    redis_lib.counter()(np.arange(3))
    made = []

    def publisher(keep=10, directory=None):
        made.append(PublisherOfArrays(server.address, keep, directory))
        return made[-1]

    yield publisher
    for one in made:
        one.close()


class PublisherOfArrays(publishing.Publisher):
    def __init__(self, url, keep, directory):
        self._client = Client(address.parse(url), seconds=5.0)
        self._keep, self._kind = keep, "version"
        self._versions = Versions(self._client, "")
        here = directory is None
        self._store = dense_store.AtServer(self._client, "") if here else dense_store.InDirectory(directory)

    def publish(self, value):
        return self.write(publishing.Taken({"w": np.array([value], np.float32)}, value))


def weight(client, version):
    (value,) = load(dense_store.fetch(client, version))["w"]
    return value


def later(versions, entry, **wait):
    return [parse_entry(*one) for one in versions.after(entry, **wait)]


# --- the stream --------------------------------------------------------------------------------------------


def test_readers_get_what_was_appended(client):
    versions = Versions(client, "")
    assert versions.last() == versions.after("0-0") == []
    for number in range(1, 6):
        versions.append(version(number))
    versions.remove(["1-0"])
    assert [one.number for one in versions.last()] == [2, 3, 4, 5]
    assert versions.last(2) == [version(4), version(5)] == later(versions, "3-0")
    assert versions.after("5-0", wait=0.01) == []
    assert versions.get(2) == version(2)
    with pytest.raises(Exception, match="has no namespace 'x': no worker has trained there"):
        partitions.positions(client, "x")
    with pytest.raises(LookupError, match="has no version 1; 2 to 5 are kept"):
        versions.get(1)
    with pytest.raises(LookupError, match="no version 1; none is kept"):
        Versions(client, "other").get(1)


def test_a_reader_that_waits_gets_the_next_version(server, client):
    with Client(address.parse(server.address)) as own, ThreadPoolExecutor() as pool:
        found = pool.submit(later, Versions(own, ""), "0-0", wait=4.0)
        while client.ask("x", "INFO", "clients").find("blocked_clients:1") < 0:
            time.sleep(0.01)
        Versions(client, "").append(version(1))
        assert found.result() == [version(1)]


VERSION, DECISION = version(7), Decision("rollback", 7, 2.5, "9-1")


NO_ENTRIES = [
    (VERSION, "7-1", {}, "its ID is no V-0"),
    (VERSION, "0-0", {}, "not in 1"),
    *[(VERSION, "7-0", {name: value}, why) for name, value, why in (
        ("dense", "file:../x", "not redis:KEY or file:/PATH"),
        ("sha256", DIGEST.upper(), "not 64 hexadecimal digits"),
        ("signature", DIGEST + "\n", "not 64 hexadecimal digits"),
        ("bytes", "-1", "not a number of bytes"),
        ("cut", "{}", "not a list of positions"),
        ("cut", "[]", "not a list of positions"),
        ("cut", '["1:2", "1:-2"]', "a position is not"),
        ("cut", '["1:2", 3]', "a position is not"),
        ("cut", "[" * 9000, "not a list of positions"),
        ("trained_through", "NaN", "not JSON"),
        ("trained_through", '"' + "x" * 70000 + '"', "not JSON of at most 65536 bytes"),
        ("time", "inf", "not seconds since 1970"),
        ("time", "now", "not seconds since 1970"),
    )],
    (VERSION, "7-0", {"cut": None, "time": None}, "it lacks cut, time"),
    (DECISION, "9-1", {"kind": "promote"}, "a newer het_tf may know"),
    (DECISION, "9-1", {"version": "-1"}, "its version is no number"),
    (DECISION, "9-1", {"time": "nan"}, "not seconds since 1970"),
    (DECISION, "9-1", {"version": None}, "it lacks version"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "entry", "changes", "why"), NO_ENTRIES)
def test_entries_of_others_are_checked(made, entry, changes, why):
    words = made.fields()
    fields = {**dict(zip(words[::2], words[1::2], strict=True)), "more": "is ignored"}
    words = [word for pair in fields.items() for word in pair]
    assert parse_entry("7-0" if made is VERSION else "9-1", words) == made
    fields = {name: value for name, value in {**fields, **changes}.items() if value is not None}
    words = [word for pair in fields.items() for word in pair]
    with pytest.raises(VersionError, match=why) as caught:
        (parse_entry if made is DECISION else Version.parse)(entry, words)
    assert made is DECISION or caught.value.entry == entry


def test_an_append_whose_answer_was_lost_is_no_error(client):
    """Would catch a publisher that takes its own entry for another one's."""
    versions = Versions(client, "")
    versions.append(version(1))
    versions.append(version(1))
    with pytest.raises(TakenError, match="version 1 of namespace '' was not published: another process"):
        versions.append(version(1, time=2.5))
    assert versions.last() == [version(1)]


def test_two_publishers_never_write_one_version(publisher):
    """Would catch a number from the server's clock, and a refusal that overwrites."""
    made, refused = [[], []], []

    def publish(which):
        one = publisher()
        for number in range(20):
            try:
                made[which].append(one.publish(100 * which + number))
            except RuntimeError as error:
                refused.append(str(error))

    with ThreadPoolExecutor() as pool:
        list(pool.map(publish, (0, 1)))
    assert all("A namespace has one publisher" in text for text in refused)
    both = sorted(made[0] + made[1], key=lambda one: one.number)
    assert [one.number for one in both] == list(range(1, 41 - len(refused)))
    there = publisher()
    assert there._versions.last() == both[-10:]
    for one in both[-10:]:
        assert weight(there._client, one) == one.trained_through


# --- dense weights -----------------------------------------------------------------------------------------


def blobs_at(client):
    found = client.ask("x", "SCAN", 0, "MATCH", "het::dense:*", "COUNT", 10000)[1]
    return {key.rpartition(":")[2] for key in found}


def blobs_in(directory):
    return {name.partition(".")[0] for name in os.listdir(directory)}


@pytest.mark.parametrize("where", ["server", "directory"])
def test_blobs_stay_as_long_as_a_version_names_them(publisher, client, tmp_path, where):
    directory = tmp_path / "a" / "b" if where == "directory" else None
    one = publisher(keep=2, directory=directory)
    there = (lambda: blobs_in(directory)) if directory else (lambda: blobs_at(client))
    same = [one.publish(1), one.publish(2), one.publish(1)]  # the last and the first share a blob
    assert same[0].sha256 == same[2].sha256 and len(there()) == 2
    last = [one.publish(3), one.publish(4)]
    assert there() == {version.sha256 for version in last}
    assert [weight(client, version) for version in last] == [3, 4]
    with pytest.raises(LookupError, match=r"the dense weights of version 1, .*, are gone; take a later"):
        dense_store.fetch(client, same[0])


@pytest.mark.parametrize("where", ["server", "directory"])
def test_damaged_blobs_are_refused(publisher, client, tmp_path, where):
    one = publisher(directory=tmp_path / "d" if where == "directory" else None)
    made = one.publish(1)

    def damage(content):
        if where == "server":
            client.ask("het::dense:", "SET", made.dense.removeprefix("redis:"), content)
        else:
            (tmp_path / "d" / f"{made.sha256}.safetensors").write_bytes(content)

    content = bytearray(dense_store.fetch(client, made))
    content[-1] ^= 1
    damage(bytes(content))
    with pytest.raises(ValueError, match=r"of version 1, .*, are damaged: their sha256 is"):
        dense_store.fetch(client, made)
    content[-1] ^= 1
    damage(bytes(content))
    with pytest.raises(ValueError, match=f"have the signature {made.signature}, and the version says 0123"):
        dense_store.fetch(client, Version(**{**vars(made), "signature": DIGEST}))


def test_files_that_interrupted_writes_left_are_removed(publisher, tmp_path, monkeypatch):
    """Would catch a directory that grows with every kill, and the removal of what others have put there."""
    left, other = tmp_path / f".het_tf-0a1b2c3d0a1b2c3d-{DIGEST}.safetensors", tmp_path / "README"
    left.touch()
    other.touch()
    one = publisher(directory=tmp_path)
    one.publish(1)
    assert left.exists(), "another publisher may be writing it"
    monkeypatch.setattr(dense_store, "_ABANDONED_SECONDS", -1.0)
    one.publish(2)
    assert not left.exists() and other.exists()


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("where", ["server", "directory"])
@pytest.mark.parametrize("point", ["positions", "before", "put", "append", "clean"])
def test_a_publisher_that_dies_leaves_a_whole_version(publisher, client, tmp_path, monkeypatch, where, point):
    """Would catch a version that is named before its weights are there, and blobs that stay for ever."""
    directory = tmp_path / "d" if where == "directory" else None
    one = publisher(keep=3, directory=directory)
    first = one.publish(1)

    def die(*_, **__):
        raise Killed

    def die_half_way(sha256, content):
        put(sha256, content)
        raise Killed

    put, ask = one._store.put, one._client.ask
    patches = {
        "positions": [(publishing, "positions", die)],
        "before": [
            (one._client, "ask", lambda key, *words: die() if words[0] == "SET" else ask(key, *words)),
            (files, "sync", die),
        ],
        "put": [(one._store, "put", die_half_way)],
        "append": [(one._versions, "append", die)],
        "clean": [(one._store, "clean", die)],
    }
    for patch in patches[point]:
        monkeypatch.setattr(*patch)
    with pytest.raises(Killed):
        one.publish(2)
    monkeypatch.undo()

    last = Versions(client, "").last()[-1]
    assert last.number == (2 if point == "clean" else 1)
    assert weight(client, last) == last.number == last.trained_through
    assert last == first or point == "clean"
    next_one = publisher(keep=3, directory=directory)
    assert next_one.publish(3).number == last.number + 1
    monkeypatch.setattr(dense_store, "_ABANDONED_SECONDS", -1.0)
    next_one.publish(3)
    named = {version.sha256 for version in Versions(client, "").last()}
    assert (blobs_in(directory) if directory else blobs_at(client)) == named


# --- servers -----------------------------------------------------------------------------------------------


def test_every_key_is_at_its_server_of_a_cluster(fresh, tmp_path):
    """Would catch keys of partitions by another rule than the core's, and redirections not followed."""
    with het_ps_lib.cluster(tmp_path) as url, contextlib.ExitStack() as stack:
        places = address.parse(url).places
        nodes = [stack.enter_context(Node(place, address.parse(url))) for place in places]
        het_tf.init(ps=url)
        redis_lib.count(redis_lib.counter(), np.arange(1000), np.zeros(1000))
        het_tf.flush()
        one = PublisherOfArrays(url, 3, None)
        first = one.publish(1)
        direct = []
        for key in partitions.keys("", 64):
            answers = [node.ask_all([("HET.STAT", key)])[0] for node in nodes]
            words = next(one for one in answers if not isinstance(one, Refused))  # MOVED
            direct.append(f"{words[words.index('incarnation') + 1]}:{words[words.index('changes') + 1]}")
        assert first.cut == tuple(direct)
        assert sum(one.endswith(":0") for one in first.cut) == 64 - 8, "a table lies in 8 partitions"

        # The stream moves, and a read comes between its keys and its slot: ASK, then MOVED.
        slot = nodes[0].ask("CLUSTER", "KEYSLOT", "het::versions")
        source, target = nodes if slot < 8192 else nodes[::-1]  # each has half of the slots
        ids = [node.ask("CLUSTER", "MYID") for node in (source, target)]
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        source.ask("MIGRATE", target.place.host, target.place.port, "het::versions", 0, 20000)
        assert one._versions.last() == [first]
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        assert one.publish(2).number == 2
        assert [version.trained_through for version in one._versions.last()] == [1, 2]
        one.close()


def test_a_client_waits_for_a_server_that_restarts(fresh, tmp_path):
    with redis_lib.running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        with Client(address.parse(server.address), seconds=20.0) as client:
            client.ask("x", "SET", "x", b"\xff\0")
            server.kill()
            threading.Timer(0.5, server.start).start()
            assert client.ask("x", "GET", "x", raw=True) == b"\xff\0"
        server.kill()
        with Client(address.parse(server.address), seconds=0.2) as client:
            with pytest.raises(Unreachable, match=r"redis\.sock"):
                client.ask("x", "GET", "x")
        server.start()


def test_rights_of_users_are_enough_and_no_more(publisher, server):
    users = redis_lib.rights()
    for name in ("het-worker", "het-follower"):
        answer = server.command("ACL", "SETUSER", name, "on", ">pw", *users[name])
        assert answer.startswith(b"+OK"), answer
    try:
        url = {name: server.address.replace("//", f"//{name}:pw@") for name in users}
        worker = PublisherOfArrays(url["het-worker"], 2, None)
        made = [worker.publish(number) for number in range(4)]  # which removes blobs, too
        worker.close()
        with Client(address.parse(url["het-follower"]), seconds=0.1) as follower:
            versions = Versions(follower, "")
            assert later(versions, "2-0") == versions.last() == made[2:] and versions.get(4) == made[3]
            assert weight(follower, made[3]) == 3
            assert partitions.positions(follower, "") == made[3].cut
            with pytest.raises(Refused, match="NOPERM"):
                versions.append(version(9))
        reader = PublisherOfArrays(url["het-follower"], 2, None)
        with pytest.raises(RuntimeError, match=r"NOPERM.*users.conf has the rights that w"):
            reader.publish(5)
        reader.close()
    finally:
        server.command("ACL", "DELUSER", "het-worker", "het-follower")
