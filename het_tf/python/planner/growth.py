"""Forecasts the rows of a table by a Pitman-Yor process that is fitted to its rows so far.

After n uses it has K(n) = (theta / alpha) * (G(theta + n + alpha) G(theta) / (G(theta + n) G(theta + alpha))
- 1) distinct ids, where G is the gamma function: a power n^alpha in the end, like the tail of a Zipf law. For
each alpha, theta is chosen to meet the last point, and alpha to meet the points before best. The interval
comes from fits to the early and to the late points: it is wide for a stream that is not such a process.
A table that runs out of new ids grows less: for its least, the slope (of log K by log n) continues to fall
as it fell so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = Sequence[Sequence[float]]

_ALPHAS = tuple(number / 50 for number in range(50))
_STEPS = 60  # halvings of an interval of log(theta)


def expected(uses: float, alpha: float, theta: float) -> float:
    """Distinct ids after `uses`."""
    if alpha == 0:
        return theta * math.log1p(uses / theta)
    power = (
        math.lgamma(theta + uses + alpha)
        + math.lgamma(theta)
        - math.lgamma(theta + uses)
        - math.lgamma(theta + alpha)
    )
    return theta / alpha * math.expm1(power)


def _theta(uses: float, rows: float, alpha: float) -> float:
    """Theta that meets a point."""
    low, high = -10.0, 30.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if expected(uses, alpha, math.exp(middle)) < rows:
            low = middle
        else:
            high = middle
    return math.exp(low)


def _fit(points: Points) -> tuple[float, float]:
    uses, rows = points[-1]

    def error(alpha: float) -> float:
        theta = _theta(uses, rows, alpha)
        return sum(math.log(expected(n, alpha, theta) / k) ** 2 for n, k in points[:-1])

    alpha = min(_ALPHAS, key=error)
    return alpha, _theta(uses, rows, alpha)


def _falling(points: Points, uses: float) -> float:
    """Rows after `uses`, if the slope continues to fall."""
    x, y = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    third = max(1, len(points) // 3)
    first, middle, last = -2 * third - 1, -third - 1, -1
    if len(points) < 2 * third + 1:
        return points[-1][1]
    early = (y[middle] - y[first]) / (x[middle] - x[first])
    late = (y[last] - y[middle]) / (x[last] - x[middle])
    fall = max(0.0, 2 * (early - late) / (x[last] - x[first]))
    slope = max(0.0, late - fall * (x[last] - x[middle]) / 2)  # at the last point
    more = math.log(uses) - x[last]
    reach = min(more, slope / fall) if fall > 0 else more
    return float(points[-1][1] * math.exp(slope * reach - fall * reach * reach / 2))


def rows_after(growth: Points, uses: float) -> tuple[float, float]:
    """Forecasts the number of rows.

    Args:
      growth: [uses, distinct ids] so far, ascending.
      uses: Uses in total; if not more than so far, returns the last point twice.

    Returns:
      The least and the most.
    """
    points = [point for point in growth if point[0] >= 2 and point[1] >= 1]
    if not points or uses <= points[-1][0]:
        last = growth[-1][1] if growth else 0.0
        return last, last
    half = len(points) // 2
    fits = [_fit(part) for part in (points[: half + 1], points[half:], points) if len(part) >= 2]
    if not fits:
        return points[-1][1], points[-1][1] * uses / points[-1][0]
    # A fit to the early points need not meet the last one: use only its growth from there.
    grown = [points[-1][1] * expected(uses, *fit) / expected(points[-1][0], *fit) for fit in fits]
    least = min(*grown, _falling(points, uses))
    return least, max(least, *grown)
