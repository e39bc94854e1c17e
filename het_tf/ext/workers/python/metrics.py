"""Exact metrics over all ranks: merges their states instead of averaging results."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from het_tf.python.session import collective


@contextlib.contextmanager
def global_states(metrics: Sequence[Any]) -> Iterator[None]:
    """While open, metrics have the states of a single process that has seen the batches of all ranks.

        with global_states([auc]):
            print(auc.result())

    A state of a Keras metric is a sum: a mean's total and count, the confusion counts of AUC. Sums are added
    over the ranks, in float64. So results inside are exact, unlike an average of the ranks' results:
    for AUC, precision and recall, and for a mean if ranks have seen different numbers of rows. It
    supports every metric whose variables are sums, like Keras' own. Afterwards each rank has its own
    states again. Every rank must enter it, with the same metrics in the same order.

    Args:
      metrics: Keras metrics.
    """
    variables = variables_of(metrics)
    mine = [np.asarray(variable.numpy()) for variable in variables]
    flat = np.concatenate([np.zeros(1), *(one.astype(np.float64).ravel() for one in mine)])
    total = collective.sum_over_ranks(flat, "metrics")[1:]
    try:
        for variable, one in zip(variables, mine, strict=True):
            values, total = total[: one.size], total[one.size :]
            variable.assign(values.reshape(one.shape).astype(one.dtype))
        yield
    finally:
        for variable, one in zip(variables, mine, strict=True):
            variable.assign(one)


def variables_of(metrics: Sequence[Any]) -> list[Any]:
    """Returns the states of metrics: sums."""
    return [variable for metric in metrics for variable in metric.variables]


def global_metrics(model: Any) -> dict[str, Any]:
    """Returns the metrics of a model as if one process had seen the batches of all ranks.

        model.evaluate(part_of_this_rank, verbose=0)
        print(het_tf.workers.global_metrics(model))

    Exact, see `global_states`. Every rank must call it.

    Args:
      model: A compiled model that has seen at least one batch, by `evaluate`, `fit` or `test_on_batch`.

    Returns:
      Name -> float (an array for a metric with one value a class), including the loss.
    """
    with global_states(model.metrics):
        return {name: _plain(value) for name, value in model.get_metrics_result().items()}


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array if array.ndim else float(array)
