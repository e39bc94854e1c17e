"""Keras layers: `from het_tf.keras import Embedding, EmbeddingCollection`."""

from het_tf.python.gone import refuse
from het_tf.python.layer import masked as _masked  # noqa: F401, registers its classes
from het_tf.python.layer.embedding import Embedding
from het_tf.python.layer.layers import EmbeddingCollection

__getattr__ = refuse(__name__)
__all__ = ["Embedding", "EmbeddingCollection"]
