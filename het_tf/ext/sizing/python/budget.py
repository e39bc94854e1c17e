"""Divides one budget of memory over the caches of all tables.

A cache keeps a table's most used rows, so each further byte saves less than the one before it, and bytes
belong where the next one saves most. A `Curve` has the cost of a step with caches of several sizes, counted
by a replay. For example, with rows of 100 bytes and a budget of 30,000 bytes:

    user    (0 rows, 9 ms) (100, 4) (200, 3)    first 10,000 bytes save 5 ms, the next 1 ms
    item    (0 rows, 6 ms) (100, 4) (200, 2)    each 10,000 bytes save 2 ms      -> user 100 rows, item 200
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

Points = Sequence[tuple[int, float]]


class Curve(NamedTuple):
    """The cost of a step by the rows that a table's cache may hold.

    Attributes:
      name: Name of the table; each has one curve.
      row_bytes: Memory of a cached row, in bytes.
      points: (rows, cost of a step), rows ascending from 0. Costs are seconds or bytes, the same unit in all
        curves that share a budget; they need not be convex.
    """

    name: str
    row_bytes: int
    points: Points


def split_budget(curves: Sequence[Curve], budget: int) -> dict[str, int]:
    """Divides memory over the caches of tables at the least cost of a step.

    It takes the bytes that save most first, over the lower convex hull of each curve; the last table gets the
    remaining rows, and rows that save nothing are not assigned. That is exact to a row if curves are convex
    and linear between their points.

    Args:
      curves: One for each table.
      budget: Bytes of all caches together.

    Returns:
      Rows of each table; their bytes are at most the budget.
    """
    rows = dict.fromkeys((curve.name for curve in curves), 0)
    pieces = []
    for curve in curves:
        hull = itertools.pairwise(_hull(curve.points))
        pieces += [(_saved(a, b) / curve.row_bytes, curve, b[0] - a[0]) for a, b in hull]
    for _, curve, more in sorted(pieces, key=lambda piece: -piece[0]):
        taken = min(more, budget // curve.row_bytes)
        rows[curve.name] += taken
        budget -= taken * curve.row_bytes
        if taken < more:
            break
    return rows


def _hull(points: Points) -> list[tuple[int, float]]:
    """The lower convex hull of the points, up to the cheapest."""
    hull: list[tuple[int, float]] = []
    for point in points:
        while len(hull) >= 2 and _saved(hull[-2], hull[-1]) <= _saved(hull[-1], point):
            hull.pop()
        hull.append(point)
    return [hull[0], *(b for a, b in itertools.pairwise(hull) if _saved(a, b) > 0)]


def _saved(a: tuple[int, float], b: tuple[int, float]) -> float:
    """Saving per row between two points."""
    return (a[1] - b[1]) / (b[0] - a[0])
