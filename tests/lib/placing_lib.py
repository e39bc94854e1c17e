"""Which worker takes a sample: the rule of placed streams, read word by word."""

import numpy as np

GAMMA, WORDS = 0x9E3779B97F4A7C15, 1 << 64


def hashed(value: int | bytes) -> int:
    """The hash of a value of a field, with Python's integers."""
    if isinstance(value, bytes):
        x = (sum(byte * GAMMA ** (at + 1) for at, byte in enumerate(value)) + len(value)) % WORDS
    else:
        x = int(value) % WORDS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORDS
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORDS
    return x ^ x >> 31


def placed(values: list, workers: int, batch: int) -> np.ndarray:
    """Which samples each worker takes of each global batch, by queues: int64 [steps, workers, batch]."""
    return placed_by([(hashed(value) >> 1) % workers for value in values], workers, batch)


def placed_by(owners: list[int], workers: int, batch: int) -> np.ndarray:
    """As `placed`, from the owner of each sample."""
    found = []
    for begin in range(0, len(owners) - workers * batch + 1, workers * batch):
        taken: list[list[int]] = [[] for _ in range(workers)]
        spilled = []
        for sample in range(begin, begin + workers * batch):
            own = taken[owners[sample]]
            (own if len(own) < batch else spilled).append(sample)
        for sample in spilled:
            next(one for one in taken if len(one) < batch).append(sample)
        found.append([sorted(one) for one in taken])
    return np.array(found)
