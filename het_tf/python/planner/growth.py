"""How many rows a table will have: a Pitman-Yor process that is fitted to the rows that it had so far.

After n uses it has K(n) = (theta / alpha) * (G(theta + n + alpha) G(theta) / (G(theta + n) G(theta + alpha))
- 1) distinct ids, G being the gamma function: a power n^alpha in the end, where a Zipf law's tail goes on. Of
each alpha that theta is taken that meets the last point; alpha is what meets the points before best. The
interval is that of fits to the early and to the late points: a stream that is no such process shows as a wide
one. A table that comes to an end grows less: its least is what the slope (of log K by log n) gives that goes
on to fall as it fell so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Points = Sequence[Sequence[float]]

_ALPHAS = tuple(number / 50 for number in range(50))
_STEPS = 60  # halvings of an interval of log(theta)


def expected(uses: float, alpha: float, theta: float) -> float:
    """Distinct ids after so many uses."""
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
    """That meets a point."""
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
    """Rows after so many uses, if the slope goes on to fall."""
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
    """How many rows there will be.

    Args:
      growth: [uses, distinct ids] so far, ascending.
      uses: In all; at most as many as so far gives the last point twice.

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
    # A fit to the early points need not meet the last one: what counts is by how much it grows from there.
    grown = [points[-1][1] * expected(uses, *fit) / expected(points[-1][0], *fit) for fit in fits]
    least = min(*grown, _falling(points, uses))
    return least, max(least, *grown)
