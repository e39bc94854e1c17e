"""What does not hold the rows of tables says so."""

import warnings
from typing import Any


class TablesNotSavedWarning(UserWarning):
    """Weights were saved or restored, and the rows of tables are not, or not wholly, among them."""


def names(layer: Any) -> str:
    """The names of the layer's tables, for a message."""
    return ", ".join(repr(table.name) for table in layer.tables)


def warn(message: str) -> None:
    """Gives a TablesNotSavedWarning at the caller's caller."""
    warnings.warn(message, TablesNotSavedWarning, stacklevel=3)


def without_rows(layer: Any, what: str, remedy: str) -> None:
    """Says that the layer's tables are not in what is being `what` ("saved", ...), and what to do."""
    warn(f"layer {layer.name!r}: weights are {what} without the rows of table {names(layer)}. {remedy}")
