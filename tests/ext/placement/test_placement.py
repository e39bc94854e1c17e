"""Which worker takes a sample: the rule, by an oracle that reads it word by word."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from het_tf.ext.placement.python.placement import Placement, hashes

GAMMA, WORDS = 0x9E3779B97F4A7C15, 1 << 64


def hashed(value: int | str | bytes) -> int:
    """Computes the rule of placed streams with Python integers."""
    if isinstance(value, int):
        x = value % WORDS
    else:
        text = value.encode() if isinstance(value, str) else value
        x = (sum(byte * GAMMA ** (at + 1) for at, byte in enumerate(text)) + len(text)) % WORDS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORDS
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORDS
    return x ^ x >> 31


def placed(values: list, workers: int, batch: int) -> list[list[list[int]]]:
    """Which samples each worker takes of each global batch, by queues."""
    found = []
    for begin in range(0, len(values) - workers * batch + 1, workers * batch):
        taken: list[list[int]] = [[] for _ in range(workers)]
        spilled = []
        for sample in range(begin, begin + workers * batch):
            owner = (hashed(values[sample]) >> 1) % workers
            (taken[owner] if len(taken[owner]) < batch else spilled).append(sample)
        for sample in spilled:
            next(one for one in taken if len(one) < batch).append(sample)
        found.append([sorted(one) for one in taken])
    return found


def streams() -> dict[str, list]:
    rng = np.random.default_rng(3)
    skewed = rng.zipf(1.3, 400)
    texts = [f"é{number % 97}" * (number % 4) for number in skewed]
    return {
        "spread": [int(one) for one in rng.integers(-(2**63), 2**63 - 1, 400)],
        "skewed": [int(one) for one in skewed],
        "one id": [7] * 400,
        "str": texts,
        "bytes": [text.encode() + b"\0" * (number % 3) for number, text in enumerate(texts)],
    }


@pytest.mark.parametrize("name", streams())
def test_the_rule_is_that_of_the_oracle(name: str) -> None:
    values = streams()[name]
    assert [int(one) for one in hashes(values)] == [hashed(one) for one in values]
    for workers, batch in ((1, 7), (2, 1), (3, 16), (8, 5), (40, 10), (200, 2)):
        found = Placement("f", workers, batch).place(values)
        assert found.tolist() == placed(values, workers, batch), (workers, batch)


def test_each_sample_goes_to_one_worker_mostly_owner() -> None:
    values = np.random.default_rng(0).integers(0, 10_000, 8 * 128 * 20)
    placement = Placement("f", 8, 128)
    order = placement.place(values)
    assert Counter(order.ravel().tolist()) == Counter(range(len(values)))
    own = placement.owners(hashes(values))[order] == np.arange(8)[:, None]
    assert own.mean() > 0.95
    assert len({tuple(one) for one in np.sort(order.reshape(20, -1), axis=1) // 1024}) == 20


def test_numbers_that_are_none_are_refused() -> None:
    for arguments in (("f", 0, 1), ("f", 2, 0), ("f", 2, 1.5), ("f", True, 1)):
        with pytest.raises(ValueError, match="give an integer of 1 or more"):
            Placement(*arguments)
