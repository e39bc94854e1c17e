"""The Keras twin of a model of het_tf.models: `keras.layers.Embedding` in place of its tables of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import het_tf

keras = tf.keras


class KerasRows(keras.layers.Layer):
    """Stands in for an `EmbeddingCollection`: int64 ids of its features in, rows out.

    Args:
      collection: Has untrained tables; the twin starts with their rows.
      sizes: Number of ids of each table, from 0 on, with a row each.
      buckets: How many rows all other ids share, by the remainder.
      first: The id whose initial row is the first one; another number, another draw.
    """

    def __init__(self, collection: Any, sizes: list[int], buckets: int, first: int) -> None:
        super().__init__(name="tables")
        self.tables, self.namespace = (), ""  # what prints a model's tables finds none
        self.features, self.buckets = collection._het_state.features, buckets
        self.names = [table.name for table in collection.tables]
        self.embeddings = []
        for table, size in zip(collection.tables, sizes, strict=True):
            embedding = keras.layers.Embedding(size + buckets, table.dim, name=table.base.split("/")[-1])
            embedding.build((None,))
            rows = het_tf.Table(table.name, collection.namespace)
            embedding.embeddings.assign(rows.lookup(np.arange(first, first + size + buckets)))
            self.embeddings.append(embedding)

    def call(self, inputs: Any) -> Any:
        """Rows `ids.shape + [dim]`, or their mean; padding gives zeros."""
        outputs = []
        for feature, ids in zip(self.features.flat, self.features.flatten(inputs, "inputs"), strict=True):
            embedding = self.embeddings[self.names.index(feature.table.name)]
            real = tf.not_equal(ids, -1 if feature.padding_id is None else feature.padding_id)
            size = embedding.input_dim - self.buckets
            if self.buckets:
                ids = tf.where((ids >= 0) & (ids < size), ids, size + tf.math.floormod(ids, self.buckets))
            rows = embedding(tf.where(real, ids, 0) if feature.padding_id is not None else ids)
            if feature.padding_id is not None:
                weight = tf.cast(real, rows.dtype)[..., None]
                rows *= weight
                if feature.combiner is not None:
                    rows = tf.reduce_sum(rows, axis=1) / tf.maximum(tf.reduce_sum(weight, axis=1), 1.0)
            outputs.append(rows)
        return self.features.pack(outputs)


def sides_of(model: Any) -> list[Any]:
    """The embedding sides of a model, also those of its towers."""
    return [model.rows] if hasattr(model, "rows") else [model.user_tower.rows, model.item_tower.rows]


def to_keras(model: Any, buckets: int = 1 << 12, first: int = 0) -> Any:
    """Gives a new model Keras' embeddings for its rows, trained by the compiled optimizer, and returns it.

    The counts of a `TwoTower` stay a table: they are no rows that an optimizer of Keras could train.
    """
    for side in sides_of(model):
        fields = [field for part in getattr(side, "parts", ()) for field in part.fields]
        sizes = [space.size for space in side._spaces] if fields else [model.get_config()["nodes"]]
        hashed = any(field.size is None for field in fields)
        replace(side, "collection", KerasRows(side.collection, sizes, buckets if hashed else 0, first))
    return model


def replace(layer: Any, name: str, by: Any) -> None:
    """Gives a layer, also one that is built, another layer under a name."""
    layer._tracker.unlock()
    layer._tracker.untrack(getattr(layer, name))  # deleting the attribute would leave the weights
    setattr(layer, name, by)
