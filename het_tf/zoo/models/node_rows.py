"""The embedding side of a graph model: the rows of its nodes."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from het_tf import Cache, FeatureConfig, TableConfig, initializers, optimizers
from het_tf.keras import EmbeddingCollection
from het_tf.zoo.data.graph.nodes import HOP

keras: Any = tf.keras

FEATURE = "nodes"


def _hops(inputs: Mapping[str, Any]) -> list[Any]:
    """Returns the nodes of each hop; a data set may have other fields beside them, to place samples."""
    return [tf.cast(inputs[name], tf.int64) for name in sorted(inputs) if name.startswith(HOP)]


@keras.utils.register_keras_serializable(package="het_tf")
class NodeRows(keras.layers.Layer):
    """Reads the rows of the nodes of all hops by one lookup.

    Args:
      dim: Floats of a row.
      prefix: Prefix of the table's name, `PREFIX/nodes`.
      optimizer: Optimizer of the table.
      cache: Cache of the table.
      scale: Rows start uniform in [-scale, scale).
      seed: Seed of the initial rows.
      named: Whether the user has chosen the prefix; else the layer owns the table.

    Call arguments:
      inputs: A dict of int64 [B] and [B, n], the nodes of each hop by name.

    Returns:
      A list of float32 [B, dim] and [B, n, dim], in the order of the names.
    """

    def __init__(
        self,
        dim: int,
        prefix: str = "graphsage",
        optimizer: optimizers.Optimizer | None = None,
        cache: Cache | None = None,
        scale: float = 0.05,
        seed: int = 0,
        named: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self._arguments: dict[str, Any] = {
            "dim": dim,
            "prefix": prefix,
            "optimizer": optimizer and optimizer.get_config(),
            "cache": cache and cache.get_config(),
            "scale": scale,
            "seed": seed,
            "named": named,
        }
        initializer = initializers.RandomUniform(-scale, scale)
        table = TableConfig(f"{prefix}/{FEATURE}", dim, optimizer, initializer, seed=seed)
        table.unnamed = not named
        self.collection = EmbeddingCollection({FEATURE: FeatureConfig(table)}, cache=cache, name="tables")

    def ids(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the collection: the nodes of all hops, sample by sample, int64 [B, n]."""
        return {FEATURE: tf.concat([tf.reshape(hop, [tf.shape(hop)[0], -1]) for hop in _hops(inputs)], 1)}

    def call(self, inputs: Mapping[str, Any]) -> list[Any]:
        """See the class."""
        rows = self.collection(self.ids(inputs))[FEATURE]
        hops = _hops(inputs)
        widths = [1 if hop.shape.rank == 1 else tf.shape(hop)[1] for hop in hops]
        parts = tf.split(rows, widths, axis=1, num=len(hops))
        return [
            tf.reshape(part, tf.concat([tf.shape(hop), [rows.shape[-1]]], axis=0))
            for part, hop in zip(parts, hops, strict=True)
        ]

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments. The table is named, not contained."""
        return {**super().get_config(), **self._arguments}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The inverse of `get_config`."""
        optimizer, cache = config["optimizer"], config["cache"]
        made = {
            "optimizer": optimizer and optimizers.get(optimizer),
            "cache": cache and Cache.from_config(cache),
        }
        return cls(**{**config, **made})
