"""`criteo_like`: makes rows like Criteo's from a seed: ids, numbers, and labels of a known truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from het_tf.python.checks import whole
from het_tf.zoo.data.checks import check_shard
from het_tf.zoo.data.criteo_curves import criteo_like_parameters
from het_tf.zoo.data.criteo_ids import BLOCK, draw_ids
from het_tf.zoo.data.criteo_truth import NUMERIC_NAMES, draw_labels, draw_numeric, logits
from het_tf.zoo.data.examples import Description, Examples, Field
from het_tf.zoo.data.streams import Stream


def criteo_like(rows: int, seed: int = 0, start: int = 0) -> Examples:
    """Makes rows `[start, start + rows)` of the endless stream `seed`; equal in every call and place.

    The 26 fields have Criteo Kaggle's cardinalities, its skew (share of the most frequent id, unique ids in
    8,192 rows and in batches of 8 to 512), its chains, in which one field determines the next, and a context
    that chains and other fields share, so hit rates of caches, and the savings of placing rows on workers by
    a field, are about those of real rows. Labels are drawn from `oracle_logit` with a click rate of
    about 0.275; the oracle's AUC is about 0.82, that of only its first-order terms about 0.77. The
    numeric columns I1 to I4 are noisy views of the logit, each with a correlation of about 0.2; I5 to
    I13 are independent of the label; all are like log(x + 1) of a count.

    Args:
      rows: number of rows, 0 or more.
      seed: seed of ids, labels and numbers. The truth belongs to the data set: all seeds share it.
      start: the first row's number, 0 or more.

    Returns:
      `Examples` of 26 categorical fields C1 to C26 and 13 numeric columns I1 to I13.

    Raises:
      ValueError: if `rows` or `start` is negative.
    """
    whole("rows", rows, 0)
    whole("start", start, 0)
    ids = draw_ids(rows, seed, start)
    truth = logits(ids)
    return Examples(ids, {}, draw_numeric(truth, seed, start), draw_labels(truth, seed, start))


def criteo_like_description() -> Description:
    """Returns the description of `criteo_like`: 26 fields of 33,762,577 ids in all, 13 numbers."""
    fields = tuple(Field(field["name"], field["cardinality"]) for field in criteo_like_parameters()["fields"])
    return Description("criteo_like", fields, numeric=NUMERIC_NAMES)


@dataclasses.dataclass(frozen=True)
class CriteoLikeStream(Stream):
    """Rows `[start, start + rows)` of the stream `seed`, made on demand.

    Attributes:
      rows: the number of rows.
      seed, start: as for `criteo_like`.

    Raises:
      ValueError: if `rows` or `start` is negative.
    """

    rows: int
    seed: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        whole("rows", self.rows, 0)
        whole("start", self.start, 0)

    def shard(self, index: int, count: int) -> CriteoLikeStream:
        """Returns the `index`-th of `count` consecutive equal parts (the last `rows % count` rows drop out).

        Raises:
          ValueError: if `index` is not in `[0, count)`.
        """
        check_shard(index, count)
        rows = self.rows // count
        return CriteoLikeStream(rows, self.seed, self.start + index * rows)

    def blocks(self) -> Iterator[Examples]:
        """Yields the rows in order, in blocks of 16,384."""
        stop = self.start + self.rows
        for begin in range(self.start, stop, BLOCK):
            yield criteo_like(min(BLOCK, stop - begin), self.seed, begin)

    def like(self) -> Examples:
        """Returns examples of no rows, with this stream's columns."""
        return criteo_like(0)
