"""Limits of tables: ttl, max_rows and min_count, in this process and at a server."""

import json
import re
import time

import numpy as np
import pytest
import redis_lib
import tensorflow as tf
from launch_lib import until
from rules_lib import learn

import het_tf

pytestmark = [pytest.mark.usefixtures("fresh")]


def embedding(name="t", **limits):
    config = het_tf.TableConfig(name, 2, het_tf.optimizers.SGD(1.0), **limits)
    return het_tf.keras.Embedding(config, cache=het_tf.Cache(staleness=0))


def train(layer, ids):
    learn(layer, lambda: tf.reduce_sum(layer(np.asarray(ids), training=True)))


BAD_LIMITS = [
    ({"ttl": 0}, "ttl is 0; give an integer from 1 to 4294967295, or None for no limit"),
    ({"ttl": -5}, "ttl is -5; give"),
    ({"ttl": 1.5}, "ttl is 1.5; give"),
    ({"ttl": 2**32}, "ttl is 4294967296; give"),
    ({"max_rows": 0}, "max_rows is 0; give an integer from 1"),
    ({"max_rows": "many"}, "max_rows is 'many'; give"),
    ({"max_rows": True}, "max_rows is True; give"),
    ({"min_count": -1}, "min_count is -1; give an integer from 0 to 65535"),
    ({"min_count": 65536}, "min_count is 65536; give"),
    ({"min_count": 2, "min_count_ttl": 0}, "min_count_ttl is 0; give an integer from 1"),
    ({"ttl": 3600, "min_count": 2}, "min_count_ttl is 86400 and ttl 3600: .*; give min_count_ttl < ttl"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_LIMITS)
def test_limits_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        het_tf.TableConfig("t", 4, **arguments)


def test_limits_are_no_part_of_what_a_table_is():
    limited = het_tf.TableConfig("t", 2, ttl=60, max_rows=1000, min_count=2, min_count_ttl=30)
    plain = het_tf.TableConfig("t", 2)
    assert limited.spec == plain.spec
    assert limited.get_config() != plain.get_config()
    again = het_tf.TableConfig.from_config(limited.get_config())
    limits = {"ttl": 60, "max_rows": 1000, "min_count": 2, "min_count_ttl": 30}
    assert again._limits == limited._limits == limits
    old = {key: value for key, value in plain.get_config().items() if key not in limited._limits}
    assert het_tf.TableConfig.from_config(old)._limits == plain._limits


@pytest.mark.slow
@redis_lib.SERVER
def test_a_table_at_a_server_has_its_limits(server):
    het_tf.init(ps=server.address)
    layer = embedding(ttl=86401, max_rows=64_000, min_count=2, min_count_ttl=60)
    begin = int(time.time())
    train(layer, range(1000))

    def limits():
        found = []
        for key in re.findall(r"het:\S*\{\S*\}", server.command("KEYS", "het:*{*}").decode()):
            answer = server.command("HET.STAT", key, "TABLES").decode()
            found.append(json.loads(answer[answer.index("{") : answer.rindex("}") + 1])["limits"])
        return found

    assert len(limits()) == 64
    for found in limits():
        assert begin <= found.pop("since") <= time.time()
        assert found == {"ttl": 86401, "max_rows": 64_000, "min_count": 2, "min_count_ttl": 60}
    layer = embedding(ttl=1)  # declared again: the limits change, and the timer of the server sees to them
    assert {found["ttl"] for found in limits()} == {1}
    until(lambda: het_tf.Table("t").size == 0)
    train(layer, [3])
    assert het_tf.Table("t").scan()["counts"].tolist() == [1], "a new row"
