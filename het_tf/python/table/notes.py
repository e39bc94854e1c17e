"""The warnings of het_tf, and the one that a file or an array does not hold the rows of tables."""

import warnings
from typing import Any


class HetWarning(UserWarning):
    """Base class of all warnings of het_tf."""


class TablesNotSavedWarning(HetWarning):
    """Weights were saved or restored without the rows of tables, or without some of them."""


def names(layer: Any) -> str:
    """The names of the layer's tables, for a message."""
    return ", ".join(repr(table.name) for table in layer.tables)


def warn(message: str) -> None:
    """Issues a TablesNotSavedWarning at the caller's caller."""
    warnings.warn(message, TablesNotSavedWarning, stacklevel=3)


def without_rows(layer: Any, what: str, remedy: str) -> None:
    """Warns that weights are `what` ("saved", ...) without the layer's tables, with the remedy."""
    warn(f"layer {layer.name!r}: weights are {what} without the rows of table {names(layer)}. {remedy}")
