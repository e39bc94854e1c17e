"""Figures of a table, of its hash-sampled stream: `ids` are numbers of distinct ids, `samples` ascends."""

from typing import Any

import numpy as np

from het_tf.python.data.placement import Int64Array

TOP = 4096
_GROWTH, _QUANTILES = 24, 64
_HOT = 10  # the top tenth


def growth(
    ids: Int64Array, samples: Any, distinct: int, rows: int, until: int, all_samples: int
) -> list[list[float]]:
    """[samples, distinct ids] at geometric points; those of the sample stand for `rows` in all."""
    first = np.empty(distinct, samples.dtype)
    first[ids[::-1]] = samples[::-1]  # the first use is assigned last
    first.sort()
    at = np.unique(np.geomspace(1, until, _GROWTH).round().astype(np.int64)) if distinct else np.empty(0, int)
    found = np.searchsorted(first, at) * (rows / max(1, distinct))
    points = [[int(when), round(float(many), 3)] for when, many in zip(at, found, strict=True)]
    return points if until == all_samples and distinct else [*points, [all_samples, rows]]


def quantiles(head: Int64Array, tail: Any, ratio: int, uses: int) -> list[list[float]]:
    """[share of rows, share of uses] at geometric ranks, the most used rows first.

    Args:
      head: Uses of ids that were counted, [n].
      tail: Uses of other ids in the sample, [m]; 0: none is.
      ratio: Ids that each of the tail stands for.
      uses: Of all ids.
    """
    values, many = np.unique(tail[tail > 0], return_counts=True)
    left = max(0, uses - int(head.sum()))
    scale = left / max(1, ratio * int(np.dot(values, many)))
    times = np.concatenate([head, values * scale])
    stands = np.concatenate([np.ones(len(head)), many * float(ratio)])
    order = np.argsort(-times, kind="stable")
    ranks = np.concatenate([[0], np.cumsum(stands[order])])
    used = np.concatenate([[0], np.cumsum((stands * times)[order])])
    at = np.geomspace(1, max(1, ranks[-1]), _QUANTILES)
    shares = np.interp(at, ranks, used) / max(1, used[-1])
    return [[float(one), float(other)] for one, other in zip(at / at[-1], shares, strict=True)]


def drift(ids: Int64Array, samples: Any, distinct: int, until: int) -> float | None:
    """The share of the second half's uses that the most used tenth of the first half's ids has."""
    middle = int(np.searchsorted(samples, until // 2))
    if not 0 < middle < len(ids):
        return None
    times = np.bincount(ids[:middle], minlength=distinct).astype(np.int32)
    top = -(-int(np.count_nonzero(times)) // _HOT)
    least = int(np.partition(times, -top)[-top])
    hot = times > least
    hot[np.flatnonzero(times == least)[: top - int(hot.sum())]] = True
    return float(hot[ids[middle:]].mean())
