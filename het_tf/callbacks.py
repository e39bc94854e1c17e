"""Keras callbacks: figures of tables and caches, checkpoints, versions, and support for several workers."""

from het_tf.ext.checkpoint.python.callback import Checkpoint, RestoreBest
from het_tf.ext.monitor.python.plan_check import PlanCheck
from het_tf.ext.monitor.python.progressive import ProgressiveEvaluation
from het_tf.ext.monitor.python.step_trace import StepTrace
from het_tf.ext.monitor.python.table_stats import TableStats
from het_tf.ext.serving.python.publishing.callback import Publish
from het_tf.ext.workers.python.callbacks import LearningRateScaling

__all__ = [
    "Checkpoint",
    "LearningRateScaling",
    "PlanCheck",
    "ProgressiveEvaluation",
    "Publish",
    "RestoreBest",
    "StepTrace",
    "TableStats",
]
