"""One budget of memory over tables: against every choice there is, and what is refused."""

import itertools

import numpy as np
import pytest

from het_tf.ext.sizing.python.budget import Curve, split_budget


def some_curves(seed, convex, tables=5, points=5):
    """Random curves; what a row saves falls along a convex one."""
    rng = np.random.default_rng(seed)
    curves = []
    for number in range(tables):
        rows = np.concatenate([[0], np.cumsum(rng.integers(1, 40, points - 1))])
        saved = rng.exponential(1, points - 1)
        saved = np.sort(saved)[::-1] * np.diff(rows) if convex else saved * rng.integers(0, 2, points - 1)
        cost = 100 - np.concatenate([[0], np.cumsum(saved)])
        pairs = zip(rows.tolist(), cost.tolist(), strict=True)
        curves.append(Curve(f"t{number}", int(rng.integers(1, 300)), tuple(pairs)))
    return curves


def budgets_of(curves, seed):
    most = sum(curve.points[-1][0] * curve.row_bytes for curve in curves)
    return [0, *np.random.default_rng(seed).integers(0, most + 100, 3).tolist(), most]


def taken(curves, rows):
    return sum(rows[curve.name] * curve.row_bytes for curve in curves)


def cost_of(curve, rows):
    """The cost of a step, linear between the points."""
    return float(np.interp(rows, *zip(*curve.points, strict=True)))


def cost(curves, rows):
    return sum(cost_of(curve, rows[curve.name]) for curve in curves)


def best(curves, budget):
    """The cheapest choice of one point a table, of all."""
    found = []
    for choice in itertools.product(*(curve.points for curve in curves)):
        if sum(of.row_bytes * point[0] for of, point in zip(curves, choice, strict=True)) <= budget:
            found.append(sum(point[1] for point in choice))
    return min(found)


@pytest.mark.parametrize("seed", range(12))
def test_greedy_is_near_optimal_on_convex_curves(seed):
    """Would see pieces out of order: no more than the last piece, in part, may lie between the two."""
    curves = some_curves(seed, convex=True)
    for budget in budgets_of(curves, seed):
        rows = split_budget(curves, budget)
        off = [curve for curve in curves if rows[curve.name] not in dict(curve.points)]
        assert len(off) <= 1  # only the last piece is cut
        saved = [cost_of(one, rows[one.name]) - cost_of(one, rows[one.name] + 1) for one in off]
        assert cost(curves, rows) <= best(curves, budget) + max(saved, default=0) + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_never_above_the_budget_nor_off_the_curve(seed):
    """Would see a last piece that is rounded up, pieces counted twice, rows past the last point."""
    curves = some_curves(seed, convex=False, tables=20, points=7)
    for budget in budgets_of(curves, seed):
        rows = split_budget(curves, budget)
        assert taken(curves, rows) <= budget
        assert all(c.points[0][0] <= rows[c.name] <= c.points[-1][0] for c in curves)
        assert list(rows) == [c.name for c in curves]


def test_no_piece_hides_a_later_one():
    """Would see a budget that is spent because it is there, and pieces in the order of their slopes where a
    curve is not convex: 10 rows each.
    """
    flat = Curve("flat", 1, ((0, 5.0), (10, 5.0), (20, 6.0)))
    dented = Curve("dented", 1, ((0, 5.0), (10, 6.0), (20, 1.0), (30, 1.0)))
    assert split_budget([flat, dented], 1000) == {"flat": 0, "dented": 20}
    late = Curve("late", 1, ((0, 10.0), (10, 9.0), (20, 0.0)))
    even = Curve("even", 1, ((0, 10.0), (20, 2.0)))
    assert split_budget([late, even], 20) == {"late": 20, "even": 0}
