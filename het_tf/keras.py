"""Keras layers: `from het_tf.keras import Embedding, EmbeddingCollection`."""

from het_tf.python.layer.layers import Embedding, EmbeddingCollection

__all__ = ["Embedding", "EmbeddingCollection"]
