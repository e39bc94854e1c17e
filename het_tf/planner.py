"""What a job will cost, before it runs: `het_tf.planner.profile(dataset, model, out="stats")`.

    stats = het_tf.planner.profile(dataset.batch(1024), model, out="stats")
    stats.tables[0].rows                      # distinct ids of the first table

A profile is one pass over the samples, in constant memory; the command is `het-plan profile`.
"""

from het_tf.python.planner.dataset import profile
from het_tf.python.planner.profile import Feature, Profiler
from het_tf.python.planner.stats import FeatureStats, Stats, TableStats

__all__ = ["Feature", "FeatureStats", "Profiler", "Stats", "TableStats", "profile"]
