"""Keras callbacks: figures of tables and caches, checkpoints and versions."""

from het_tf.ext.checkpoint.python.callback import Checkpoint, RestoreBest
from het_tf.ext.monitor.python.progressive import ProgressiveEvaluation
from het_tf.ext.monitor.python.table_stats import TableStats
from het_tf.ext.serving.python.publishing.callback import Publish
from het_tf.python.gone import refuse

__getattr__ = refuse(__name__)
__all__ = [
    "Checkpoint",
    "ProgressiveEvaluation",
    "Publish",
    "RestoreBest",
    "TableStats",
]
