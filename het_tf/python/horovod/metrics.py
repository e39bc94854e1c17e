"""Metrics over all ranks, exact: their states are summed, not their results averaged."""

from typing import Any

import numpy as np

from het_tf.python.session import collective


def global_metrics(model: Any) -> dict[str, Any]:
    """What the metrics of a model would say if one process had seen the batches of all ranks.

        model.evaluate(part_of_this_rank, verbose=0)
        print(het_tf.horovod.global_metrics(model))

    A Keras metric is a function of sums: a mean's total and count, the confusion counts of AUC. The sums are
    added over the ranks, in float64, and the results computed from them; the metrics of the ranks stay as
    they are. An average of the ranks' results would be wrong for AUC, precision and recall, and for a mean
    where ranks have seen different numbers of rows. It holds for every metric whose `merge_state` adds, as
    those of Keras do. Every rank must call it.

    Args:
      model: A compiled model that has seen at least one batch, by `evaluate`, `fit` or `test_on_batch`.

    Returns:
      Name -> float (an array for a metric with one value a class), the loss among them.
    """
    variables = [variable for metric in model.metrics for variable in metric.variables]
    mine = [np.asarray(variable.numpy()) for variable in variables]
    flat = np.concatenate([np.zeros(1), *(one.astype(np.float64).ravel() for one in mine)])
    total = collective.sum_over_ranks(flat, "metrics")[1:]
    try:
        for variable, one in zip(variables, mine, strict=True):
            values, total = total[: one.size], total[one.size :]
            variable.assign(values.reshape(one.shape).astype(one.dtype))
        results = model.get_metrics_result()
        return {name: _plain(value) for name, value in results.items()}
    finally:
        for variable, one in zip(variables, mine, strict=True):
            variable.assign(one)


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array if array.ndim else float(array)
