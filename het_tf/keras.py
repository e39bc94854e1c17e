"""Keras layers: `from het_tf.keras import Embedding, EmbeddingCollection`; `convert` for models of Keras."""

from het_tf.python.gone import refuse
from het_tf.python.layer.convert import convert
from het_tf.python.layer.embedding import Embedding
from het_tf.python.layer.layers import EmbeddingCollection

__getattr__ = refuse(__name__)
__all__ = ["Embedding", "EmbeddingCollection", "convert"]
