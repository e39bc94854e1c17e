"""Keras callbacks: figures of tables and caches, checkpoints, versions, and support for several workers.

StepTrace needs TensorFlow as Keras' backend.
"""

from typing import TYPE_CHECKING, Any

from het_tf.ext.checkpoint.python.callback import Checkpoint, RestoreBest
from het_tf.ext.monitor.python.plan_check import PlanCheck
from het_tf.ext.monitor.python.progressive import ProgressiveEvaluation
from het_tf.ext.monitor.python.table_stats import TableStats
from het_tf.ext.serving.python.publishing.callback import Publish
from het_tf.ext.workers.python.callbacks import LearningRateScaling
from het_tf.python import backend
from het_tf.python.gone import refuse

if TYPE_CHECKING or backend.TENSORFLOW:
    from het_tf.ext.monitor.python.step_trace import StepTrace


def __getattr__(name: str) -> Any:
    """Refuses the other callback."""
    if name in __all__:
        raise backend.needs_tensorflow(f"het_tf.callbacks.{name}")
    return refuse(__name__)(name)


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
