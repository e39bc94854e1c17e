"""How benchmarks/placement.py learns costs and assigns tables; what it measures needs servers and minutes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmarks_lib import benchmark

pytest.importorskip("scipy", reason="SciPy is not installed: het-plan's and the benchmark's MILP need it")
recshard = benchmark("placement_recshard")
sets = benchmark("placement_sets")


def slowest(costs, placed, shards):
    return np.bincount(placed, weights=costs, minlength=shards).max()


@pytest.mark.parametrize("seed", range(6))
def test_assignments_are_near_the_best_of_all(seed):
    """Would see the cheapest table first, a load that is lost, places in the order of costs."""
    costs = np.random.default_rng(seed).exponential(1, 8).tolist()
    best = min(slowest(costs, placed, 3) for placed in itertools.product(range(3), repeat=8))
    lpt, beam = (slowest(costs, way(costs, 3), 3) for way in (sets.assign, sets.assign_by_beam))
    assert best - 1e-9 <= lpt <= best * (4 / 3 - 1 / 9) + 1e-9
    assert beam == pytest.approx(best, rel=0.02)


def test_a_line_is_found_and_judged():
    """Would see a constant that is left out, coefficients of scaled features, R^2 of the wrong way round."""
    features = np.random.default_rng(0).exponential(1, (50, 3)) * [1, 1e6, 1e-3]
    line = np.array([2.0, 3e-6, 500.0, 7.0])
    seconds = features @ line[:-1] + line[-1]
    assert sets.fit(features, seconds) == pytest.approx(line)
    assert sets.r2(line, features, seconds) == pytest.approx(1)
    assert sets.r2(np.array([0, 0, 0, seconds.mean()]), features, seconds) == pytest.approx(0)


def test_features_of_a_table_that_is_known():
    """Would see ids counted in place of unique ids, bins that do not sum to one, bytes of two bins mixed."""
    ids = np.array([[[0, 0], [0, 1]], [[2, 3], [4, 5]]])
    table = sets.Table("t", 10, 8, 2, ids)
    assert table.ours().tolist() == [3, 96, 0, 1]  # 2 rows, then 4
    assert table.papers()[:4].tolist() == [8, 10, 2, 320]
    assert table.papers()[4:].tolist() == pytest.approx([5 / 6, 0, 1 / 6] + 14 * [0])  # once; thrice


def test_recshards_plans_fit_and_are_better_than_whole_tables():
    """Would see a fast memory that holds too much, a table without a device, MILP's rows mixed up."""
    small = [t for t in recshard.make_tables(0) if t.rows[-1] < 10_000][:8]
    whole, greedy, milp = recshard.whole(small), recshard.greedy(small), recshard.milp(small)
    assert greedy["slow_share"] > 0.01
    for plan in (greedy, milp):
        assert 0.5 * greedy["slow_share"] < plan["slow_share"] < whole["slow_share"]
        assert plan["slowest"] < whole["slowest"]
    assert milp["slowest"] <= greedy["slowest"] * 1.05  # of 24 points a table
