"""Metrics of ranking and click prediction, for Keras: `het_tf.metrics.GAUC(by="user")`.

Each is a Keras metric, and exact over several workers: docs/metrics.md.
"""

from het_tf.python.metrics.inputs import with_inputs
from het_tf.zoo.metrics.calibration import Calibration, NormalizedEntropy
from het_tf.zoo.metrics.gauc import GAUC
from het_tf.zoo.metrics.lists import NDCG, MeanReciprocalRank, RecallAtK

__all__ = [
    "GAUC",
    "NDCG",
    "Calibration",
    "MeanReciprocalRank",
    "NormalizedEntropy",
    "RecallAtK",
    "with_inputs",
]
