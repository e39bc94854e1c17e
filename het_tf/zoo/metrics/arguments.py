"""Arguments of metrics as flat columns of the same length."""

from typing import Any

import tensorflow as tf


def spread(values: Any, like: Any, name: str) -> Any:
    """Returns one value for each prediction, flat: all predictions of a sample get its value.

    Args:
      values: `[B]`, `[B, 1]` or the shape of `like`.
      like: The predictions, `[B]` or `[B, ...]`.
      name: Name of the argument, for the message.

    Returns:
      `[size of like]`.

    Raises:
      ValueError: The shapes do not fit, if they are known when a graph is made.
    """
    values, like = tf.convert_to_tensor(values), tf.convert_to_tensor(like)
    rank, wanted = values.shape.rank, like.shape.rank
    if rank is None or wanted is None:
        return tf.reshape(values, [-1])
    while rank > wanted and values.shape[-1] == 1:
        values, rank = values[..., 0], rank - 1
    for _ in range(wanted - rank):
        values = values[..., None]
    pairs = list(zip(values.shape, like.shape, strict=False))
    if rank > wanted or any(None not in pair and pair[0] not in (1, pair[1]) for pair in pairs):
        raise ValueError(
            f"{name} has shape {values.shape}, but y_pred {like.shape}; give one value a sample, or one a "
            "prediction"
        )
    return tf.reshape(tf.broadcast_to(values, tf.shape(like)), [-1])


def flat(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Returns labels, predictions and weights, float64 `[N]` each; Keras' mask of y_pred is a weight of 0.

    Raises:
      ValueError: Shapes do not fit.
    """
    predictions = tf.convert_to_tensor(y_pred)
    labels = tf.reshape(tf.cast(tf.convert_to_tensor(y_true), tf.float64), [-1])
    mask = getattr(y_pred, "_keras_mask", None)
    flat_predictions = tf.reshape(tf.cast(predictions, tf.float64), [-1])
    sizes = labels.shape[0], flat_predictions.shape[0]
    if None not in sizes and sizes[0] != sizes[1]:
        raise ValueError(
            f"y_true has {sizes[0]} values, but y_pred {sizes[1]}; give one label for each prediction"
        )
    tf.debugging.assert_equal(
        tf.size(labels), tf.size(flat_predictions), "y_true must have one label for each prediction of y_pred"
    )
    weights = tf.ones_like(flat_predictions)
    if sample_weight is not None:
        weights *= tf.cast(spread(sample_weight, predictions, "sample_weight"), tf.float64)
    if mask is not None:
        weights *= tf.cast(spread(mask, predictions, "the mask of y_pred"), tf.float64)
    tf.debugging.assert_non_negative(weights, "sample_weight has a negative value; give numbers >= 0")
    return labels, flat_predictions, weights


def probability_labels(labels: Any) -> None:
    """Adds to the graph: InvalidArgumentError if a label is outside [0, 1]."""
    inside = tf.reduce_all((labels >= 0) & (labels <= 1))
    tf.debugging.Assert(inside, ["y_true has a value outside of [0, 1]; give labels of 0 and 1"], summarize=1)


def no_nan(scores: Any) -> None:
    """Adds to the graph: InvalidArgumentError if a score is NaN, which has no rank."""
    found = tf.reduce_any(tf.math.is_nan(scores))
    tf.debugging.Assert(~found, ["y_pred is NaN, which has no rank; look at the loss"], summarize=1)


def summed(metric: Any, name: str) -> Any:
    """Makes a state of a metric for a sum: float64, so that sums of millions of small numbers are exact."""
    return metric.add_weight(name=name, shape=(), initializer="zeros", dtype="float64")


def as_result(metric: Any, value: Any) -> Any:
    """Casts a value to the dtype of a metric."""
    return tf.cast(value, metric.dtype or "float32")
