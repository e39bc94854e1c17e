"""The tables of a model in the order of its layers, by which a restore finds them.

A table that the user has named has the same name in each process. The table of a layer without a name is
numbered by Keras, and the number depends on what else the process has built: only the order of the model's
layers says which one it is. A checkpoint with a model has this order under "dense" in its manifest:

    "tables": [{"table": "item", "name": "item"}, {"table": "embedding_1", "name": null}]
    "apart": ["embedding"]                      of layers without a name that are not in the model
"""

from typing import Any

from het_tf.python.table import layer_state, registry


def of_model(model: Any, namespace: str) -> dict[str, Any]:
    """Returns "tables" and "apart" of a model, or of no model (None), in this process."""
    names: dict[str, str | None] = {}
    for layer in [] if model is None else layer_state.layers_of(model):
        for table in layer.tables:
            names[table.name] = None if table.unnamed else table.base
    entries = {name: registry.find(space, name) for space, name in registry.keys() if space == namespace}
    return {
        "tables": [{"table": table, "name": name} for table, name in names.items()],
        "apart": sorted(
            name
            for name, entry in entries.items()
            if name not in names and entry is not None and (entry.config.unnamed or entry.config.is_own)
        ),
    }
