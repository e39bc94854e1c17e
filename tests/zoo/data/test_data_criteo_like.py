"""The Criteo-like stream: random access, skew, chains, and the hidden truth."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

from het_tf.zoo.data import (
    CriteoLikeStream,
    Examples,
    criteo_like,
    load,
)
from het_tf.zoo.data.criteo_curves import criteo_like_parameters, curve
from het_tf.zoo.data.criteo_ids import BLOCK, draw_ids
from het_tf.zoo.data.criteo_stream import criteo_like_description
from het_tf.zoo.data.criteo_truth import oracle_logit

pytestmark = pytest.mark.slow

PARAMETERS = criteo_like_parameters()
FIELDS = {field["name"]: field for field in PARAMETERS["fields"]}


@pytest.fixture(scope="module")
def examples() -> Examples:
    return criteo_like(200_000, seed=1)


def auc(label: np.ndarray, score: np.ndarray) -> float:
    rank = np.empty(len(score))
    rank[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    positive = label.sum(dtype=np.float64)
    return (rank[label > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))


@pytest.mark.parametrize(("rows", "start"), [(-1, 0), (1, -1)])
def test_negative_ranges_are_refused(rows: int, start: int) -> None:
    with pytest.raises(ValueError, match="is -1; give an integer of 0 or more"):
        criteo_like(rows, start=start)
    with pytest.raises(ValueError, match="is -1; give an integer of 0 or more"):
        CriteoLikeStream(rows, 0, start)


def test_oracle_needs_every_field(examples: Examples) -> None:
    some = Examples({"C1": examples.categorical["C1"]}, {}, examples.numeric, examples.label)
    with pytest.raises(ValueError, match=r"lack the fields \['C2', "):
        oracle_logit(some)


@pytest.mark.parametrize("name", ["criteo_like:", "criteo_like:many", "criteo_like:-5", "criteo_like:9"])
def test_load_refuses_a_bad_number_of_rows(name: str) -> None:
    with pytest.raises(ValueError, match="give a whole number of 10 or more, as in criteo_like:1000000"):
        load(name)


@pytest.mark.parametrize("name", ["", "criteo", "criteo:", "cencus", "census:3"])
def test_load_refuses_unknown_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is no data set|names no file"):
        load(name)


def same(one: Examples, other: Examples) -> bool:
    return (
        all((one.categorical[name] == other.categorical[name]).all() for name in one.categorical)
        and (one.numeric == other.numeric).all()
        and (one.label == other.label).all()
    )


def test_any_range_is_the_same_rows(examples: Examples) -> None:
    for start, rows in ((0, 0), (0, 1), (7, 3), (BLOCK - 2, 5), (150_000, 2 * BLOCK + 1)):
        assert same(criteo_like(rows, 1, start), examples.take(slice(start, start + rows)))
    far = 10**15
    assert same(criteo_like(10, 1, far + 5), criteo_like(20, 1, far).take(slice(5, 15)))


def test_seeds_give_other_rows_of_the_same_truth(examples: Examples) -> None:
    other = criteo_like(1000, seed=2)
    assert not same(other, examples.take(slice(0, 1000)))
    again = Examples(other.categorical, {}, other.numeric, other.label)
    np.testing.assert_array_equal(oracle_logit(other), oracle_logit(again))
    assert (
        abs(auc(criteo_like(100_000, seed=2).label, oracle_logit(criteo_like(100_000, seed=2))) - 0.82) < 0.01
    )


def test_ids_are_those_whose_hits_and_savings_match_real_rows() -> None:
    """Ids of an earlier version, which tools/criteo_excerpt.py compares with an excerpt of Criteo's rows."""
    digest = hashlib.sha256()
    for name, ids in draw_ids(4 * 8192, seed=1).items():
        digest.update(name.encode() + ids.astype("<i8").tobytes())
    assert digest.hexdigest() == "9f0986571c40372f393ddb6847d931243514b2747e39358361b7f91f45d069d7"


