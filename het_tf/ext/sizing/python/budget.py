"""Divides one budget of memory over the caches of all tables.

A cache keeps a table's most used rows, so each further byte saves less than the one before it, and bytes
belong where the next one saves most. A `Curve` has the cost of a step with caches of several sizes, counted
by a replay. For example, with rows of 100 bytes and a budget of 30,000 bytes:

    user    (0 rows, 9 ms) (100, 4) (200, 3)    first 10,000 bytes save 5 ms, the next 1 ms
    item    (0 rows, 6 ms) (100, 4) (200, 2)    each 10,000 bytes save 2 ms      -> user 100 rows, item 200
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Curve:
    """The cost of a step by the rows that a table's cache may hold.

    Attributes:
      name: Name of the table.
      row_bytes: Memory of a cached row, in bytes.
      points: (rows, cost of a step), rows ascending, at least one. Costs are seconds or bytes, the same unit
        in all curves that share a budget; they need not be convex.

    Raises:
      ValueError: row_bytes is below 1, or the points are empty, do not ascend, or are not finite.
    """

    name: str
    row_bytes: int
    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if self.row_bytes < 1:
            raise ValueError(f"row_bytes of table '{self.name}' is {self.row_bytes}; give 1 or more")
        rows = [point[0] for point in self.points]
        if not rows or rows[0] < 0 or any(a >= b for a, b in itertools.pairwise(rows)):
            raise ValueError(f"points of table '{self.name}' are of {rows} rows; give ascending sizes")
        for size, cost in self.points:
            if not math.isfinite(cost):
                raise ValueError(f"table '{self.name}' costs {cost} with {size} rows; give a finite number")

    @property
    def least(self) -> int:
        """Bytes of the smallest cache."""
        return self.points[0][0] * self.row_bytes

    def cost(self, rows: float) -> float:
        """Returns the cost of a step with a cache of `rows`, linear between the points."""
        return float(
            np.interp(rows, [point[0] for point in self.points], [point[1] for point in self.points])
        )


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

    Raises:
      ValueError: The budget is below the smallest caches, or two curves have one name.
    """
    names = [curve.name for curve in curves]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"table '{name}' has {names.count(name)} curves; give one a table")
    least = sum(curve.least for curve in curves)
    if budget < least:
        raise ValueError(
            f"the budget is {budget:,} bytes, {least - budget:,} less than the smallest caches of "
            f"{len(curves)} tables; give {least:,}, or curves that begin with fewer rows"
        )
    return _greedy(curves, budget)


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


def _greedy(curves: Sequence[Curve], budget: int) -> dict[str, int]:
    rows = {curve.name: curve.points[0][0] for curve in curves}
    left = budget - sum(curve.least for curve in curves)
    pieces = []
    for curve in curves:
        hull = _hull(curve.points)
        pieces += [(_saved(a, b) / curve.row_bytes, curve, b[0] - a[0]) for a, b in itertools.pairwise(hull)]
    for _, curve, more in sorted(pieces, key=lambda piece: -piece[0]):
        taken = min(more, left // curve.row_bytes)
        rows[curve.name] += taken
        left -= taken * curve.row_bytes
        if taken < more:
            break
    return rows
