"""het ps reshard, and redis.conf and users.conf of examples/deploy, on real clusters."""

import contextlib
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import redis_lib
from het_ps_lib import ask, check, free_ports, het_ps, picture, train, up

import het_tf
from het_tf.ext.ps.python import address, cluster, programs, redis_server, reshard
from het_tf.ext.ps.python.redis_server import LocalServer

pytestmark = [pytest.mark.long, redis_lib.SERVER, pytest.mark.usefixtures("fresh")]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two shards; their address and URLs."""
    directory, port = tmp_path_factory.mktemp("two") / "ps", free_ports(2)
    with up(directory, "--shards", 2, "--port", port, "--appendfsync", "no"):
        yield f"redis://127.0.0.1:{port}", [f"redis://127.0.0.1:{port + n}" for n in range(2)]


def slots_of(urls: list[str]) -> list[set[int]]:
    return [set(mine(url).slots) for url in urls]


def mine(url: str) -> cluster.Peer:
    with redis_node(url) as node:
        return cluster.View(node).myself


def redis_node(url: str):
    return reshard.Node.of(address.parse(url))


@contextlib.contextmanager
def third(port: int):
    """A server that is of no cluster yet."""
    settings = {"cluster-enabled": "yes", "cluster-announce-ip": "127.0.0.1"}
    with LocalServer.start(port=port, settings=settings) as server:
        yield server


STEPS = ["importing", "migrating", "both", "half of the keys", "all keys", "told the target", "source forgot"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", [(0, 1), (1, 0)])
def test_a_slot_left_open_is_repaired(two, step, way):
    """As `redis-cli --cluster reshard` leaves it when it dies after each of its steps."""
    url, urls = two
    expected = train(url)
    # A second namespace, so that the slot has two keys.
    het_tf.reset()
    het_tf.init(ps=url, namespace="other")
    het_tf.keras.Embedding(2, name="t")
    het_tf.reset("other")
    het_tf.init(ps=url, namespace="")
    source, target = (urls[n] for n in way)
    ids = {source: mine(source).id, target: mine(target).id}
    keys = [key for key in ask(source, "KEYS", "het:*}") if key.startswith("het::")]
    slot = ask(source, "CLUSTER", "KEYSLOT", keys[7])
    both = ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10)
    assert len(both) == 2
    done = STEPS.index(step)
    if done != 1:
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    if done >= 1:
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    port = address.parse(target).places[0].port
    for key in both[: {3: 1, 4: 2, 5: 2, 6: 1}.get(done, 0)]:
        ask(source, "MIGRATE", "127.0.0.1", port, key, 0, 5000)
    if done == 5:
        ask(target, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    if done == 6:
        ask(source, "CLUSTER", "SETSLOT", slot, "STABLE")
    if done != 5:  # after that the source may hear of it by itself
        assert any(f"slot {slot} is open" in fault for fault in picture("--ps", url, status=1)["faults"])
        assert f"slot {slot} is open" in het_ps("reshard", "--ps", url, "--check", status=1).out
    het_ps("reshard", "--ps", url, "--repair")
    assert picture("--ps", url)["faults"] == []
    assert slot in mine(source if done < 2 else target).slots
    assert slots_of(urls)[0] | slots_of(urls)[1] == set(range(cluster.SLOTS))
    assert sorted(ask(source if done < 2 else target, "CLUSTER", "GETKEYSINSLOT", slot, 10)) == sorted(both)
    redis_lib.counter(rows=0)
    check(expected)
    het_tf.Table("t").drop()


def test_a_key_on_both_sides_is_not_overwritten(two):
    url, urls = two
    train(url)
    ids = [mine(one).id for one in urls]
    key = ask(urls[0], "KEYS", "het::*")[3]
    slot = ask(urls[0], "CLUSTER", "KEYSLOT", key)
    ask(urls[1], "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    ask(urls[0], "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    ask(urls[0], "MIGRATE", "127.0.0.1", address.parse(urls[1]).places[0].port, key, 0, 5000, "COPY")
    rows = ask(urls[0], "HET.STAT", key)
    done = het_ps("reshard", "--ps", url, status=1)
    assert f"{key} is both at" in done.err and "neither was changed" in done.err
    assert ask(urls[0], "HET.STAT", key) == rows
    # Follows the message.
    with redis_node(urls[1]) as node:
        assert node.ask_all([("ASKING",), ("DEL", key)])[1] == 1
    het_ps("reshard", "--ps", url, "--repair")
    assert picture("--ps", url)["faults"] == [] and slot in mine(urls[1]).slots
    het_tf.Table("t").drop()


@contextlib.contextmanager
def training(name: str, ids: np.ndarray):
    """A thread that trains rows of `ids` all the while; yields how often each was counted down."""
    stop, faults, count = threading.Event(), [], np.zeros(ids.max() + 1)

    def keep_training():
        rng = np.random.default_rng(5)
        layer = redis_lib.counter(name, staleness=2, rows=50)
        try:
            while not stop.is_set():
                redis_lib.count(layer, rng.choice(ids, 100), count)
        except Exception as error:  # the main thread reports it
            faults.append(error)

    thread = threading.Thread(target=keep_training)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()
    assert not faults


def test_shards_come_and_go_while_training(two):
    url, _ = two
    counts = np.zeros(200)
    place = f"127.0.0.1:{(free := free_ports(1))}"
    with third(free) as new:
        counts += train(url, 2)
        with training("u", np.arange(200)) as count:
            done = het_ps("reshard", "--ps", url, "--add", place)
            assert f"{place} joins the cluster" in done.err and "keys" in done.err
            share = [s["partitions"] for s in picture("--ps", url)["servers"]]
            assert sum(share) % 64 == 0 and max(share) - min(share) <= len(share)
            assert "partitions are even" in het_ps("reshard", "--ps", new.address, "--check").out
            done = het_ps("reshard", "--ps", url, "--remove", place)
            assert "has left the cluster, is empty, and can be stopped" in done.out
            with redis_node(new.address) as node:
                assert list(cluster.View(node).peers) == [cluster.View(node).myself.id]
                assert node.ask("DBSIZE") == 0
        het_tf.flush()
        np.testing.assert_array_equal(het_tf.Table("u").lookup(np.arange(200))[:, 0], -count)
        check(counts)
        het_tf.Table("u").drop()
        het_tf.Table("t").drop()
    assert picture("--ps", url)["faults"] == [], "the third is stopped, and not waited for"


def test_a_server_that_is_gone_is_taken_out(two):
    """`status` was at fault for ever, and its advice was to start a server that is gone."""
    url, urls = two
    place = f"127.0.0.1:{(free := free_ports(1))}"
    with third(free) as new, redis_node(urls[0]) as first, redis_node(new.address) as node:
        first.ask("CLUSTER", "MEET", "127.0.0.1", free, free + 10000)

        def alone() -> str:
            return "" if all(len(cluster.View(one).peers) == 3 for one in (node, first)) else "alone"

        cluster.await_true(alone, 30, print)
    (fault,) = picture("--ps", url, status=1)["faults"]
    assert f"If it is gone for good: `het ps reshard --remove {place}`" in fault
    assert f"{place} has left" in het_ps("reshard", "--ps", url, "--remove", place).out
    assert picture("--ps", url)["faults"] == []
    for one in urls:
        with redis_node(one) as node:
            assert len(cluster.View(node).peers) == 2


def test_what_reshard_refuses(two, tmp_path_factory):
    """Of a directory: `het ps up` would start the server again, empty, and `status --dir` would miss it."""
    url, _ = two
    directory = tmp_path_factory.getbasetemp() / "two0/ps"
    with LocalServer.start() as single:
        for words, why in (
            (("--ps", url, "--remove", "127.0.0.1:1"), "is not a server of this cluster; its servers are"),
            (("--dir", directory, "--remove", url.removeprefix("redis://")), "of a directory cannot be"),
            (("--ps", single.address), "is a single server: there is nothing to move"),
            (("--ps", url, "--add", f"127.0.0.1:{single.port}"), "does not run with cluster-enabled yes"),
        ):
            assert why in het_ps("reshard", *words, status=1).err


def conf_of_deploy(*files: str) -> str:
    """Lines of examples/deploy with the module of here, and with passwords."""
    text = "".join((redis_lib.DEPLOY / name).read_text() for name in files)
    return text.replace("/het/het.so", str(programs.find_module())).replace("CHANGE-ME", "pw")


@contextlib.contextmanager
def servers_of_conf(directory: Path, count: int):
    """Servers that run with nothing but the lines of examples/deploy, and a port each."""
    text = conf_of_deploy("redis.conf", "users.conf")
    first = free_ports(count)
    processes = []
    try:
        for number in range(count):
            place = directory / str(number)
            place.mkdir(parents=True)
            more = {"port": str(first + number), "dir": str(place), "cluster-announce-ip": "127.0.0.1"}
            (place / "conf").write_text(text + redis_server.config_text(more))
            with (place / "log").open("wb") as log:
                command = [redis_lib.PROGRAM, str(place / "conf")]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        for number in range(count):
            url = f"redis://het-operator:pw@127.0.0.1:{first + number}"
            redis_server.wait_ready(url, 20, log=directory / str(number) / "log")
        yield first
    finally:
        redis_lib.leave()
        for process in processes:
            process.kill()
            process.wait()


def redis_cli(port: int, *words: str) -> None:
    login = ("--user", "het-operator", "--pass", "pw", "--no-auth-warning", "-p", str(port))
    subprocess.run(["redis-cli", *login, *words], check=True, stdout=subprocess.PIPE)


def test_the_users_of_deploy_are_enough_and_no_more(tmp_path):
    with servers_of_conf(tmp_path, 6) as port:
        places = [f"127.0.0.1:{port + number}" for number in range(6)]
        operator = f"redis://het-operator:pw@{','.join(places)}"
        redis_cli(port, "--cluster", "create", *places, "--cluster-replicas", "1", "--cluster-yes")
        with contextlib.ExitStack() as stack:
            nodes = [stack.enter_context(redis_node(f"redis://het-operator:pw@{one}")) for one in places]
            cluster.await_true(lambda: cluster.not_ready(nodes), 60, print)
        worker = f"redis://het-worker:pw@127.0.0.1:{port}"
        expected = train(worker)
        table = het_tf.Table("t")
        table.assign([1000], np.ones((1, 2), np.float32))
        assert table.remove([1000]) == 1
        assert len(table.scan()["ids"]) == table.size == sum(expected > 0)
        for since in (None, "latest"):  # the second one is an increment
            het_tf.checkpoint.save(tmp_path / "saved", since=since)

        seen = picture("--ps", operator)
        assert [s["role"] for s in seen["servers"]] == ["primary", "replica"] * 3 and not seen["faults"]
        redis_cli(port, "BGREWRITEAOF")
        # Every right of het ps: moving slots with a login.
        ids = {n: mine(f"redis://het-operator:pw@127.0.0.1:{port + n}").id for n in range(2)}
        found = ask(f"redis://het-operator:pw@127.0.0.1:{port}", "SCAN", 0, "MATCH", "het:*}", "COUNT", 1000)
        slot = ask(operator, "CLUSTER", "KEYSLOT", found[1][0])
        ask(f"redis://het-operator:pw@127.0.0.1:{port + 1}", "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        ask(operator, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        assert "is finished (1 keys went over)" in het_ps("reshard", "--ps", operator, "--repair").err
        assert "1 slots moved, with 1 keys" in het_ps("reshard", "--ps", operator).out
        copies = [one for one in places if mine(f"redis://het-operator:pw@{one}").primary]
        redis_cli(address.parse(f"redis://{copies[0]}").places[0].port, "CLUSTER", "FAILOVER")
        check(expected)

        for user, words in [
            ("worker", "FLUSHALL"), ("worker", "CONFIG GET dir"), ("worker", "HGET a b"),
            ("worker", "CLUSTER RESET"), ("monitor", "CLUSTER FAILOVER"), ("monitor", "CONFIG GET dir"),
            ("operator", "FLUSHALL"), ("operator", "CONFIG SET dir /"), ("replica", "GET het:a"),
        ]:  # fmt: skip
            with pytest.raises(Exception, match="NOPERM"):
                ask(f"redis://het-{user}:pw@127.0.0.1:{port}", *words.split())
        with pytest.raises(Exception, match="NOAUTH"):
            ask(f"redis://127.0.0.1:{port}", "PING")
        assert "users.conf has the rights" in het_ps("reshard", "--ps", worker, status=1).err


def test_redis_conf_is_what_up_uses(tmp_path):
    """Would catch a setting that `up` gives, and servers that someone else runs lack."""
    text = conf_of_deploy("redis.conf")
    settings = dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert settings.pop("loadmodule") == str(programs.find_module())
    assert settings.items() >= redis_server.SETTINGS.items()
    directory, port = tmp_path / "ps", free_ports(2)
    with up(directory, "--shards", 2, "--port", port):
        for name, value in settings.items():
            (_, got) = ask(f"redis://127.0.0.1:{port}", "CONFIG", "GET", name)
            value = value.strip('"')
            if value[-2:] in (sizes := {"mb": 20, "gb": 30}):
                value = str(int(value[:-2]) << sizes[value[-2:]])
            assert got == value or value.replace("replica", "slave") in got, name
