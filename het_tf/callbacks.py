"""Keras callbacks: figures of tables and caches, checkpoints, versions, and support for several workers."""

from het_tf.python.callbacks.checkpoint import Checkpoint, RestoreBest
from het_tf.python.callbacks.publish import Publish
from het_tf.python.horovod.callbacks import LearningRateScaling
from het_tf.python.monitor.plan_check import PlanCheck
from het_tf.python.monitor.progressive import ProgressiveEvaluation
from het_tf.python.monitor.step_trace import StepTrace
from het_tf.python.monitor.table_stats import TableStats

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
