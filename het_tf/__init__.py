"""Embedding tables without a size for TensorFlow, with a cache and per-row clocks (HET, VLDB 2022).

    import het_tf, tensorflow as tf

    item = het_tf.TableConfig("item", dim=16, optimizer=het_tf.optimizers.RowWiseAdagrad(0.02))
    embed = het_tf.keras.EmbeddingCollection({
        "item": het_tf.FeatureConfig(item),
        "history": het_tf.FeatureConfig(item, combiner="mean", padding_id=-1),
    })
    inputs = {"item": tf.keras.Input((), dtype="int64", name="item"),
              "history": tf.keras.Input((20,), dtype="int64", name="history")}
    rows = embed(inputs)                                        # {"item": [B, 16], "history": [B, 16]}
    x = tf.keras.layers.Concatenate()([rows["item"], rows["history"]])
    logit = tf.keras.layers.Dense(1)(x)
    model = tf.keras.Model(inputs, logit)
    model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(dataset, callbacks=[het_tf.callbacks.TableStats()])
    het_tf.Table("item").to_numpy()                             # ids [N], rows [N, 16]

Ids in, rows out; the gradient of the lookup is the update of the tables, with each table's own
optimizer. Nothing else in a model changes. `het_tf.keras.Embedding(16, name="item")` is the layer
for a single feature.

Importing het_tf loads nothing else: the first use of a name imports it, with TensorFlow and the native
library. A program that only loads models imports `het_tf.keras` before `keras.models.load_model`, and
`het_tf.serving` before `tf.saved_model.load` of a native export.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from het_tf import ext as _ext  # noqa: F401, fills the ports
from het_tf._version import __version__
from het_tf.python import gone as _gone

if _TYPE_CHECKING:
    from het_tf import (
        callbacks,
        checkpoint,
        initializers,
        inputs,
        keras,
        optimizers,
        planner,
        serving,
        workers,
    )
    from het_tf import torch as torch
    from het_tf.ext.serving.python.export.front import export
    from het_tf.ext.serving.python.publishing.publish import publish
    from het_tf.ext.streams.python.front import lookahead
    from het_tf.python.layer.variable import apply
    from het_tf.python.session.connection import Store, init
    from het_tf.python.session.scopes import namespace
    from het_tf.python.table.cache import Bounds, Cache
    from het_tf.python.table.config import FeatureConfig, TableConfig
    from het_tf.python.table.notes import HetWarning
    from het_tf.python.table.table import Table, flush, reset, tables

_MODULES = (
    "callbacks", "checkpoint", "initializers", "inputs", "keras", "optimizers", "planner",
    "serving", "torch", "workers",
)  # fmt: skip
# Refused where Keras' backend is another one (docs/backends.md).
_OF_TENSORFLOW = (
    "export", "inputs", "serving",
)  # fmt: skip
_HOMES = {
    "het_tf.ext.serving.python.export.front": ("export",),
    "het_tf.ext.streams.python.front": ("lookahead",),
    "het_tf.python.layer.variable": ("apply",),
    "het_tf.ext.serving.python.publishing.publish": ("publish",),
    "het_tf.python.session.connection": ("Store", "init"),
    "het_tf.python.session.scopes": ("namespace",),
    "het_tf.python.table.cache": ("Bounds", "Cache"),
    "het_tf.python.table.config": ("FeatureConfig", "TableConfig"),
    "het_tf.python.table.notes": ("HetWarning",),
    "het_tf.python.table.table": ("Table", "flush", "reset", "tables"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> _Any:
    """Imports a public name at its first use (PEP 562)."""
    if name in _OF_TENSORFLOW:
        from het_tf.python import backend

        if not backend.TENSORFLOW:
            raise backend.needs_tensorflow(f"het_tf.{name}")
    if name in _MODULES:
        return _importlib.import_module(f"het_tf.{name}")
    if name in _HOME_OF:
        value = getattr(_importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    return _gone.refuse(__name__)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [  # without torch, which not every process can import
    "Bounds",
    "Cache",
    "FeatureConfig",
    "HetWarning",
    "Store",
    "Table",
    "TableConfig",
    "__version__",
    "apply",
    "callbacks",
    "checkpoint",
    "export",
    "flush",
    "init",
    "initializers",
    "inputs",
    "keras",
    "lookahead",
    "namespace",
    "optimizers",
    "planner",
    "publish",
    "reset",
    "serving",
    "tables",
    "workers",
]
