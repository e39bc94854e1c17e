"""The embedding side of a graph model: the rows of its nodes, from a table of het_tf or one of Keras."""

from collections.abc import Mapping
from typing import Any

from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.models.embedding_side import SIDES
from het_tf.python.session.native import tf
from het_tf.python.table import initializers, optimizers
from het_tf.python.table.cache import Cache
from het_tf.python.table.config import FeatureConfig, TableConfig

keras: Any = tf.keras

FEATURE = "nodes"


@keras.utils.register_keras_serializable(package="het_tf")
class NodeRows(keras.layers.Layer):
    """Reads the rows of the nodes of all hops by one lookup.

    Args:
      nodes: Their number; "keras" makes so many rows, a table of het_tf makes one when it is trained.
      dim: Floats of a row.
      side: "het": a table of het_tf named `PREFIX/nodes`; "keras": `keras.layers.Embedding`.
      prefix: Of the table's name.
      optimizer: Of the table ("het" alone).
      cache: Of the table ("het" alone).
      scale: Rows begin uniform in [-scale, scale).
      seed: Of the initial rows.
      named: Whether somebody has chosen the prefix; else the table is the layer's own ("het" alone).

    Call arguments:
      inputs: A dict of int64 [B] and [B, n], the nodes of each hop by name.

    Returns:
      A list of float32 [B, dim] and [B, n, dim], in the order of the names.

    Raises:
      ValueError: Unknown side; more than 2^31 - 1 nodes for "keras".
    """

    def __init__(
        self,
        nodes: int,
        dim: int,
        side: str = "het",
        prefix: str = "graphsage",
        optimizer: optimizers.Optimizer | None = None,
        cache: Cache | None = None,
        scale: float = 0.05,
        seed: int = 0,
        named: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if side not in SIDES:
            raise ValueError(f"embedding is {side!r}; give one of {SIDES}")
        if hasattr(self, "supports_jit"):
            self.supports_jit = side == "keras"
        self.side, self.dim = side, dim
        self._arguments: dict[str, Any] = {
            "nodes": nodes,
            "dim": dim,
            "side": side,
            "prefix": prefix,
            "optimizer": optimizer and optimizer.get_config(),
            "cache": cache and cache.get_config(),
            "scale": scale,
            "seed": seed,
            "named": named,
        }
        if side == "het":
            initializer = initializers.Uniform(-scale, scale)
            table = TableConfig(f"{prefix}/{FEATURE}", dim, optimizer, initializer, seed=seed)
            table.unnamed = not named
            self.collection = EmbeddingCollection({FEATURE: FeatureConfig(table)}, cache=cache, name="tables")
            return
        if nodes > 2**31 - 1:
            raise ValueError(f"nodes is {nodes}: too many for keras.layers.Embedding; use embedding='het'")
        uniform = keras.initializers.RandomUniform(-scale, scale, seed=seed)
        self.embedding = keras.layers.Embedding(nodes, dim, embeddings_initializer=uniform, name=FEATURE)

    def build(self, input_shape: Any) -> None:
        """Makes the weights of the Keras side; het_tf's layer has made its own."""
        if self.side == "keras":
            self.embedding.build((None,))
        super().build(input_shape)

    def ids(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What the collection is called on ("het" alone): the nodes of all hops, int64 [B * n]."""
        flat = [tf.reshape(tf.cast(inputs[name], tf.int64), [-1]) for name in sorted(inputs)]
        return {FEATURE: tf.concat(flat, axis=0)}

    def call(self, inputs: Mapping[str, Any]) -> list[Any]:
        """See the class."""
        ids = self.ids(inputs)
        rows = self.collection(ids)[FEATURE] if self.side == "het" else self.embedding(ids[FEATURE])
        hops = [inputs[name] for name in sorted(inputs)]
        parts = tf.split(rows, [tf.size(hop) for hop in hops], num=len(hops))
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
