"""Tables at a Redis server with the het module, through the layers: what they learn must not depend on it."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from floats_lib import MODEL, assert_close
from launch_lib import until

import het_tf

pytestmark = redis_lib.MARKS


def stores(server):
    """Goes to tables of this process, then to those of a server."""
    for ps in ("", server.address):
        het_tf.reset()
        het_tf.init(ps=ps)
        yield ps


# Steps at a server by all optimizers: exactness_test.cc, RedisFaults; by layers: `train` and
# `check` of het_ps_lib.py.
def test_rows_move_to_a_server_with_their_ages(server):
    moved = {}
    for ps in stores(server):
        optimizer = het_tf.optimizers.RowWiseAdagrad(0.1, decay_steps=4)
        cache = het_tf.Cache(staleness=0, wire="float32")
        layer = het_tf.keras.Embedding(4, name="t", optimizer=optimizer, cache=cache)
        table = het_tf.Table("t")
        if not ps:
            redis_lib.train(layer, 25)
            rows = redis_lib.rows_of("t")
            ages = rows["clocks"]
            assert ages.max() > ages.min()
        else:
            table.assign(rows["ids"], rows["rows"], with_slots=True, clocks=ages)
            there = redis_lib.rows_of("t")
            np.testing.assert_array_equal(there["rows"], rows["rows"])
            np.testing.assert_array_equal(there["clocks"] % 2**20, ages)
        redis_lib.train(layer, 3)
        moved[ps] = table.lookup(rows["ids"])
    assert_close(moved[server.address], moved[""], MODEL)


def test_a_sample_is_of_rows_of_the_whole_table(server):
    ids = np.arange(0, 9000, 3)
    for _ in stores(server):
        het_tf.keras.Embedding(4, name="t")
        table = het_tf.Table("t")
        assert table.sample(5)[1].shape == (0, 4)
        table.assign(ids, np.repeat(ids[:, None], 4, axis=1).astype(np.float32))
        for count in (1, 63, 500):
            drawn, rows = table.sample(count, seed=1)
            assert drawn.shape == (count,) and set(drawn) <= set(ids)
            np.testing.assert_array_equal(rows, np.repeat(drawn[:, None], 4, axis=1))
        np.testing.assert_array_equal(drawn, table.sample(500, seed=1)[0])
        assert set(drawn) != set(table.sample(500, seed=2)[0])
        # Every place has its chance: the mean of 64 samples is that of the rows, to 5 deviations.
        means = [table.sample(64, seed=seed)[1][:, 0].mean() for seed in range(64)]
        assert np.mean(means) == pytest.approx(ids.mean(), abs=5 * float(np.std(means)) / 8)
        for count in (3000, 2**40):
            assert sorted(table.sample(count)[0]) == ids.tolist(), "all of a small table, each once"
        table.remove(ids[30:])
        assert sorted(table.sample(100)[0]) == ids[:30].tolist() and set(table.sample(7)[0]) <= set(ids[:30])
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match=r"count is .*; give a number of rows"):
            table.sample(bad)


def test_lookup_gives_the_rows_of_the_store_where_asked(server):
    """The cache has them with what rounding has taken from updates on their way."""
    for _ in stores(server):
        cache = het_tf.Cache(rows=100, staleness=100, wire="int8")
        redis_lib.train(het_tf.keras.Embedding(4, name="t", cache=cache), 25)
        table = het_tf.Table("t")
        asked = np.array([[3, 10**9, 1], [1, 2, 3]])  # one that has no row, and some twice
        found = table.lookup(asked, stored=True)  # before to_numpy, which sends what the cache holds back
        values = dict(zip(*table.to_numpy(), strict=True))
        np.testing.assert_array_equal(found[0, 1], table.lookup(10**9))
        for place in np.argwhere(asked < 10**9):
            np.testing.assert_array_equal(found[tuple(place)], values[asked[tuple(place)]])
        assert np.abs(table.lookup(asked) - found).max() > 0
        table.clear()  # the partitions have other epochs now
        np.testing.assert_array_equal(table.lookup(asked, stored=True)[0, 0], table.lookup(3))


def test_updates_that_reach_their_age_are_sent_without_a_step(server):
    """Defect: the thread between steps sleeps on, because nothing is on its way."""
    het_tf.init(ps=server.address)
    for name in ("kept", "aged"):
        cache = het_tf.Cache(staleness=math.inf, rows=100, push_max_age=0.2 if name == "aged" else None)
        layer = het_tf.keras.Embedding(4, name=name, cache=cache)
        redis_lib.train(layer, 5)

    def figures(name):
        found = het_tf.Table(name).stats()["cache"]
        return found["unsent_rows"], found["age_push"]

    rows = figures("kept")[0]
    assert rows > 30
    until(lambda: figures("aged")[0] == 0)
    assert figures("aged")[1] >= rows and figures("kept") == (rows, 0)
    table = het_tf.Table("aged")
    assert table.stats()["rows"] == rows, "the server has them"
    assert table.options["cache"]["push_max_age"] == 0.2


def test_reset_ends_the_connections_though_a_graph_lives_on(server):
    het_tf.init(ps=server.address)
    layer = het_tf.keras.Embedding(3, name="t", initializer="zeros", optimizer=het_tf.optimizers.SGD(1.0))
    look = tf.function(lambda ids: layer(ids, training=False))

    def connections():
        clients = server.command("CLIENT", "LIST").decode().splitlines()
        return sum("addr=" in client and "cmd=client" not in client for client in clients)

    redis_lib.train(layer, 3)
    np.testing.assert_array_equal(look(tf.constant([7])).shape, [1, 3])
    assert connections() >= 2, "of the store and of the transport"
    het_tf.reset()
    until(lambda: connections() == 0)  # the server notices a moment later
    with pytest.raises(tf.errors.FailedPreconditionError, match="no table 't'"):
        look(tf.constant([7]))
    het_tf.keras.Embedding(3, name="t", initializer="zeros", optimizer=het_tf.optimizers.SGD(1.0))
    np.testing.assert_array_equal(look(tf.constant([7])), het_tf.Table("t").lookup([7]))


@pytest.mark.long
def test_the_manual_begins_with_what_works(tmp_path):
    manual = (Path(__file__).parents[3] / "docs/servers.md").read_text()
    (command,) = re.findall(r"^valkey-server (.*)$", manual, re.MULTILINE)
    block = re.findall(r"^```python\n(.*?)^```", manual, re.MULTILINE | re.DOTALL)[0]
    port = str(redis_lib.free_port())
    words = command.replace("PATH/het.so", str(redis_lib.MODULE)).replace("6379", port).replace("''", "")
    server = redis_lib.Server(tmp_path)
    places = ["--dir", str(tmp_path), "--unixsocket", str(server.socket)]
    server.arguments = [redis_lib.PROGRAM, *words.split(" "), *places]
    # The users of examples/deploy train in test_het_ps_reshard.py.
    needed = re.compile(r"^An ACL user of workers needs, on `(.*)`:\n\n```\n(.*)\n```$", re.MULTILINE)
    keys, commands = (text.split() for text in needed.search(manual).groups())
    told = [*keys, "resetchannels", "-@all", *commands]
    assert told == redis_lib.rights()["het-worker"][: len(told)], "and those of publishing"
    try:
        server.start()
        exec(block.replace("6379", port), {})
        redis_lib.train(het_tf.keras.Embedding(2, name="t"), 2)
        assert b"het_rows" in server.command("INFO", "het")
    finally:
        redis_lib.leave()
        server.stop()
