"""Forecasts the cost of a job: `het_tf.planner.profile(dataset.batch(1024), model, out="stats")`."""

from het_tf.ext.sizing.python.sources import profile
from het_tf.python.gone import refuse

__getattr__ = refuse(__name__)
__all__ = ["profile"]
