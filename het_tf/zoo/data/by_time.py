"""`by_time`: cuts a data set into periods, for models that keep training while the world changes."""

from __future__ import annotations

import itertools

import numpy as np

from het_tf.python.checks import whole
from het_tf.zoo.data.examples import Examples, Splits


def by_time(splits: Splits, field: str, count: int) -> list[Splits]:
    """Cuts each part of a data set into periods by a field whose ids are numbered in the order of time.

    Period p holds the ids from `p size / count` to `(p + 1) size / count`, so periods have equally many ids,
    not examples. Within a period the examples keep their order.

        for period in by_time(het_tf.data.load("gene_papers"), "paper", 20):
            ...  # ask the model about period.test, then
            model.fit(period.train.to_tf(2048), epochs=1)

    Args:
      splits: three `Examples` and their description.
      field: a categorical field with a size.
      count: number of periods, from 1 to that size.

    Returns:
      `count` splits, the earliest first, each with the description of the whole.

    Raises:
      ValueError: the field does not exist, its ids have no size, or `count` is out of range.
    """
    sizes = {one.name: one.size for one in splits.description.categorical}
    size = sizes.get(field)
    if size is None:
        known = [name for name, of in sizes.items() if of is not None]
        raise ValueError(f"field is {field!r}; give a categorical field that has a size: one of {known}.")
    whole("count", count, 1, size, f"the number of periods, at most the ids of {field}")
    parts = [_cut(part, part.categorical[field] * count // size, count) for part in splits[:3]]
    train, valid, test = parts
    return [Splits(*pieces) for pieces in zip(train, valid, test, [splits.description] * count, strict=True)]


def _cut(part: Examples, period: np.ndarray, count: int) -> list[Examples]:
    order = np.argsort(period, kind="stable")
    bounds = np.searchsorted(period[order], np.arange(count + 1))
    return [part.take(order[begin:end]) for begin, end in itertools.pairwise(bounds)]
