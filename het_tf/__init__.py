"""Embedding tables without a size for TensorFlow, with a cache and per-row clocks (HET, VLDB 2022).

    import het_tf, tensorflow as tf

    item = het_tf.TableConfig("item", dim=16, optimizer=het_tf.optimizers.RowWiseAdagrad(0.05))
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
    model.fit(dataset, callbacks=[het_tf.callbacks.CacheStats()])
    het_tf.table("item").to_numpy()                             # ids [N], rows [N, 16]

Ids in, rows out; the gradient of the lookup is the update of the tables, with each table's own optimizer.
Nothing else in a model changes. `het_tf.keras.Embedding(16, name="item")` is the layer for a single feature.
"""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from het_tf._version import __version__

# `python -m het_tf.doctor` says what is wrong where the rest of the package cannot be imported; het-ps and
# het-ckpt also run on machines that have servers, or files, and no TensorFlow.
_PROGRAM = _sys.argv[0].rpartition("/")[2] if _sys.argv else ""
_MODULES = {"het_tf.doctor", "het_tf.ps", "het_tf.ckpt"}
_ALONE = _PROGRAM in ("het-ps", "het-ckpt") or (_PROGRAM == "-m" and _MODULES & {*_sys.orig_argv})

if _TYPE_CHECKING or not _ALONE:
    from het_tf.python.checkpoint.keras import TablesNotSavedWarning
    from het_tf.python.export.check import serve_check
    from het_tf.python.export.front import export
    from het_tf.python.layer import callbacks, initializers, optimizers
    from het_tf.python.layer.cache import Cache
    from het_tf.python.layer.config import FeatureConfig, TableConfig
    from het_tf.python.layer.prefetch import prefetch
    from het_tf.python.layer.table import Table, flush, reset, table, tables
    from het_tf.python.session.native import build_info
    from het_tf.python.session.runtime import init, namespace, no_update

    # `from het_tf.optimizers import Adam` works as `het_tf.optimizers.Adam` does.
    for _module in (callbacks, initializers, optimizers):
        _sys.modules[__name__ + "." + _module.__name__.rpartition(".")[2]] = _module

    from het_tf import horovod, keras

_LAZY = ("checkpoint", "data", "models")  # not every program needs them


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"het_tf.{name}")
    raise AttributeError(f"module 'het_tf' has no attribute {name!r}")


__all__ = [
    "Cache",
    "FeatureConfig",
    "Table",
    "TableConfig",
    "TablesNotSavedWarning",
    "__version__",
    "build_info",
    "callbacks",
    "checkpoint",
    "data",
    "export",
    "flush",
    "horovod",
    "init",
    "initializers",
    "keras",
    "models",
    "namespace",
    "no_update",
    "optimizers",
    "prefetch",
    "reset",
    "serve_check",
    "table",
    "tables",
]
