"""Checks of arguments: ValueError with the argument's name, its value, and what to give instead."""

import math
import numbers
from typing import Any


def is_whole(value: Any, least: int = 0, most: int | None = None) -> bool:
    """Whether a value is an integer of Python or numpy in [least, most]; a bool is not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return False
    return int(value) >= least and (most is None or int(value) <= most)


def whole(
    argument: str, value: Any, least: int = 1, most: int | None = None, what: str = "", otherwise: str = ""
) -> int:
    """Returns an argument as an int.

    Args:
      argument: Its name.
      value: What was given.
      least: The smallest value that is taken.
      most: The largest one; None: any.
      what: What it counts, for the message: "the rows of a batch".
      otherwise: Another thing that may be given, for the message: "None for all".

    Raises:
      ValueError: It is no integer, or out of range.
    """
    if is_whole(value, least, most):
        return int(value)
    limits = f"of {least} or more" if most is None else f"from {least} to {most}"
    ends = what and f"{what}, ", otherwise and f", or {otherwise}"
    raise ValueError(f"{argument} is {value!r}; give {ends[0]}an integer {limits}{ends[1]}")


def whole_or_none(
    argument: str,
    value: Any,
    least: int = 1,
    most: int | None = None,
    what: str = "",
    otherwise: str = "None",
) -> int | None:
    """As `whole`, but takes None, too; `otherwise` says what it means: "None for all"."""
    return None if value is None else whole(argument, value, least, most, what, otherwise)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number of Python or numpy; a bool is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def seconds(argument: str, value: Any, otherwise: str = "") -> float:
    """Returns an argument as a float. ValueError: it is no finite number above 0."""
    if is_number(value) and value > 0:
        return float(value)
    raise ValueError(f"{argument} is {value!r}; give seconds > 0{otherwise and f', or {otherwise}'}")


def seconds_or_none(argument: str, value: Any, otherwise: str = "None") -> float | None:
    """As `seconds`, but takes None, too; `otherwise` says what it means: "None for no limit"."""
    return None if value is None else seconds(argument, value, otherwise)


def one_of(argument: str, value: Any, choices: tuple[Any, ...], otherwise: str = "") -> None:
    """Raises ValueError unless a value is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{argument} is {value!r}; give one of {choices}{otherwise and f', or {otherwise}'}")
