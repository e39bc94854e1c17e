"""What several data sets are made of: parts, crosses, and examples of one label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from het_tf.python.hashing import cross
from het_tf.zoo.data.examples import Examples, Field, IdArray


def three(items: Any, train: int, valid: int) -> tuple[Any, Any, Any]:
    """Cuts an array or a list: its first `train` entries, the next ones up to `valid`, and the others."""
    return items[:train], items[train:valid], items[valid:]


def positives(categorical: Mapping[str, IdArray], sequences: Mapping[str, IdArray]) -> Examples:
    """Returns examples that are all of label 1, without numeric columns."""
    rows = len(next(iter(categorical.values())))
    return Examples(categorical, sequences, np.zeros((rows, 0), np.float32), np.ones(rows, np.float32))


def add_crosses(
    categorical: dict[str, IdArray], pairs: Sequence[tuple[str, ...]], buckets: int | None
) -> tuple[Field, ...]:
    """Adds the crosses of some categorical columns to them; returns the fields of the crosses.

    Args:
      categorical: The columns; gets the crosses, too.
      pairs: Names of the columns of each cross.
      buckets: Size of each cross's ids; None: 64-bit hashes.
    """
    fields = []
    for parts in pairs:
        fields.append(Field("_x_".join(parts), buckets, crossed=parts))
        columns = [categorical[part] for part in parts]
        categorical[fields[-1].name] = cross(fields[-1].name, columns, buckets)
    return tuple(fields)
