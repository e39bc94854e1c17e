"""Tables in TensorFlow's checkpoints: tf.train.Checkpoint, CheckpointManager.

A layer has a `TableState` for each table among its dependencies. TensorFlow hands all of them to `_save`; it
writes their rows into the checkpoint itself: slices of columns (pack.py), with one SaveV2 for some 32 MB, as
shards that TensorFlow merges with the dense weights at the end. So the checkpoint is complete or absent, and
of one moment; copying or deleting it, as CheckpointManager does, includes the rows; TensorFlow's checksums
cover them; and `tf.train.load_checkpoint` reads them. The price: rows are written twice, first as row files
beside the checkpoint. `het_tf.checkpoint` writes them once.

Names in the checkpoint: `OBJECT/.ROWS/` and those of pack.py.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tensorflow.python.saved_model import registration  # since TensorFlow 2.8; not public

from het_tf.ext.checkpoint.python.saving import pack, workers
from het_tf.python.session.native import tf
from het_tf.python.table import registry

_NAME = "TableState"
_SHARD_BYTES = 32 << 20


class TableState(tf.__internal__.tracking.Trackable):
    """One table for TensorFlow's checkpoints; layers with the same table share it."""

    def __init__(self, layer: Any, table: str) -> None:
        self.namespace: str = layer.namespace
        self.table = table

    @property
    def layer(self) -> Any:
        """A layer that uses the table."""
        entry = registry.find(self.namespace, self.table)
        users = [] if entry is None else entry.layers()
        if not users:
            raise RuntimeError(f"table {self.table!r} is gone (het_tf.reset()); build its layers again")
        return users[0]

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        """Refuses AsyncCheckpoint, which copies all values first and writes them later: a table has no copy.

        Not by NotImplementedError: TensorFlow would log it and go on without a copy.
        """
        raise ValueError(
            f"table {self.table!r} cannot be saved asynchronously (CheckpointOptions(enable_async=True)): "
            "its rows would be from a later moment than the other weights. Save without it, or use "
            "het_tf.checkpoint.save"
        )


def state_of(layer: Any, table: str) -> TableState:
    """Returns the state of a layer's table; the same object for all layers that share the table."""
    entry = registry.find(layer.namespace, table)
    if entry is None:
        raise RuntimeError(f"table {table!r} is gone (het_tf.reset()); build the layer {layer.name!r} again")
    if entry.state is None:
        entry.state = TableState(layer, table)
    state: TableState = entry.state
    return state


def _save(trackables: dict[str, TableState], file_prefix: Any) -> list[Any]:
    """Writes shards, and returns their names. Called by TensorFlow while it saves."""
    with tf.init_scope():  # TensorFlow may trace a function to save from several devices
        prefix = _text(file_prefix)
        tf.io.gfile.makedirs(os.path.dirname(prefix) or ".")  # as SaveV2 would
        shards: list[Any] = []
        for name, state in sorted(trackables.items()):
            workers.before_saving(state.layer)
            with pack.taken(state.namespace, state.table, _place(prefix)) as arrays:
                for part in _shards(arrays):
                    shards.append(tf.constant(f"{prefix}_temp/part-{len(shards):05d}"))
                    tf.raw_ops.SaveV2(
                        prefix=shards[-1],
                        tensor_names=[f"{name}/.ROWS/{key}" for key in part],
                        shape_and_slices=[""] * len(part),
                        tensors=list(part.values()),
                    )
        return shards


def _shards(arrays: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields arrays by name, those of one file at a time."""
    part: dict[str, Any] = {}
    size = 0
    for key, array in arrays:
        if part and size + array.nbytes > _SHARD_BYTES:
            yield part
            part, size = {}, 0
        part[key] = array
        size += array.nbytes
    yield part


def _restore(trackables: dict[str, TableState], merged_prefix: Any) -> None:
    """Restores rows. Called by TensorFlow while it restores, or when an awaited layer is built."""
    with tf.init_scope():
        prefix = _text(merged_prefix)
        for name, state in sorted(trackables.items()):
            if not workers.restores(state.layer):
                continue

            def get(key: str, dtype: Any, name: str = name) -> Any:
                (array,) = tf.raw_ops.RestoreV2(
                    prefix=prefix,
                    tensor_names=[f"{name}/.ROWS/{key}"],
                    shape_and_slices=[""],
                    dtypes=[tf.as_dtype(np.dtype(dtype))],
                )
                return array.numpy()

            pack.put_back(get, state.namespace, state.table, _place(prefix))


def _text(prefix: Any) -> str:
    if not hasattr(prefix, "numpy"):
        raise NotImplementedError(
            "tables are not saved in a graph, such as that of a SavedModel; use tf.train.Checkpoint outside "
            "of a tf.function, or het_tf.export for serving"
        )
    return str(tf.compat.as_str(prefix.numpy()))


def _place(prefix: str) -> str | None:
    """Directory of the checkpoint, whose disk has room for its rows; None if it is remote or read-only."""
    place = os.path.dirname(prefix) or "."
    return place if "://" not in prefix and os.access(place, os.W_OK) else None


registration.register_checkpoint_saver(
    package="het_tf",
    name=_NAME,
    predicate=lambda trackable: isinstance(trackable, TableState),
    save_fn=_save,
    restore_fn=_restore,
)
