"""Arguments of metrics as flat columns of the same length, and states that are sums."""

from typing import Any

import numpy as np

from het_tf.python.backend import keras
from het_tf.python.metrics import programs
from het_tf.python.metrics.programs import demand, exact, mask_of, wide

ops = keras.ops


def tensor(values: Any) -> Any:
    """Returns values as a tensor; lists of floats as float32."""
    if isinstance(values, (list, tuple)) and all(isinstance(one, (int, float, list)) for one in values):
        values = np.asarray(values)
        values = values.astype(np.float32) if values.dtype == np.float64 else values
    return ops.convert_to_tensor(values)


def constant(value: float, like: Any) -> Any:
    """Returns a number in the type of a tensor: keras.ops rounds one of Python to float32 on PyTorch."""
    return ops.convert_to_tensor(value, dtype_of(like))


def dtype_of(values: Any) -> str:
    """Returns the name of a tensor's type."""
    return str(keras.backend.standardize_dtype(values.dtype))


def shape_of(values: Any) -> tuple[int | None, ...] | None:
    """Returns the shape as far as it is known when a graph is made; None: not even the rank."""
    return None if getattr(values.shape, "rank", 0) is None else tuple(values.shape)


def spread(values: Any, like: Any, name: str) -> Any:
    """Returns one value for each prediction, flat: all predictions of a sample get its value.

    Args:
      values: `[B]`, `[B, 1]` or the shape of `like`.
      like: The predictions, a tensor `[B]` or `[B, ...]`.
      name: Name of the argument, for the message.

    Returns:
      `[size of like]`.

    Raises:
      ValueError: The shapes do not fit, if they are known when a graph is made.
    """
    values = tensor(values)
    shape, wanted = shape_of(values), shape_of(like)
    if shape is None or wanted is None:
        return ops.reshape(values, [-1])
    own = shape
    while len(shape) > len(wanted) and shape[-1] == 1:
        values, shape = values[..., 0], shape[:-1]
    for _ in range(len(wanted) - len(shape)):
        values, shape = values[..., None], (*shape, 1)
    pairs = list(zip(shape, wanted, strict=False))
    if len(shape) > len(wanted) or any(None not in pair and pair[0] not in (1, pair[1]) for pair in pairs):
        raise ValueError(
            f"{name} has shape {own}, but y_pred {wanted}; give one value a sample, or one a prediction"
        )
    return ops.reshape(ops.broadcast_to(values, ops.shape(like)), [-1])


def flat(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Returns labels, predictions and weights, float64 `[N]` each; Keras' mask of y_pred is a weight of 0.

    Raises:
      ValueError: Shapes do not fit.
    """
    predictions, mask = tensor(y_pred), mask_of(y_pred)
    labels = ops.reshape(ops.cast(tensor(y_true), "float64"), [-1])
    of_predictions = ops.reshape(ops.cast(predictions, "float64"), [-1])
    sizes = labels.shape[0], of_predictions.shape[0]
    if None in sizes:
        rule = ops.size(labels) == ops.size(of_predictions)
        labels, of_predictions = demand(
            [labels, of_predictions], (rule, "y_true must have one label for each prediction of y_pred")
        )
    elif sizes[0] != sizes[1]:
        raise ValueError(
            f"y_true has {sizes[0]} values, but y_pred {sizes[1]}; give one label for each prediction"
        )
    weights = ops.ones_like(of_predictions)
    for given, name in ((sample_weight, "sample_weight"), (mask, "the mask of y_pred")):
        if given is not None:
            weights = weights * ops.cast(spread(given, predictions, name), "float64")
    return labels, of_predictions, weights


NO_NAN = "y_pred is NaN, which has no rank; look at the loss"
NO_NEGATIVE = "sample_weight has a negative value; give numbers >= 0"


def no_negative(weights: Any) -> tuple[Any, str]:
    """Returns the rule of weights."""
    return ops.all(weights >= 0), NO_NEGATIVE


class Sums(keras.metrics.Metric):
    """A metric whose states are sums: float64, so that sums of millions of small numbers are exact."""

    @exact
    def reset_state(self) -> None:
        """Sets all states to 0."""
        super().reset_state()

    def sum(self, name: str, dtype: str = "float64") -> Any:
        """Makes a state. ImportError: JAX is too old."""
        programs.check()
        with wide():
            return self.add_weight(name=name, shape=(), initializer="zeros", dtype=dtype)

    def as_result(self, value: Any) -> Any:
        """Casts a value to the metric's dtype."""
        return ops.cast(value, self.dtype or "float32")
