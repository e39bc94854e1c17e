"""Which worker takes a sample: the rule, by an oracle that reads it word by word."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from placing_lib import hashed, placed

from het_tf.ext.streams.python.location import SLOTS, keys_of
from het_tf.ext.streams.python.placement import Placement, hashes
from het_tf.python.session.native import ops


def streams() -> dict[str, list]:
    rng = np.random.default_rng(3)
    skewed = rng.zipf(1.3, 400)
    texts = [f"é{number % 97}".encode() * (number % 4) for number in skewed]
    return {
        "spread": [int(one) for one in rng.integers(-(2**63), 2**63 - 1, 400)],
        "skewed": [int(one) for one in skewed],
        "one id": [7] * 400,
        "text": [text + b"\0" * (number % 3) for number, text in enumerate(texts)],
    }


@pytest.mark.parametrize("name", streams())
def test_the_rule_is_that_of_the_oracle(name: str) -> None:
    values = streams()[name]
    found = hashes(tf.constant(values, tf.string if name == "text" else tf.int64))
    assert found.numpy().tolist() == [hashed(one) for one in values]
    for workers, batch in ((1, 7), (2, 1), (3, 16), (8, 5), (40, 10), (200, 2)):
        placement = Placement("f", workers, batch)
        for step, expected in enumerate(placed(values, workers, batch)[:30]):
            begin = step * placement.samples
            order = placement.order(placement.owners(found[begin : begin + placement.samples]))
            np.testing.assert_array_equal(order + begin, expected, err_msg=f"{workers} of {batch}")


def test_a_table_has_keys_of_its_own() -> None:
    """Catches keys without the table, and an id that would be no key (0)."""
    one, other = (keys_of(table, tf.range(6)).numpy() for table in (0, 1))
    assert len(np.unique([one, other])) == 12 and one.all() and other.all()


def test_the_op_refuses_what_is_no_global_batch() -> None:
    """Catches slots and keys that are read behind their ends."""
    keys = np.ones((4, 2), np.uint64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="8 keys of 6 samples"):
        ops.het_place_samples(keys, slots=tf.zeros([SLOTS], tf.uint32), number=0, workers=3, batch=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="are 9 slots and 2 workers; give"):
        ops.het_place_samples(keys, slots=tf.zeros([9], tf.uint32), number=0, workers=2, batch=2)
