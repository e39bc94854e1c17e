"""total_staleness: both bounds from one number and the number of workers, also when that changes."""

import numpy as np
import pytest
import tensorflow as tf
from played_lib import Played

import het_tf
from het_tf.python.session import settings
from het_tf.python.table import cache as cache_lib
from het_tf.python.table import registry


@pytest.fixture
def workers(fresh, monkeypatch):
    """A job whose number of workers the test sets; only the size is asked for."""
    made = Played(ranks=3)
    monkeypatch.setattr(settings.current, "hvd", made)
    return made


def bounds(name="t"):
    cache = het_tf.table(name).options["cache"]
    return cache["pull_bound"], cache["push_bound"]


@pytest.mark.parametrize("count", [2, 3, 16])
def test_too_little_is_refused(count):
    with pytest.raises(ValueError, match=rf"{count - 2} with {count} workers.*give at least {count - 1}"):
        cache_lib.derive_bounds(count - 2, count)


@pytest.mark.parametrize("count", [2, 3, 16])
@pytest.mark.parametrize("more", [0, 1, 2, 7, 12345])
def test_a_read_misses_at_most_so_much(more, count):
    others = count - 1
    total = others + more
    pull, push = cache_lib.derive_bounds(total, count)
    assert pull >= 0 and push >= 0
    assert pull + others * (push + 1) == total
    assert abs(pull - others * push) <= 2 * others  # halves, as far as whole numbers go


def test_a_layer_derives_them(workers):
    het_tf.keras.Embedding(2, table="t", cache=het_tf.Cache(total_staleness=20, rows=10))
    assert bounds() == (10, 4)


def test_one_worker_is_unbounded(fresh):
    het_tf.keras.Embedding(2, table="t", cache=het_tf.Cache(total_staleness=0, rows=10))
    assert bounds() == (None, None)


def test_too_little_is_refused_and_makes_no_table(workers):
    with pytest.raises(ValueError, match="total_staleness is 1 with 3 workers"):
        het_tf.keras.Embedding(2, table="t", cache=het_tf.Cache(total_staleness=1, rows=10))
    assert het_tf.tables() == []


@pytest.mark.parametrize("more", [{"pull_bound": 3}, {"push_bound": None}])
def test_one_way_of_saying_it(fresh, more):
    with pytest.raises(ValueError, match="it derives both"):
        het_tf.keras.Embedding(2, table="t", cache=het_tf.Cache(total_staleness=9, rows=10, **more))


@pytest.mark.parametrize("wrong", [-1, 1.5, "many"])
def test_what_is_no_number_of_updates_is_refused(fresh, wrong):
    with pytest.raises(ValueError, match="total_staleness is"):
        het_tf.keras.Embedding(2, table="t", cache=het_tf.Cache(total_staleness=wrong, rows=10))


def test_a_copy_derives_its_own(workers):
    layer = het_tf.keras.Embedding(2, table="t", cache=het_tf.Cache(total_staleness=20, rows=10))
    workers.ranks = 5
    with het_tf.namespace("copy"):
        type(layer).from_config(layer.get_config())
        assert bounds() == cache_lib.derive_bounds(20, 5)


def test_tables_follow_the_number_of_workers(workers):
    workers.ranks = 1
    layer = het_tf.keras.Embedding(
        2,
        table="t",
        optimizer=het_tf.optimizers.SGD(1.0),
        initializer="zeros",
        cache=het_tf.Cache(total_staleness=20, rows=10),
    )
    fixed = het_tf.keras.Embedding(2, table="fixed", cache=het_tf.Cache(staleness=7, hot=None, rows=10))
    auto = het_tf.keras.Embedding(2, table="auto", cache=het_tf.Cache(staleness=70, rows=10, hot="auto"))
    assert het_tf.table("auto").options["cache"]["hot"]["workers"] == 1

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([1]), training=True))
        tape.gradient(loss, layer.trainable_variables)

    def unsent():
        return het_tf.table("t").stats()["cache"]["unsent_rows"]

    for _ in range(9):
        step()
    assert unsent() == 1  # 9 ticks of one row, without a bound
    workers.ranks = 3
    registry.follow_workers()
    assert bounds() == (10, 4) and bounds("fixed") == (7, 7)
    assert het_tf.table("auto").options["cache"]["hot"]["workers"] == 3 and bounds("auto") == (70, 45)
    assert unsent() == 0  # 9 would be over the new bound
    for _ in range(3):
        step()
    assert unsent() == 1
    step()
    assert unsent() == 0  # the fourth is the last that the bound allows
    np.testing.assert_allclose(het_tf.table("t").lookup([1]), [[-9 - 4 / 3] * 2], rtol=1e-6)
    workers.ranks = 30
    with pytest.raises(ValueError, match="20 with 30 workers"):
        registry.follow_workers()
    assert bounds() == (10, 4) and layer._het_state.cache.push_bound == 4
    del fixed, auto