def test_unique_ids_per_batch_are_within_5_percent() -> None:
    rows = 1 << 17
    ids = draw_ids(rows, seed=3)
    begin = np.cumsum([0] + [field.size for field in criteo_like_description().categorical])
    table = np.stack([column + first for column, first in zip(ids.values(), begin, strict=False)], axis=1)
    for size, wanted in PARAMETERS["unique_ids_per_batch"].items():
        batches = table[: rows // int(size) * int(size)].reshape(-1, int(size) * 26)[:400]
        unique = np.mean([len(np.unique(batch)) for batch in batches])
        assert unique == pytest.approx(wanted, rel=0.05), f"batch {size}"


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_keeps_its_cardinality_skew_and_uniques(name: str, examples: Examples) -> None:
    field, ids = FIELDS[name], examples.categorical[name]
    assert ids.min() >= 0 and ids.max() < field["cardinality"]
    unique = np.mean([len(np.unique(part)) for part in ids[: 16 * 8192].reshape(16, 8192)])
    assert unique == pytest.approx(field["unique_in_8192"], rel=0.05, abs=1.5)
    # Where the first two frequencies are near, the law's second id may come out the first.
    top = np.unique(ids, return_counts=True)[1].max() / len(ids)
    assert top == pytest.approx(field["top1"], rel=0.15, abs=0.002)


@pytest.mark.parametrize("name", FIELDS)
def test_every_id_can_occur(name: str) -> None:
    table = curve(name)
    first, width = table.packed >> 16, table.packed & 0xFFFF
    seen = np.zeros(table.cardinality, np.int32)
    np.add.at(seen, np.unique(first[width == 1]), 1)
    for begin, count in zip(first[width > 1], width[width > 1], strict=True):
        seen[begin : begin + count] += 1
    assert (seen == 1).all(), "each rank has exactly one place in the CDF"
    assert np.gcd(table.factor, table.cardinality) == 1, "ranks to ids is a permutation"


def determined(parent: np.ndarray, child: np.ndarray) -> float:
    """Returns the share of rows whose child is the most frequent one of their parent's id."""
    pairs, counts = np.unique(np.stack([parent, child]), axis=1, return_counts=True)
    best = np.zeros(len(np.unique(parent)))
    np.maximum.at(best, np.unique(pairs[0], return_inverse=True)[1], counts)
    return best.sum() / len(parent)


def test_chains_determine_the_next_field(examples: Examples) -> None:
    links = 0
    for chain in PARAMETERS["chains"]:
        for parent, child in itertools.pairwise(chain):
            if child.startswith("C26"):
                continue
            assert determined(examples.categorical[parent], examples.categorical[child]) == 1.0, (
                parent,
                child,
            )
            links += 1
    assert links == 9
    # Parents seen often, so that the share is not that of ids seen once.
    parent, child = examples.categorical["C24"], examples.categorical["C26"]
    ids, counts = np.unique(parent, return_counts=True)
    often = np.isin(parent, ids[(counts > 100)])
    assert 0.78 < determined(parent[often], child[often]) < 0.92


def test_other_fields_are_independent(examples: Examples) -> None:
    one, other = examples.categorical["C1"], examples.categorical["C10"]
    top = [np.bincount(ids).argmax() for ids in (one, other)]
    both = ((one == top[0]) & (other == top[1])).mean()
    assert both == pytest.approx((one == top[0]).mean() * (other == top[1]).mean(), rel=0.05)


def test_labels_follow_the_truth(examples: Examples) -> None:
    logit, first_order = oracle_logit(examples), oracle_logit(examples, pairs=False)
    assert examples.label.mean() == pytest.approx(PARAMETERS["labels"]["ctr"], abs=0.01)
    assert auc(examples.label, logit) == pytest.approx(0.82, abs=0.006)
    assert auc(examples.label, first_order) == pytest.approx(0.77, abs=0.012)
    probability = 1 / (1 + np.exp(-logit.astype(np.float64)))
    for part in np.array_split(np.argsort(logit), 10):
        assert examples.label[part].mean() == pytest.approx(probability[part].mean(), abs=0.012)


def test_weights_have_the_stated_spread() -> None:
    ids = {name: np.arange(2000) % FIELDS[name]["cardinality"] for name in FIELDS}
    rows = Examples(ids, {}, np.zeros((2000, 0), np.float32), np.zeros(2000, np.float32))
    one = oracle_logit(rows, pairs=False)
    changed = {**ids, "C3": ids["C3"] + 5000}
    two = oracle_logit(Examples(changed, {}, rows.numeric, rows.label), pairs=False)
    assert np.std(one - two) == pytest.approx(0.26 * np.sqrt(2), rel=0.06)


def test_numeric_columns_say_little(examples: Examples) -> None:
    assert examples.numeric.shape == (200_000, 13) and examples.numeric.min() == 0
    correlation = [np.corrcoef(column, oracle_logit(examples))[0, 1] for column in examples.numeric.T]
    assert all(0.15 < value < 0.25 for value in correlation[:4])
    assert all(abs(value) < 0.01 for value in correlation[4:])
    between = np.corrcoef(examples.numeric.T) - np.eye(13)
    assert np.abs(between).max() < 0.06


def test_splits_and_shards_are_disjoint_ranges() -> None:
    train, valid, test, description = load("criteo_like:1_003", seed=4)
    assert [part.rows for part in (train, valid, test)] == [803, 100, 100]
    whole = criteo_like(1003, 4)
    parts = [part.read() for part in (train, valid, test)]
    assert same(Examples(*(_joined(parts))), whole)
    shards = [train.shard(index, 4) for index in range(4)]
    assert [shard.rows for shard in shards] == [200] * 4
    assert same(Examples(*_joined([shard.read() for shard in shards])), whole.take(slice(0, 800)))
    with pytest.raises(ValueError, match="shard 4 of 4 does not exist"):
        train.shard(4, 4)
    assert [field.size for field in description.categorical] == [
        field["cardinality"] for field in FIELDS.values()
    ]


def _joined(parts: list[Examples]) -> tuple:
    names = parts[0].categorical
    ids = {name: np.concatenate([part.categorical[name] for part in parts]) for name in names}
    return (
        ids,
        {},
        np.concatenate([part.numeric for part in parts]),
        np.concatenate([part.label for part in parts]),
    )


def test_to_tf_in_order_and_shuffled() -> None:
    pytest.importorskip("tensorflow")
    stream = CriteoLikeStream(1000, seed=5)
    dataset = stream.to_tf(128)
    assert int(dataset.cardinality()) == 8
    batches = list(dataset)
    assert [len(label) for _, label in batches] == [128] * 7 + [104]
    expected = criteo_like(1000, 5)
    for name in ("C3", "C26"):
        got = np.concatenate([inputs[name].numpy() for inputs, _ in batches])
        np.testing.assert_array_equal(got, expected.categorical[name])
    np.testing.assert_array_equal(
        np.concatenate([inputs["numeric"].numpy() for inputs, _ in batches]), expected.numeric
    )
    runs = [
        np.concatenate([x["C3"].numpy() for x, _ in stream.to_tf(128, shuffle=True, seed=s)])
        for s in (1, 1, 2)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()
    np.testing.assert_array_equal(np.sort(runs[0]), np.sort(expected.categorical["C3"]))
