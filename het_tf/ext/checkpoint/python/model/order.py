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
    """Returns "tables" and "apart" of a model in this process; without a model "tables" is None."""
    layers = [] if model is None else layer_state.layers_of(model)
    names = {one.name: None if one.unnamed else one.base for layer in layers for one in layer.tables}
    tables = [{"table": table, "name": name} for table, name in names.items()]
    entries = {name: registry.find(space, name) for space, name in registry.keys() if space == namespace}
    apart = [
        name
        for name, entry in entries.items()
        if name not in names and entry is not None and (entry.config.unnamed or entry.config.is_own)
    ]
    return {"tables": None if model is None else tables, "apart": sorted(apart)}
