"""Counts occurrences of ids in a table."""

from typing import Any

import numpy as np
import tensorflow as tf

from het_tf import Cache, TableConfig, initializers, optimizers
from het_tf.keras import Embedding

keras: Any = tf.keras

TOTAL = np.iinfo(np.int64).min + 1
"""The id whose row counts all occurrences."""


@keras.utils.register_keras_serializable(package="het_tf")
class Occurrences(keras.layers.Layer):
    """Counts the occurrences of ids in training batches: row i of a table of one float is the count of id i.

    The table learns counts like any row. Its optimizer is SGD with rate 1, and the layer's
    term for the loss is 0 with a gradient of -1 for each occurrence, so each adds 1. So ids may be any
    int64, the counts go with the table to the parameter server and into checkpoints, and all workers add to
    the same counts. A scale of all gradients (an average over workers) scales all counts: ratios hold.

    (The clock of an item's row would count batches with the item, without repetitions, including those
    that have it only in a history that shares its row.) A float32 counts to 2^24.

    Args:
      table: Name of the table.
      cache: Cache of the table.
      named: Whether the user has chosen the name of the table.
      **kwargs: As in any Keras layer.

    Call arguments:
      ids: int64 `[N]`, the ids to read.
      occurred: Number of leading `ids` that occur; ignored unless training.
      training: As in Keras.

    Returns:
      Counts before this call, float32 `[N]`; their total over all ids, float32 `[]`; and the term to add to
      the loss, a 0 of float32 `[]`.
    """

    def __init__(self, table: str, cache: Cache | None = None, named: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs, dtype="float32")
        config = TableConfig(table, 1, optimizers.SGD(1.0), initializers.Zeros())
        config.unnamed = not named
        self.embedding = Embedding(config, cache=cache, name="counts", dtype="float32")

    def call(self, ids: Any, occurred: Any = 0, training: Any = None) -> tuple[Any, Any, Any]:
        """See the class."""
        rows = self.embedding(tf.concat([ids, tf.constant([TOTAL], tf.int64)], axis=0), training=training)
        counts, total = rows[:-1, 0], rows[-1, 0]
        present, number = counts[:occurred], tf.cast(occurred, tf.float32)
        term = tf.reduce_sum(tf.stop_gradient(present) - present)
        term += number * (tf.stop_gradient(total) - total)
        return tf.stop_gradient(counts), tf.stop_gradient(total), term
