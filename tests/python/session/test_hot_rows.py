"""Two classes of rows: what `het_tf.Hot` and "auto" become in the core, and what is counted."""

from __future__ import annotations

import pytest
import tensorflow as tf

import het_tf
from het_tf.python.table.hot import push_of_others


def test_hot_rows_have_bounds_and_counters_of_their_own(fresh):
    hot = het_tf.Hot(rows=9, push=1, pull=2)
    layer = het_tf.keras.Embedding(4, name="hot", cache=het_tf.Cache(rows=7, staleness=5, hot=hot))
    assert het_tf.table("hot").options["cache"]["hot"] == {"rows": 9, "push_bound": 1, "pull_bound": 2}
    layer(tf.constant([1, 2, 3]), training=True)
    counted = het_tf.table("hot").stats()["cache"]
    assert (counted["hot_rows"], counted["hot_reads"]) == (3, 0)
    assert counted["hot_staleness"]["observed"] == 0
    auto = het_tf.Cache(rows=7, staleness=12, push_bound=3, hot="auto")
    het_tf.keras.Embedding(4, name="auto", cache=auto)
    assert het_tf.table("auto").options["cache"]["hot"] == {
        "rows": 4096, "push_bound": 3, "pull_bound": 12, "workers": 1
    }  # fmt: skip
    layer = het_tf.keras.Embedding(
        4, name="direct", cache=het_tf.Cache(staleness=5, hot=het_tf.Hot(push=5, pull=5))
    )
    assert het_tf.table("direct").options == {}, "the embedded store ignores it"


@pytest.mark.parametrize(
    ("arguments", "classes"),
    [
        ({}, True),
        ({"staleness": 1}, True),
        ({"staleness": 0}, False),
        ({"staleness": 0, "push_bound": 9}, True),
        ({"staleness": None}, False),
        ({"pull_bound": None}, False),
        ({"total_staleness": 20}, False),
        ({"hot": None}, False),
    ],
)
def test_by_default_hot_rows_are_fresher_where_rows_have_a_bound(fresh, arguments, classes):
    het_tf.keras.Embedding(4, name="t", cache=het_tf.Cache(rows=7, **arguments))
    assert ("hot" in het_tf.table("t").options["cache"]) == classes


@pytest.mark.parametrize(
    ("pull", "push", "workers", "expected"),
    [(30, 30, 1, 30), (30, 30, 2, 30), (30, 30, 8, 5), (30, 3, 8, 3), (30, None, 8, 5), (30, None, 1, None),
     (30, 30, 64, 2), (0, 30, 8, 2), (30, 0, 8, 0)],
)  # fmt: skip
def test_other_rows_are_pushed_the_more_often_the_more_workers_there_are(pull, push, workers, expected):
    assert push_of_others(pull, push, workers) == expected
