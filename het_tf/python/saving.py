"""What saving, restoring and copying a model does with its tables: until a format holds them, it says so."""

from __future__ import annotations

import gc
import warnings
from typing import Any

from het_tf.python import registry


class TablesNotSavedWarning(UserWarning):
    """Weights of a model were saved, restored or copied, and its tables are not among them."""


def warn(layer: Any, what: str) -> None:
    """Says that the layer's tables are not in what is being `what` ("saved", ...)."""
    names = ", ".join(repr(table.name) for table in layer.tables)
    warnings.warn(
        f"layer {layer.name!r}: weights are {what} without the rows of table {names}. What is restored from "
        "them meets the rows that the tables have then. To keep rows use het_tf.table(name).to_numpy() and "
        "assign()",
        TablesNotSavedWarning,
        stacklevel=3,
    )


def warn_when_read(anchor: Any, layer: Any) -> None:
    """Makes `get_weights` speak up: it reads the value of every weight, the anchor's too.

    That is how EarlyStopping(restore_best_weights=True) and its like take a model's weights.
    """
    read = anchor.numpy

    def numpy() -> Any:
        warn(layer, "taken as arrays")
        return read()

    anchor.numpy = numpy


def refuse_copy(layer: Any) -> None:
    """A layer made from the configuration of one that still lives may read its tables, not train them.

    Else `clone_model` would give a model whose training trains the original, unseen.

    Raises:
      RuntimeError: Names the tables and the remedy.
    """
    if not layer._het_copy:
        return
    if _originals(layer):
        gc.collect()  # a model that was let go may still be waiting to be collected
    shared = _originals(layer)
    if shared:
        raise RuntimeError(
            f"layer {layer.name!r} is a copy (clone_model, from_config, load_model) and shares the tables "
            f"{shared} with the layer it was made from: training it would train the original too. For tables "
            "of its own make "
            'the copy inside of `with het_tf.namespace("copy"):`; to go on with these tables delete the '
            "original, or "
            "say so with layer.share_tables()"
        )
    layer._het_copy = False


def _originals(layer: Any) -> list[str]:
    """Tables of `layer` that a layer of the same name uses as well."""
    shared = []
    for table in layer.tables:
        entry = registry.find(layer.namespace, table.name)
        users = [] if entry is None else list(entry.users)
        if any(user is not layer and user.name == layer.name for user in users):
            shared.append(table.name)
    return shared
