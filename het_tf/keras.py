"""Keras layers: `from het_tf.keras import Embedding, EmbeddingCollection`."""

from het_tf.python.gone import refuse
from het_tf.python.layer.embedding import Embedding
from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.layer.masked import MaskedEmbedding
from het_tf.python.layer.variable import TableVariable

__getattr__ = refuse(__name__)
__all__ = ["Embedding", "EmbeddingCollection", "MaskedEmbedding", "TableVariable"]
