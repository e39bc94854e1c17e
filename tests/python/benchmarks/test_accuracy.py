"""benchmarks/accuracy: are its workers those of training, its AUC exact, and its intervals right?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks_lib import benchmark

pytestmark = pytest.mark.long


data_of = benchmark("accuracy_data")
fleets = benchmark("accuracy_fleet")
tables = benchmark("accuracy_tables")
accuracy = benchmark("accuracy")

SPEC = {"name": "t", "dim": 2, "optimizer": {"name": "sgd"}, "initializer": {"name": "zeros"}}


@pytest.fixture
def make_fleet() -> Iterator[Any]:
    """Makes fleets of one table of two floats, trained by SGD with rate 1, that begin with zeros."""
    made = []

    def make(workers: int, bound: int | None, padding: int | None = None, capacity: int = 100) -> Any:
        cache = {"capacity": capacity, "pull_bound": bound, "push_bound": bound}
        made.append(fleets.Fleet(workers, [(SPEC, {"cache": cache}, 1.0)], [(0, padding)], partitions=3))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def step(fleet: Any, keys: list[list[int]]) -> np.ndarray:
    """Reads one step and writes a gradient of -1 for each occurrence; returns the first float of each row."""
    ids = [np.array(keys, np.int64)]
    rows = fleet.read(ids)
    fleet.write(ids, [np.full_like(rows[0], -1)])
    return np.asarray(rows[0][..., 0])


def served(fleet: Any, *keys: int) -> list[float]:
    return fleet.serve(0, np.array(keys, np.int64))[:, 0].tolist()


# --- the workers


def test_at_staleness_0_every_worker_reads_all_updates_of_the_steps_before(make_fleet: Any) -> None:
    fleet = make_fleet(2, 0)
    assert step(fleet, [[1, 2], [1, 3]]).tolist() == [[0, 0], [0, 0]]
    assert served(fleet, 1, 2, 3, 4) == [2, 1, 1, 0]
    assert step(fleet, [[1, 3], [2, 1]]).tolist() == [[2, 1], [1, 2]]


def test_every_worker_applies_its_own_part_of_the_gradients(make_fleet: Any) -> None:
    fleet = make_fleet(2, 0)
    ids = [np.array([[1, 2], [2, 3]])]
    fleet.read(ids)
    fleet.write(ids, [-np.arange(8, dtype=np.float32).reshape(2, 2, 2)])
    assert fleet.serve(0, np.array([1, 2, 3])).tolist() == [[0, 1], [2 + 4, 3 + 5], [6, 7]]


def test_without_a_bound_a_worker_reads_its_own_updates_alone(make_fleet: Any) -> None:
    fleet = make_fleet(2, None)
    for done in range(3):
        assert step(fleet, [[1, 2], [1, 3]]).tolist() == [[done, done], [done, done]]
    assert served(fleet, 1, 2) == [0, 0]
    fleet.flush()
    assert served(fleet, 1, 2, 3) == [6, 3, 3]
    assert fleet.largest_clock() == 6


def test_a_bound_lets_reads_miss_no_more_than_it_says(make_fleet: Any) -> None:
    fleet, bound = make_fleet(4, 3), 3
    for done in range(20):
        missed = 4 * done - step(fleet, [[1], [1], [1], [1]])
        assert missed.max() <= bound + 3 * (bound + 1)
    fleet.flush()
    assert served(fleet, 1) == [80]


def test_several_occurrences_are_one_tick_and_padding_none(make_fleet: Any) -> None:
    fleet = make_fleet(1, 0, padding=-1)
    assert step(fleet, [[7, 7, -1]]).tolist() == [[0, 0, 0]]
    assert step(fleet, [[7, -1, -1]]).tolist() == [[2, 0, 0]]
    assert fleet.largest_clock() == 2
    assert served(fleet, -1) == [0]


def test_a_bound_out_of_reach_is_no_bound(make_fleet: Any) -> None:
    rng = np.random.default_rng(8)
    for cache, capacity in ((1.0, 30), (0.1, 3)):
        part = accuracy.Part("census", 1, 0.1, cache)
        for bound in (10, 20, 40):
            assert accuracy.out_of_reach(str(bound), 2, 20, part) == (bound >= (20 if capacity == 30 else 40))
        least = next(b for b in range(100) if accuracy.out_of_reach(str(b), 2, 20, part))
        one, other = make_fleet(2, least, capacity=capacity), make_fleet(2, None, capacity=capacity)
        for _ in range(20):
            keys = rng.integers(0, 30, (2, 8)).tolist()
            keys[0][0] = keys[1][0] = 0
            assert (step(one, keys) == step(other, keys)).all()


def test_what_does_not_fit_is_refused(make_fleet: Any) -> None:
    fleet = make_fleet(2, 0)
    with pytest.raises(RuntimeError, match="2 equal parts"):
        fleet.read([np.array([1, 2, 3])])
    with pytest.raises(ValueError, match="int32"):
        fleet.read([np.array([1, 2], np.int32)])
    with pytest.raises(RuntimeError, match="Read comes first"):
        fleet.write([np.array([1, 2])], [np.zeros((2, 2), np.float32)])
    rows = fleet.read([np.array([1, 2])])
    with pytest.raises(RuntimeError, match="not written"):
        fleet.read([np.array([1, 2])])
    with pytest.raises(ValueError, match="that of the rows"):
        fleet.write([np.array([1, 2])], [np.zeros((2, 3), np.float32)])
    fleet.write([np.array([1, 2])], rows)
    with pytest.raises(RuntimeError, match="nonsense"):
        fleets.Fleet(1, [(SPEC, {"cache": {"nonsense": 1}}, 1.0)], [(0, None)])
    with pytest.raises(RuntimeError, match="a table that there is not"):
        fleets.Fleet(1, [(SPEC, {"cache": {}}, 1.0)], [(1, None)])


# --- AUC and intervals


def brute_auc(label: np.ndarray, score: np.ndarray) -> float:
    pairs = score[label > 0][:, None] - score[label == 0][None, :]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


@pytest.mark.parametrize("values", [3, 50, 10**6])
def test_auc_is_the_share_of_pairs_in_order(values: int) -> None:
    rng = np.random.default_rng(values)
    for _ in range(20):
        label = (rng.random(60) < 0.3).astype(np.float32)
        label[:2] = 0, 1
        score = rng.integers(0, values, 60).astype(np.float32)
        assert data_of.auc(label, score) == pytest.approx(brute_auc(label, score), abs=1e-12)
        positive, negative = data_of.placements(label, score)
        assert positive.mean() == pytest.approx(negative.mean(), abs=1e-12)


def test_the_paired_error_is_that_of_other_test_rows() -> None:
    rng = np.random.default_rng(5)
    gaps, errors = [], []
    for _ in range(300):
        label = (rng.random(400) < 0.4).astype(np.float32)
        truth = label + rng.normal(size=400)
        scores = [truth + rng.normal(scale=scale, size=400) for scale in (0.3, 0.6)]
        placed = [data_of.placements(label, score) for score in scores]
        gaps.append(placed[1][0].mean() - placed[0][0].mean())
        errors.append(data_of.paired_error(*placed))
    assert np.mean(errors) == pytest.approx(np.std(gaps), rel=0.15)
    assert data_of.paired_error(placed[0], placed[0]) == 0


def test_the_interval_is_students() -> None:
    mean, half = tables.interval([1.0, 2.0, 6.0])
    assert (mean, half) == (3.0, pytest.approx(4.303 * math.sqrt(7 / 3)))
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        mean, half = tables.interval(rng.normal(size=4).tolist())
        inside += abs(mean) <= half
    assert 0.93 < inside / 2000 < 0.97
    assert math.isnan(tables.interval([1.0])[1])


# --- data


def test_order_takes_every_row_once_an_epoch() -> None:
    order = data_of.epochs_order(rows=20, epochs=3, of_step=5, seed=2)
    assert order.shape == (12, 5)
    for epoch in order.reshape(3, 20):
        assert sorted(epoch) == list(range(20))
    assert (order[:4] != order[4:8]).any()
    assert (order == data_of.epochs_order(20, 3, 5, 2)).all()
    assert (order != data_of.epochs_order(20, 3, 5, 3)).any()


# --- the whole


def test_one_worker_at_staleness_0_is_a_model_that_keras_fits() -> None:
    import tensorflow as tf

    import het_tf

    models = benchmark("accuracy_models")
    part = accuracy.Part("movielens", 1, 0.1, train_rows=4096, test_rows=4096, of_step=256)
    ids = accuracy.Ids(data_of.make_data(part.data, 1, part.train_rows, part.test_rows))
    order = data_of.epochs_order(4096, 1, 256, 1)
    split, test = ids.data.train, ids.data.test
    inputs = {key: tf.constant(column[:1]) for key, column in split.columns.items()}
    for name in ("wide_deep", "deepfm"):
        dense = models.Dense(name, ids.data.description, part)
        dense.reset(4)
        weights = [one.numpy() for one in dense.model.variables if "anchor" not in one.name]
        fleet = accuracy.make_fleet(dense, part, ids, 1, 4, "0", "float32")
        # The rows' initial values: they belong to the name of the table, which is another one below.
        keys = {
            one.name: np.union1d(ids.test(one)[0], np.unique(ids.train(one)[0][0])) for one in dense.parts
        }
        begin = {one.name: fleet.serve(at, keys[one.name]) for at, one in enumerate(dense.parts)}
        accuracy.train(dense, fleet, part, ids, order)
        ours = accuracy.evaluate(dense, fleet, ids)
        fleet.close()

        het_tf.reset()
        model = getattr(het_tf.models, models.MODELS[name])(
            ids.data.description, part.dim, part.hidden, name="theirs",
            table_optimizer=het_tf.optimizers.RowWiseAdagrad(part.learning_rate),
        )  # fmt: skip
        model(inputs, training=False)
        het_tf.Table("theirs/deep").assign(keys["deep"], begin["deep"])
        fresh = [one for one in model.variables if "anchor" not in one.name]
        for variable, value in zip(fresh, weights, strict=True):
            variable.assign(value)
        model.compile(
            tf.keras.optimizers.Adam(part.dense_learning_rate),
            tf.keras.losses.BinaryCrossentropy(from_logits=True),
        )
        for rows in order:
            model.train_on_batch(
                {key: column[rows] for key, column in split.columns.items()}, split.label[rows][:, None]
            )
        theirs = model(dict(test.columns), training=False).numpy()[:, 0]
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
        assert np.std(theirs) > 0.05


def test_quick_mode_writes_figures_that_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark("accuracy_models")
    monkeypatch.setattr(accuracy, "PLACE", tmp_path / "kept")
    out = tmp_path / "quick.json"
    accuracy.main(["--quick", "--out", str(out)])
    result = json.loads(out.read_text())
    census = result["parts"]["census"]
    for group in census["groups"]:
        at_0, at_10, far, unbounded = group["runs"]
        assert far["unfelt"] and far["auc"] == unbounded["auc"] != at_10["auc"]
        assert at_0["auc"] == at_0["auc_before_flush"] > 0.8
        assert unbounded["auc_before_flush"] != unbounded["auc"]
        assert at_10["test_error"] > 0 == at_0["test_error"]
        assert at_0["largest_clock"] == 4 * at_0["steps"]
    criteo = result["parts"]["criteo_like"]["groups"][0]
    assert 0.75 < criteo["oracle_auc"] < 0.85 and criteo["test_rows"] == 16384
    assert "as unbounded" in "".join(tables.part_table(census))
    assert [goal["goal"].split(":")[0] for goal in tables.goals(result)] == ["census", "criteo_like"]
    assert len(tables.flush_table(result["parts"])) == 6

    # Another place: nothing is kept there, so all is trained anew; and only one part.
    monkeypatch.setattr(accuracy, "PLACE", tmp_path / "other")
    accuracy.main(["--quick", "--only", "criteo_like", "--out", str(out)])
    again = json.loads(out.read_text())
    assert again["parts"]["census"] == census
    for one, other in zip(
        again["parts"]["criteo_like"]["groups"], result["parts"]["criteo_like"]["groups"], strict=True
    ):
        assert [run["auc"] for run in one["runs"]] == [run["auc"] for run in other["runs"]]


def test_a_part_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in ((["--only", "netflix"], "netflix"), (["--seeds", "1"], "needs 2")):
        with pytest.raises(SystemExit):
            accuracy.parse(words)
        assert message in capsys.readouterr().err
