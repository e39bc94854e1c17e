"""het ps up, status and down, on real servers."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis_lib
from het_ps_lib import ask, caught_up, check, free_ports, het_ps, kill, picture, pids, train, up
from launch_lib import until

import het_tf
from het_tf.ext.ps.python import layout, programs, redis_server, status
from het_tf.ext.ps.python.redis_server import LocalServer

pytestmark = redis_lib.MARKS


def test_one_server_from_up_to_down(tmp_path):
    directory, port = tmp_path / "ps", free_ports(1)
    with up(directory, "--port", port, "--appendfsync", "always", "--maxmemory", "64mb") as done:
        address = f"redis://127.0.0.1:{port}"
        assert f"HET_PS={address}\n" in done.out
        assert "shard-0: started" in done.err
        assert (directory / "address").read_text() == address + "\n"
        expected = train(address)

        (server,) = picture("--dir", directory)["servers"]
        assert (server["state"], server["role"], server["shard"]) == ("up", "primary", 0)
        assert server["rows"] == sum(expected > 0) and server["partitions"] == 64
        assert server["maxmemory"] == 64 << 20 and server["persistence"] == "aof"
        table = het_ps("status", "--ps", address, "--interval", "0.05").out
        assert f"shard 0  primary  up  127.0.0.1:{port}\n    64 partitions, {server['rows']} rows" in table
        assert re.search(r"memory .* of 67.1 MB: .* partitions, .* replication; on disk: aof\n", table)
        assert re.search(r"[\d.]+ bytes a row", table)
        for path in (directory, *directory.rglob("*")):
            assert path.stat().st_mode & 0o077 == 0, path

        before = pids(directory)
        assert "runs already" in het_ps("up", "--dir", directory).err
        assert pids(directory) == before

        redis_lib.leave()
        het_ps("down", "--dir", directory)
        assert pids(directory) == {"shard-0": None}
        assert "does not run" in het_ps("down", "--dir", directory).err
        gone = het_ps("status", "--dir", directory, "--interval", "0.05", status=1).out
        assert f"shard 0  ?  down  127.0.0.1:{port}  shard-0" in gone
        assert re.search(r"Connection refused; its log ends: .*bye bye\. Start it \(`het ps up`\)", gone)

        het_ps("up", "--dir", directory)  # with what it was told the first time
        assert picture("--dir", directory)["servers"][0]["maxmemory"] == 64 << 20
        het_tf.init(ps=address)
        redis_lib.counter()
        check(expected)


@pytest.mark.long
def test_rates_are_those_of_the_interval(server):
    train(server.address)
    words = f"-m het_tf ps status --ps {server.address} --json --interval 5".split()
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as command:
        while command.poll() is None:
            train(server.address)
        (busy,) = json.loads(command.stdout.read())["servers"]
    (idle,) = picture("--ps", server.address)["servers"]
    for name in ("pushes_per_second", "rows_pulled_per_second"):
        assert busy[name] > 0 == idle[name]


def test_two_shards_of_which_one_dies(tmp_path):
    directory, port = tmp_path / "ps", free_ports(2)
    with up(directory, "--shards", 2, "--port", port, "--appendfsync", "always"):
        address = f"redis://127.0.0.1:{port},127.0.0.1:{port + 1}"
        assert (directory / "address").read_text().strip() == address
        expected = train(address)
        seen = picture("--dir", directory)
        assert [s["partitions"] for s in seen["servers"]] == [32, 32]
        assert sum(s["rows"] for s in seen["servers"]) == sum(expected > 0)
        assert [s["shard"] for s in seen["servers"]] == [0, 1] and not seen["faults"]

        before = pids(directory)
        kill(directory, "shard-1")
        for words in (["--dir", directory], ["--ps", address]):
            seen = picture(*words, status=1)
            assert [s["state"] for s in seen["servers"]] == ["up", "down"]
            assert any("does not answer: cannot connect to" in fault for fault in seen["faults"])
        again = het_ps("up", "--dir", directory).err
        assert "shard-0: runs already" in again and "shard-1: started" in again
        after = pids(directory)
        assert after["shard-0"] == before["shard-0"] and after["shard-1"] not in (None, before["shard-1"])
        check(expected)
        check(expected + train(address, seed=1))

        redis_lib.leave()
        het_ps("down", "--dir", directory)
        assert set(pids(directory).values()) == {None}


def await_primary(place: str) -> None:
    until(lambda: "role:master" in ask(f"redis://{place}", "INFO", "replication"))


@pytest.mark.long
def test_two_shards_with_replicas(tmp_path):
    directory, port = tmp_path / "ps", free_ports(4)
    with up(directory, "--shards", 2, "--replicas", 1, "--port", port, "--node-timeout", 1) as done:
        assert "With 2 shards a replica takes over only by `CLUSTER FAILOVER TAKEOVER` at it" in done.out
        address = (directory / "address").read_text().strip()
        expected = train(address)

        def roles() -> dict:
            seen = picture("--ps", address, status=0 if all(pids(directory).values()) else 1)
            return {s["place"]: (s["shard"], s["role"], s["state"]) for s in seen["servers"]}

        first, copy = f"127.0.0.1:{port}", f"127.0.0.1:{port + 2}"
        assert roles()[first] == (0, "primary", "up") and roles()[copy] == (0, "replica", "up")
        replica = caught_up(directory, copy)
        assert replica["name"] == "shard-0-b" and replica["rows"] > 20

        kill(directory, "shard-0-a")
        faults = "\n".join(picture("--dir", directory, status=1)["faults"])
        assert f"`CLUSTER FAILOVER TAKEOVER` at its replica {copy} does it" in faults
        assert "no link to its primary" in faults
        ask(f"redis://{copy}", "CLUSTER", "FAILOVER", "TAKEOVER")
        await_primary(copy)
        assert roles()[copy][1] == "primary" and roles()[first][2] == "down"
        het_ps("up", "--dir", directory)
        assert roles()[first] == (0, "replica", "up")
        check(expected)

        # And back, by plan, as before a restart of the promoted one.
        ask(f"redis://{first}", "CLUSTER", "FAILOVER")
        await_primary(first)
        assert roles()[first] == (0, "primary", "up") and roles()[copy] == (0, "replica", "up")
        check(expected + train(address, seed=1))

        redis_lib.leave()
        stops = re.findall(r"^(\S+): stops$", het_ps("down", "--dir", directory).err, re.MULTILINE)
        assert stops == ["shard-0-b", "shard-1-b", "shard-0-a", "shard-1-a"]


@pytest.mark.long
def test_three_shards_replace_a_primary_by_themselves(tmp_path):
    directory, port = tmp_path / "ps", free_ports(6)
    words = ("--shards", 3, "--replicas", 1, "--port", port, "--node-timeout", 1, "--appendfsync", "no")
    with up(directory, *words) as done:
        assert "TAKEOVER" not in done.out
        expected = train((directory / "address").read_text().strip())
        heir = f"127.0.0.1:{port + 3}"
        caught_up(directory, heir)
        kill(directory, "shard-0-a")
        await_primary(heir)
        seen = picture("--dir", directory, status=1)["servers"]
        assert next(s for s in seen if s["place"] == f"127.0.0.1:{port}")["state"] == "down"
        assert sorted(s["shard"] for s in seen if s["role"] == "primary" and s["rows"]) == [0, 1, 2]
        check(expected)


def test_down_leaves_others_alone(tmp_path):
    directory, port = tmp_path / "ps", free_ports(1)
    with up(directory, "--port", port):
        kill(directory, "shard-0")
        file = directory / "shard-0/pid"
        # The pid of a dead server belongs to another process, which may even run in the server's directory.
        with (
            subprocess.Popen(["sleep", "60"]) as stranger,
            subprocess.Popen(["sleep", "60"], cwd=directory / "shard-0") as visitor,
            LocalServer.start(port=port) as other,
        ):
            for pid in (stranger.pid, visitor.pid, other.pid, os.getpid(), 2**22 + 1):
                file.write_text(f"{pid}\n")
                done = het_ps("down", "--dir", directory, "--force", "--timeout", 3)
                assert "shard-0: does not run" in done.err
            file.write_text("nonsense")
            het_ps("down", "--dir", directory, "--force")
            assert stranger.poll() is None and visitor.poll() is None and other.alive()
            # `up` takes none of them for its own either, and its port is taken.
            done = het_ps("up", "--dir", directory, status=1)
            assert f"cannot listen on 127.0.0.1:{port} for shard-0 (Address already in use)" in done.err
            assert ask(other.address, "PING") == "PONG"
            stranger.kill()
            visitor.kill()


@pytest.mark.long
def test_a_server_that_hangs_is_killed_only_by_force(tmp_path, monkeypatch):
    monkeypatch.setattr(status, "_ANSWER_SECONDS", 0.3)
    directory = tmp_path / "ps"
    with up(directory, "--port", free_ports(1)):
        pid = pids(directory)["shard-0"]
        os.kill(pid, signal.SIGSTOP)
        seen = picture("--dir", directory, status=1)["servers"][0]
        assert seen["state"] == "down" and "gave no answer for 0 s" in seen["why"]
        done = het_ps("down", "--dir", directory, "--timeout", 0.5, status=1)
        assert f"process {pid} is not gone after 0.5 s" in done.err and "use --force" in done.err
        assert pids(directory)["shard-0"] == pid
        assert "is killed" in het_ps("down", "--dir", directory, "--timeout", 0.5, "--force").err
        assert pids(directory)["shard-0"] is None


def test_where_nobody_can_listen(tmp_path):
    done = het_ps("up", "--dir", tmp_path / "a", "--bind", "192.0.2.1", status=1)
    assert "is 192.0.2.1 an address of this machine" in done.err and "another --port" not in done.err


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6")
def test_an_ipv6_address(tmp_path):
    with up(tmp_path / "six", "--bind", "::1", "--port", free_ports(1)) as done:
        assert "[::1]:" in done.out
        (server,) = picture("--dir", tmp_path / "six")["servers"]
        assert server["place"].startswith("[::1]:") and server["state"] == "up"


@pytest.mark.long
def test_ports_that_are_taken(tmp_path):
    port = free_ports(2)
    directory = tmp_path / "ps"
    with LocalServer.start(port=port + 1):
        done = het_ps("up", "--dir", directory, "--shards", 2, "--port", port, status=1)
        assert f"127.0.0.1:{port + 1} for shard-1" in done.err and "another --port" in done.err
        assert f"127.0.0.1:{port} " not in done.err
        assert not list(directory.iterdir()), "nothing was made"
        with LocalServer.start(port=port + 10000):
            done = het_ps("up", "--dir", directory, "--shards", 2, "--port", port, status=1)
            assert f"127.0.0.1:{port + 10000} for shard-0" in done.err and "each port + 10000" in done.err
    with up(directory, "--shards", 2, "--port", port):
        assert all(pids(directory).values())


def test_what_a_running_server_refuses(tmp_path):
    directory = tmp_path / "ps"
    with up(directory, "--port", free_ports(1)):
        before = pids(directory)
        for words, why in [
            ("--shards 2", "has shards = 1, and 2 was asked for; leave the option out"),
            ("--unix", "has unix = False, and True was asked for"),
            ("--maxmemory 1gb", "maxmemory cannot change while shard-0 run"),
            ("--maxmemory 1,gb", "maxmemory is '1,gb'; write a number of bytes such as"),
            ("--maxmemory 12", "maxmemory is '12', 12 bytes, but a server takes"),
        ]:
            assert why in het_ps("up", "--dir", directory, *words.split(), status=1).err
        assert pids(directory) == before
        with layout.locked(directory):
            for command in ("up", "down"):
                assert "another het ps is at work" in het_ps(command, "--dir", directory, status=1).err
        het_ps("down", "--dir", directory)
        het_ps("up", "--dir", directory, "--maxmemory", "1gb")  # now it can
        assert picture("--dir", directory)["servers"][0]["maxmemory"] == 1 << 30


REFUSED = [
    ("up --dir full", "has other files than het ps's"),
    ("up --dir new --unix --shards 2", "a cluster's servers are reached over TCP"),
    ("up --dir new --shards 2 --port 60000", "the last server's port would be 70001"),
    ("up --dir new --unix --tls", "--tls is for servers with a port"),
    *[(f"up --dir new {option}", "error: argument") for option in (
        "--shards 0", "--port 70000", "--bind 0.0.0.0", "--bind host", "--replicas -1",
    )],
    ("down --dir full", "has no servers of het ps"),
    ("status", "give --dir DIR, --ps ADDRESS, or set HET_PS"),
    ("status --ps me:secret@host", "begins with none of"),
    ("status --ps redis://me:secret@host:x", "the port 'x' is not in"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "why"), REFUSED)
def test_what_is_refused_makes_nothing(tmp_path, monkeypatch, words, why):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("")
    monkeypatch.chdir(tmp_path)
    said = het_ps(*words.split(), status=2 if why.startswith("error") else 1).err
    assert why in said and "secret" not in said and not (tmp_path / "new").exists()


def test_what_up_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "MODULE", tmp_path / "none.so")
    assert "none.so is missing" in het_ps("up", "--dir", tmp_path / "new", status=1).err
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_WHEEL", "het_tf_none")
    assert "apt-get install redis-server" in het_ps("up", "--dir", tmp_path / "new", status=1).err


@pytest.mark.long
def test_a_server_that_does_not_start_quotes_its_log(tmp_path):
    directory = tmp_path / "ps"
    with up(directory, "--port", free_ports(1), "--appendfsync", "always") as _:
        train((directory / "address").read_text().strip())
        redis_lib.leave()
        het_ps("down", "--dir", directory)
        (base,) = (directory / "shard-0/appendonlydir").glob("*.incr.aof")
        base.write_bytes(b"*3\r\nnonsense" + base.read_bytes())
        done = het_ps("up", "--dir", directory, status=1)
        assert "the server ended; its log" in done.err and "Bad file format" in done.err


@pytest.mark.long
def test_servers_for_other_machines_have_a_password(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(redis_server, "is_loopback", lambda host: False)
    directory, port = tmp_path / "ps", free_ports(2)
    with up(directory, "--port", port, "--replicas", 1, "--bind", "127.0.0.2") as done:
        address = (directory / "address").read_text().strip()
        password = re.fullmatch(r"redis://:([0-9a-f]{32})@127.0.0.2:\d+,127.0.0.2:\d+", address).group(1)
        assert password not in done.out + done.err and "$(cat" in done.out
        for file in (directory / "address", directory / "het-ps.json", directory / "shard-0-a/redis.conf"):
            assert file.stat().st_mode & 0o77 == 0
        check(train(address))
        for words in (["--dir", directory], ["--ps", address]):
            shown = het_ps("status", *words, "--interval", "0.05").out
            assert "replica  up" in shown and password not in shown
        done = het_ps("status", "--ps", address.replace(password, "guess"), status=1)
        assert "WRONGPASS" in done.err and "guess" not in done.err
        assert "NOAUTH" in het_ps("status", "--ps", f"redis://127.0.0.1:{port}", status=1).err


def test_status_finds_servers_by_the_environment(tmp_path, monkeypatch):
    with redis_lib.running(tmp_path / "r", module=False) as server:
        monkeypatch.setenv("HET_PS", server.address)
        assert "has not loaded the module het" in picture(status=1)["faults"][0]
    assert "connection refused" in het_ps("status", status=1).err.lower()
