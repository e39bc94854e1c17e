"""Criteo's format of click logs: the names of its columns, and its parts."""

from typing import Literal

NUMERIC_NAMES = tuple(f"I{number}" for number in range(1, 14))
CATEGORICAL_NAMES = tuple(f"C{number}" for number in range(1, 27))
Part = Literal["all", "train", "valid", "test"]
# Tenths of the lines in each part: the first one, and the end.
TENTHS = {"all": (0, 10), "train": (0, 8), "valid": (8, 9), "test": (9, 10)}
