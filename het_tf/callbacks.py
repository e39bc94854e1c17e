"""Keras callbacks: figures of tables and caches, checkpoints, versions, and support for several workers."""

from het_tf.ext.checkpoint.python.callback import Checkpoint, RestoreBest
from het_tf.ext.monitor.python.progressive import ProgressiveEvaluation
from het_tf.ext.monitor.python.table_stats import TableStats
from het_tf.ext.serving.python.publishing.callback import Publish
from het_tf.ext.workers.python.callbacks import LearningRateScaling
from het_tf.python.gone import refuse

__getattr__ = refuse(__name__)
__all__ = [
    "Checkpoint",
    "LearningRateScaling",
    "ProgressiveEvaluation",
    "Publish",
    "RestoreBest",
    "TableStats",
]
