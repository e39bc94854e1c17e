"""The ids of the local benchmarks; numpy alone, since every peer's environment imports it."""

from __future__ import annotations

import numpy as np

FEATURES = 26
SAMPLES = 4096
IDS = FEATURES * SAMPLES  # of a step
EXPONENT = 1.05
POOL = 32  # different steps, used in turn


def zipf_ids(count: int, rows: int, exponent: float = EXPONENT, seed: int = 1) -> np.ndarray:
    """Returns int64 [count] in [0, rows), Zipf-distributed, popular ones scattered over the whole range.

    Ranks come from inverting the continuous distribution of the same exponent. A bijection scatters them: in
    a real table popular rows are no neighbours, and a dense one must not gain from their being so here.
    """
    uniform = np.random.default_rng(seed).random(count)
    top = (rows + 1.0) ** (1 - exponent) - 1
    ranks = (1 + uniform * top) ** (1 / (1 - exponent)) - 1
    ranks = np.minimum(ranks.astype(np.int64), rows - 1)
    return (ranks * 7368787 + 12345) % rows


def pool(rows: int) -> np.ndarray:
    """Returns the ids of POOL steps, int64 [POOL, IDS]."""
    return zipf_ids(POOL * IDS, rows).reshape(POOL, IDS)


def gradient(dim: int) -> np.ndarray:
    """Returns the gradient of the looked-up rows, float32 [IDS, dim]: the same one at every step."""
    return (np.random.default_rng(2).standard_normal((IDS, dim)) * 0.01).astype(np.float32)


def initial_rows(rows: int, dim: int, chunk: int = 200_000):
    """Yields (ids, values) that fill the whole table, in chunks."""
    rng = np.random.default_rng(3)
    values = (rng.random((chunk, dim), np.float32) - 0.5) * 0.1
    for begin in range(0, rows, chunk):
        ids = np.arange(begin, min(rows, begin + chunk), dtype=np.int64)
        yield ids, values[: len(ids)]
