"""Layers that were made from the configuration of others may read the tables of those, not change them."""

import gc
from pathlib import Path
from typing import Any

from het_tf.python.checkpoint.keras import moment
from het_tf.python.table import layer_state, registry

_REMEDY = (
    'For tables of its own make the copy inside of `with het_tf.namespace("copy"):`; to go on with these '
    "tables delete the original, or say so with layer.share_tables()"
)


def refuse_copy(layer: Any) -> None:
    """A layer made from the configuration of one that still lives may read its tables, not train them.

    Else `clone_model` would give a model whose training trains the original, unseen.

    Raises:
      RuntimeError: Names the tables and the remedy.
    """
    shared = shared_tables(layer)
    if shared:
        raise RuntimeError(
            f"layer {layer.name!r} is a copy (clone_model, from_config, load_model) and shares the tables "
            f"{shared} with the layer it was made from: training it would train the original too. {_REMEDY}"
        )
    layer_state.of(layer).is_copy = False


def put_back(layer: Any, directory: Path, table: str, shared: list[str]) -> None:
    """Restores a table of the layer, if it may change it.

    A copy may not. It does not have to where the original has these very rows, as right after saving.

    Args:
      layer: Whose table.
      directory: The rows (moment.take).
      table: Name of the layer's table.
      shared: What `shared_tables(layer)` gives; asked once for many tables, as it may collect garbage.

    Raises:
      RuntimeError: The layer is a copy, and its original's table has other rows by now; nothing was changed.
      ValueError: See moment.put_back.
    """
    if table in shared:
        if moment.same(directory, layer.namespace, table):
            return
        raise RuntimeError(
            f"layer {layer.name!r} is a copy (clone_model, from_config, load_model) and shares the table "
            f"{table!r} with the layer it was made from, whose rows are others by now than those that are to "
            f"be restored: restoring them would change the original too. {_REMEDY}"
        )
    moment.put_back(directory, layer.namespace, table)


def shared_tables(layer: Any) -> list[str]:
    """Of a copy: the tables that it shares with its original; of other layers: none."""
    if not layer_state.of(layer).is_copy:
        return []
    if _originals(layer):
        gc.collect()  # a model that was let go may still be waiting to be collected
    return _originals(layer)


def _originals(layer: Any) -> list[str]:
    """Tables of `layer` that a layer of the same name uses as well."""
    shared = []
    for table in layer.tables:
        entry = registry.find(layer.namespace, table.name)
        users = [] if entry is None else list(entry.users)
        if any(user is not layer and user.name == layer.name for user in users):
            shared.append(table.name)
    return shared
