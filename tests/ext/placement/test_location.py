"""The rule of location: that of het data and that of the op are one."""

from __future__ import annotations

import numpy as np
import pytest

from het_tf.ext.placement.python.location import SLOTS, Location, keys_of
from het_tf.ext.placement.python.placement import Placement
from het_tf.python.session.native import ops, tf


@pytest.mark.parametrize("workers, batch, width", [(1, 7, 3), (2, 4, 5), (3, 5, 1), (8, 16, 9), (70, 2, 4)])
def test_the_twins_agree(workers: int, batch: int, width: int) -> None:
    """Catches a difference in any part of the rule: scores, ties, the order by regret, rooms that fill up,
    keys of several workers, and keys that have one slot (upper bits are of few values, and lower ones too).
    """
    rng = np.random.default_rng(workers)
    rule, slots = Location(Placement("location", workers, batch)), tf.zeros([SLOTS], tf.uint32)
    for number in range(30):
        upper, lower = rng.zipf(1.3, (2, workers * batch, width)) % [[[4 * workers]], [[5]]]
        keys = (upper.astype(np.uint64) << np.uint64(50)) + lower.astype(np.uint64) + np.uint64(1)
        owners, slots = ops.het_place_samples(keys, slots=slots, number=number, workers=workers, batch=batch)
        np.testing.assert_array_equal(rule.owners(keys), owners)
        assert (np.bincount(owners, minlength=workers) == batch).all()


def test_a_table_has_keys_of_its_own() -> None:
    """Catches keys without the table, and an id that would be no key (0)."""
    ids = np.arange(6).reshape(3, 2)
    keys = keys_of([(0, ids), (1, ids), (0, ids[:, :1])])
    assert keys.shape == (3, 5) and len(np.unique(keys)) == 12 and keys.all()
    np.testing.assert_array_equal(keys[:, 4], keys[:, 0])


def test_the_op_refuses_what_is_no_global_batch() -> None:
    """Catches slots and keys that are read behind their ends."""
    keys = np.ones((4, 2), np.uint64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="8 keys of 6 samples"):
        ops.het_place_samples(keys, slots=tf.zeros([SLOTS], tf.uint32), number=0, workers=3, batch=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="are 9 slots and 2 workers; give"):
        ops.het_place_samples(keys, slots=tf.zeros([9], tf.uint32), number=0, workers=2, batch=2)
