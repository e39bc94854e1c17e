"""Makes the history of each event: its owner's earlier events."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.checks import whole
from het_tf.zoo.data.examples import PADDING, Int64Array


def histories(
    who: npt.NDArray[Any],
    when: npt.NDArray[Any],
    what: npt.NDArray[Any],
    kept: npt.NDArray[np.bool_],
    length: int,
) -> Int64Array:
    """Returns the last items that each event's owner met strictly before the event.

    Args:
      who: integers `[N]`: the owner of each event.
      when: numbers `[N]`: its time. Events at the same time are not before each other.
      what: integers `[N]`: its item, 0 or more.
      kept: bool `[N]`: the events that go into histories.
      length: L, the most items of a history, at least 1; older ones are left out.

    Returns:
      int64 `[N, L]`, the oldest first, padded with `PADDING` at the end.

    Raises:
      ValueError: if `length` is below 1.
    """
    whole("history", length, what="the most items of a history")
    instant = np.unique(when, return_inverse=True)[1].astype(np.int64)
    key = np.asarray(who, np.int64) * (instant.max(initial=0) + 1) + instant  # by owner, then by time
    places = np.flatnonzero(kept)
    places = places[np.argsort(key[places], kind="stable")]
    sorted_keys, things = key[places], np.append(np.asarray(what, np.int64)[places], PADDING)
    end = np.searchsorted(sorted_keys, key, side="left")
    begin = np.maximum(np.searchsorted(sorted_keys, key - instant, side="left"), end - length)
    index = begin[:, None] + np.arange(length)
    return things[np.where(index < end[:, None], index, -1)]
