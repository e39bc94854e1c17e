"""How often each id has occurred, counted by a table."""

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
    """Counts the occurrences of ids in training batches: row i of a table of one float is how many.

    The table learns them as it learns any row. Its optimizer is SGD of rate 1, and the term that the layer
    returns for the loss is 0 with a gradient of -1 for each occurrence, so each adds 1. So ids may be any
    int64, the counts go with the table to the parameter server and into checkpoints, all workers add to the
    same ones, and whatever scales all gradients (an average over workers) scales all counts: ratios hold.

    (The clock of an item's row would count batches that have the item, without its repetitions, and those
    where it stands in a history that shares its row.) A float32 counts to 2^24.

    Args:
      table: Its name.
      cache: Of the table.
      named: Whether somebody has chosen the name of the table.
      **kwargs: As of any Keras layer.

    Call arguments:
      ids: int64 `[N]`, whose counts are read.
      occurred: How many of them, from the first on, occur; none unless training.
      training: As in Keras.

    Returns:
      Counts before this call, float32 `[N]`; of all ids together, float32 `[]`; and the term to add to the
      loss, a 0 of float32 `[]`.
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
