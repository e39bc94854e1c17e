"""Conditions on a metric of predictions, such as "auc < 0.79"."""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_EDGE = 1e-7  # logloss takes probabilities from here to 1 - here, as Keras does


def auc(labels: Array, predictions: Array) -> float:
    """The probability that label 1 has a larger prediction than label 0; ties count half."""
    _, place, count = np.unique(predictions, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    positive = labels == 1
    ones, zeros = positive.sum(), (~positive).sum()
    return float((rank[place.reshape(-1)][positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def logloss(labels: Array, predictions: Array) -> float:
    """The mean of -log of the probability that was predicted for the label."""
    p = np.clip(predictions, _EDGE, 1 - _EDGE)
    return float(-np.mean(np.where(labels == 1, np.log(p), np.log1p(-p))))


def mse(labels: Array, predictions: Array) -> float:
    """The mean squared difference."""
    return float(np.mean(np.square(labels - predictions)))


METRICS: dict[str, Callable[[Array, Array], float]] = {"auc": auc, "logloss": logloss, "mse": mse}
"""Each takes labels and predictions, float64 of one dimension."""
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Condition:
    """METRIC OP NUMBER.

    Attributes:
      metric: One of METRICS.
      comparison: One of <, <=, >, >=.
      number: A finite number.
    """

    metric: str
    comparison: str
    number: float

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Reads one. ValueError: it is none."""
        found = re.fullmatch(r"\s*([A-Za-z_0-9]+)\s*(<=|>=|<|>)\s*(\S+)\s*", text)
        if not found:
            raise ValueError(f"{text!r} is no condition; give METRIC OP NUMBER, such as 'auc < 0.79'")
        metric, comparison, number = found.groups()
        if metric not in METRICS:
            raise ValueError(f"{text!r} has the metric {metric!r}; give one of {', '.join(METRICS)}")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{text!r} ends with {number!r}, which is no finite number")
        return cls(metric, comparison, value)

    def holds(self, value: float) -> bool:
        """Whether the condition holds for a value of the metric; it does if that is not finite."""
        return not math.isfinite(value) or bool(_OPERATORS[self.comparison](value, self.number))

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.metric} {self.comparison} {self.number:g}"
