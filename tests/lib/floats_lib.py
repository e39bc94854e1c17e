"""How far float32 results of two paths may be apart: the one home of these tolerances.

Two paths to a number (a graph and eager code, an export and its model, one rank and several, NumPy and an op)
add the same terms in orders of their own. The order depends on the processor: how wide its vectors are,
whether it fuses a product with a sum, whether TensorFlow takes oneDNN for it, how many threads there are.
What the order changes is in proportion to the magnitudes of the terms, however small their sum turns out. So
a tolerance counts units in the last place of the largest magnitude, and never of the result itself.

Where both sides are one computation they are equal: np.testing.assert_array_equal.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

ULP = 2.0**-23  # of float32 numbers between 1 and 2

# Tolerances, in units in the last place.
SUM = 16  # a sum, or a layer
MODEL = 128  # a pass through some layers
TRAINED = 2048  # some steps of training, where differences feed on each other


def assert_close(
    found: Any,
    expected: Any,
    ulps: float = SUM,
    *,
    magnitude: npt.ArrayLike | None = None,
    message: str = "",
) -> None:
    """Two paths have come to the same numbers.

    Args:
      found, expected: of the same shape; NaN and infinite numbers must be at the same places.
      ulps: how many units in the last place of `magnitude` they may be apart.
      magnitude: of the terms that were added, where `expected` does not say it: its largest number is taken.
        An array has one for each number (`of_columns`).
      message: goes in front of what is said when they differ.
    """
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape, f"{message} shapes are {found.shape} and {expected.shape}"
    if magnitude is None:
        magnitude = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    # Where all are zero there is nothing to round.
    scale = np.maximum(np.asarray(magnitude, np.float64), np.finfo(np.float32).tiny)
    np.testing.assert_allclose(
        found / scale, expected / scale, rtol=0, atol=ulps * ULP, err_msg=f"{message} (as parts of {scale})"
    )


def of_columns(expected: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """A magnitude a column: rows of a table have slots beside their values, which may be much smaller."""
    return np.abs(np.asarray(expected, np.float64)).max(axis=0, initial=0)
