"""lib/floats_lib.py: what two paths may differ in, and what they may not."""

import numpy as np
import pytest
from floats_lib import SUM, ULP, assert_close, of_columns


@pytest.mark.parametrize("off", [SUM - 1, SUM + 1])
@pytest.mark.parametrize("largest", [1e-6, 1.0, 3e5])
def test_the_unit_is_that_of_the_largest_number(off, largest):
    """Defect: a tolerance relative to the result, which depends on the processor where terms cancel."""
    expected = np.array([largest, largest / 100, 0])
    found = expected + off * ULP * largest
    if off < SUM:
        assert_close(found, expected)
        return assert_close(found[1:], expected[1:], magnitude=largest)
    for more in ({}, {"magnitude": largest}):
        with pytest.raises(AssertionError, match="the name"):
            assert_close(found[1:], expected[1:], message="the name", **more)
    with pytest.raises(AssertionError, match="the name"):
        assert_close(found, expected, message="the name")


def test_columns_have_units_of_their_own():
    """Defect: the slots of a row are compared by the magnitude of its values, so anything passes."""
    expected = np.array([[1.0, 1e-5], [0.5, 2e-5]])
    found = expected + np.array([[0, 1e-7], [0, 0]])
    assert_close(found, expected)
    with pytest.raises(AssertionError):
        assert_close(found, expected, magnitude=of_columns(expected))


NO_ROUNDING = [([1.0], [1.0, 1.0]), ([np.nan], [1.0]), ([1.0], [np.nan]), ([np.inf], [1.0]), ([1e-30], [0.0])]


@pytest.mark.parametrize(("found", "expected"), NO_ROUNDING)
def test_what_is_no_rounding(found, expected):
    with pytest.raises(AssertionError):
        assert_close(found, expected)
