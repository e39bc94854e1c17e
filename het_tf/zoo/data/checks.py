"""Checks of arguments that several data sets take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def check_thresholds(thresholds: Any, labels: Sequence[str]) -> None:
    """Raises ValueError if `thresholds` are not those of some of the labels."""
    if not isinstance(thresholds, Mapping) or not set(thresholds) <= set(labels):
        raise ValueError(
            f"thresholds is {thresholds!r}, and the labels are {list(labels)}; name them, as in "
            f"{{{labels[0]!r}: 4}}"
        )


def check_shard(index: int, count: int) -> None:
    """Raises ValueError unless `index` is in `[0, count)`."""
    if not 0 <= index < count:
        raise ValueError(
            f"shard {index} of {count} does not exist; give an index in [0, count), for example "
            "shard(hvd.rank(), hvd.size())."
        )
