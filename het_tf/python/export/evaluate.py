"""What smaller rows cost: the AUC of a model with its rows stored in each of the ways."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.export import portable, quantise, redirect
from het_tf.python.export.rows import Source
from het_tf.python.session.native import tf


@dataclass(frozen=True)
class Evaluation:
    """One way to store rows.

    Attributes:
      rows: Which.
      bytes: Of the rows of all tables.
      auc: Exact area under the ROC curve.
      change: Of the AUC, against rows of float32.
    """

    rows: str
    bytes: int
    auc: float
    change: float


def evaluate(
    model: Any, sources: Sequence[Source], asked: redirect.Options, dataset: Any, directory: Path
) -> list[Evaluation]:
    """Reads the data set once for each way to store rows.

    Args:
      model: Gives one score a sample, [B] or [B, 1].
      sources: Its tables; rows that filters leave out are left out here too.
      asked: For `unknown`.
      dataset: Of (inputs, labels) or (inputs, labels, weights); weights are not looked at.
      directory: With room for a table.

    Raises:
      ValueError: The elements are others, the model gives more than one score, or labels are not 0 and 1.
    """
    results: list[Evaluation] = []
    for rows in quantise.ROWS:
        backend = portable.Backend(sources, replace(asked, rows=rows), directory)
        value = _auc(model, backend, dataset)
        size = sum((backend.row_bytes() or {}).values())
        results.append(Evaluation(rows, size, value, value - results[0].auc if results else 0.0))
        del backend
    return results


def _auc(model: Any, backend: redirect.Backend, dataset: Any) -> float:
    @tf.function(reduce_retracing=True)
    def predict(inputs: Any) -> Any:
        with redirect.to(backend):
            return model(inputs, training=False)

    scores, labels = [], []
    for element in dataset:
        if not isinstance(element, (tuple, list)) or len(element) not in (2, 3):
            raise ValueError(
                "evaluate gives elements that are not (inputs, labels); give a tf.data.Dataset as fit "
                "takes it"
            )
        score, label = predict(element[0]), np.asarray(element[1])
        if not tf.is_tensor(score) or int(tf.size(score)) != label.size:
            raise ValueError(
                f"evaluate needs one score and one label a sample; model {model.name!r} gives "
                f"{tf.nest.map_structure(lambda x: tuple(x.shape), score)} for labels of shape {label.shape}"
            )
        scores.append(np.asarray(score).reshape(-1))
        labels.append(label.reshape(-1))
    if not scores:
        raise ValueError("evaluate has no elements")
    return auc(np.concatenate(scores), np.concatenate(labels))


def auc(scores: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """The share of pairs (a sample of label 1, one of label 0) that scores order rightly; ties count half.

    Args:
      scores: Floats [N].
      labels: 0 or 1 [N], some of each.

    Raises:
      ValueError: Labels are others.
    """
    positive = labels == 1
    ones, zeros = int(positive.sum()), int((labels == 0).sum())
    if ones + zeros != labels.size or not ones or not zeros:
        raise ValueError(
            f"evaluate has {ones} labels 1 and {zeros} labels 0 of {labels.size}; an AUC needs both, and "
            "no others"
        )
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of equal scores the mean of their ranks
    return float((ranks[inverse][positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def text(evaluations: Sequence[Evaluation]) -> str:
    """As a table."""
    lines = ["rows            MB        AUC   against float32"]
    lines += [
        f"{one.rows:<10} {one.bytes / 1e6:>7,.1f}  {one.auc:.7f}   {one.change:+.7f}" for one in evaluations
    ]
    return "\n".join(lines)
