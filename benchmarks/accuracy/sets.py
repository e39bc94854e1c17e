"""The data of benchmarks/accuracy: training and test rows of a seed, with ids as the tables see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from data import PADDING, Splits, load

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

PAIRS = ("packages", "maintainers")
"""Those of benchmarks/defaults/pairs.py."""
TEST_BEGIN = 1 << 30
"""Criteo-like test rows begin here: no training row is one of them."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows of a data set.

    Attributes:
      columns: ids by the name of their field, int64 `[rows]` or `[rows, L]`, padded with PADDING.
      numeric: float32 `[rows, M]`, by mean and deviation of the training rows; M may be 0.
      lengths: of each sequence how many ids are real, float32 `[rows, S]`; S may be 0.
      label: float32 `[rows]`.
    """

    columns: Mapping[str, Int64Array]
    numeric: FloatArray
    lengths: FloatArray
    label: FloatArray


@dataclasses.dataclass(frozen=True)
class Data:
    """Training and test rows, and the AUC of a perfect model on the latter (None: unknown)."""

    splits: Splits
    train: Split
    test: Split
    oracle_auc: float | None


def make_data(name: str, seed: int, train_rows: int | None, test_rows: int | None) -> Data:
    """Returns the rows of one seed.

    Args:
      name: "criteo_like", one of PAIRS, "census" or "movielens".
      seed: of criteo_like's rows, both parts, and of how pairs are split; the others are the same for all
        seeds.
      train_rows, test_rows: how many; None: all that there are (criteo_like has no end).
    """
    import criteo_like

    oracle = None
    if name in PAIRS:
        return _pairs(name, seed)
    if name == "criteo_like":
        splits = Splits(None, None, None, criteo_like.fields(), numeric=13)
        train = criteo_like.rows(train_rows or 1 << 19, seed)
        test = criteo_like.rows(test_rows or 1 << 20, seed, TEST_BEGIN)
        ids = criteo_like.draw_ids(len(test), seed, TEST_BEGIN)
        oracle = auc(test.label, criteo_like.logits(ids))
    else:
        splits = load(name)
        train, test = splits.train.take(slice(train_rows)), splits.test.take(slice(test_rows))
    numeric = train.columns.get("numeric")
    mean, deviation = (0, 1) if numeric is None else (numeric.mean(0), np.maximum(numeric.std(0), 1e-6))

    def split(rows: Any) -> Split:
        none = np.zeros((len(rows), 0), np.float32)
        scaled = ((rows.columns.get("numeric", none) - mean) / deviation).astype(np.float32)
        real = [(rows.columns[one] != PADDING).sum(1) for one in splits.lists]
        lengths = np.stack([np.zeros(len(rows)), *real], axis=1)[:, 1:].astype(np.float32)
        return Split(rows.columns, scaled, lengths, rows.label)

    return Data(splits, split(train), split(test), oracle)


def _pairs(name: str, seed: int) -> Data:
    from benchmarks.defaults.pairs import Part, make_pairs

    pairs = make_pairs(name, seed)
    who, what = pairs.sizes

    def split(part: Part) -> Split:
        none = np.zeros((len(part.label), 0), np.float32)
        return Split({"who": part.who, "what": part.what + who}, none, none, part.label)

    splits = Splits(None, None, None, {"who": who, "what": what}, label="pair")
    return Data(splits, split(pairs.train), split(pairs.test), None)


def part_ids(part: Any, split: Split) -> list[Int64Array]:
    """Returns the ids of a table's features: `[rows, F]` of its F fields of one id, `[rows, L]` a list."""
    single = np.stack([split.columns[name] for name in part.single], axis=1)
    return [single, *(split.columns[name] for name in part.lists)]


def number_ids(columns: Sequence[Int64Array]) -> tuple[Int64Array, list[npt.NDArray[np.int32]]]:
    """Returns the distinct ids of one table's features, sorted, and each id's number among them.

    Field by field, since ids of one field are looked up faster than those of all of them at once.
    """
    flat = [column.reshape(len(column), -1) for column in columns]
    distinct = np.unique(np.concatenate([np.unique(one) for part in flat for one in part.T]))
    distinct = distinct[distinct != PADDING]
    numbers = []
    for part in flat:
        number = np.empty(part.shape, np.int32)
        for at in range(part.shape[1]):
            of_field, inverse = np.unique(part[:, at], return_inverse=True)
            place = np.searchsorted(distinct, of_field)
            number[:, at] = np.where(of_field == PADDING, len(distinct), place)[inverse]
        numbers.append(number)
    return distinct, numbers


def epochs_order(rows: int, epochs: int, of_step: int, seed: int) -> Int64Array:
    """Returns the row numbers of every step, int64 `[steps, of_step]`: shuffled epochs, less their rests."""
    rng = np.random.default_rng(seed)
    steps = rows // of_step
    order = [rng.permutation(rows)[: steps * of_step].reshape(steps, of_step) for _ in range(epochs)]
    return np.concatenate(order)


def auc(label: FloatArray, score: npt.NDArray[Any]) -> float:
    """Returns the exact area under the ROC curve, by ranks; equal scores share a rank."""
    order = np.argsort(score, kind="stable")
    ranked, positive = score[order], label[order] > 0
    group = np.cumsum(np.concatenate([[0], ranked[1:] != ranked[:-1]]))
    count = np.bincount(group)
    rank = (np.cumsum(count) - (count - 1) / 2)[group]
    positives = int(positive.sum())
    if positives in (0, len(label)):
        return float("nan")
    below = rank[positive].sum() - positives * (positives + 1) / 2
    return float(below / (positives * (len(label) - positives)))
