"""The data of benchmarks/accuracy: training and test rows of a seed, with ids as the tables see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

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

    description: Any
    train: Split
    test: Split
    oracle_auc: float | None


def make_data(name: str, seed: int, train_rows: int | None, test_rows: int | None) -> Data:
    """Returns the rows of one seed.

    Args:
      name: "criteo_like", "packages" (of benchmarks/defaults/pairs.py), "census" or "movielens".
      seed: of criteo_like's rows, both parts, and of how pairs are split; the others are the same for all
        seeds.
      train_rows, test_rows: how many; None: all that there are (criteo_like has no end).
    """
    from het_tf.data import PADDING, criteo_like, criteo_like_description, load
    from het_tf.zoo.data.criteo_truth import oracle_logit

    if name == "criteo_like":
        train, test = (
            criteo_like(train_rows or 1 << 19, seed),
            criteo_like(test_rows or 1 << 20, seed, TEST_BEGIN),
        )
        description = criteo_like_description()
        oracle = auc(test.label, oracle_logit(test))
    elif name == "packages":
        return _pairs(name, seed)
    else:
        train, _, test, description = load(name)
        train, test = train.take(slice(train_rows)), test.take(slice(test_rows))
        oracle = None
    numeric = train.numeric
    mean, deviation = (numeric.mean(0), np.maximum(numeric.std(0), 1e-6)) if numeric.size else (0, 1)

    def split(examples: Any) -> Split:
        scaled = ((examples.numeric - mean) / deviation).astype(np.float32)
        real = [(ids != PADDING).sum(1) for ids in examples.sequences.values()]
        lengths = np.stack([np.zeros(len(scaled)), *real], axis=1)[:, 1:].astype(np.float32)
        return Split({**examples.categorical, **examples.sequences}, scaled, lengths, examples.label)

    return Data(description, split(train), split(test), oracle)


def _pairs(name: str, seed: int) -> Data:
    from benchmarks.defaults.pairs import Part, make_pairs
    from het_tf.data import Description, Field

    pairs = make_pairs(name, seed)
    fields = tuple(Field(side, size) for side, size in zip(("who", "what"), pairs.sizes, strict=True))
    description = Description(
        name=name, categorical=fields, crosses=(), sequences=(), numeric=(), labels=("pair",)
    )

    def split(part: Part) -> Split:
        none = np.zeros((len(part.label), 0), np.float32)
        return Split({"who": part.who, "what": part.what}, none, none, part.label)

    return Data(description, split(pairs.train), split(pairs.test), None)


def part_ids(part: Any, split: Split) -> list[Int64Array]:
    """Returns the ids of a table's features: `[rows, F]` of its F fields of one id, `[rows, L]` a sequence.

    Fields share the table's ids as `het_tf.models` has it.
    """
    from het_tf.data import PADDING
    from het_tf.zoo.models.embedding_side import IdSpace

    space = IdSpace(part.fields)
    columns = []
    if part.single:
        columns.append(np.ascontiguousarray(space.stack(part.single, split.columns).numpy()))
    for field in part.sequences:
        ids = split.columns[field.name]
        columns.append(np.where(ids == PADDING, PADDING, space(field, ids).numpy()))
    return columns


def number_ids(columns: Sequence[Int64Array]) -> tuple[Int64Array, list[npt.NDArray[np.int32]]]:
    """Returns the distinct ids of one table's features, sorted, and each id's number among them.

    Field by field, since ids of one field are looked up faster than those of all of them at once.
    """
    from het_tf.data import PADDING

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
