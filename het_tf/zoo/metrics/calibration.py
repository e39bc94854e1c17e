"""Metrics of predicted probabilities: normalised entropy and calibration."""

from typing import Any

import tensorflow as tf

from het_tf.zoo.metrics import arguments

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class NormalizedEntropy(keras.metrics.Metric):
    """Log loss divided by that of the base rate as prediction (He et al., ADKDD 2014, equation 1).

        NE = mean of -(y log p + (1 - y) log(1 - p))  /  -(c log c + (1 - c) log(1 - c)),   c = mean of y

    All means are weighted by `sample_weight`. 1 is as good as knowing the base rate; lower is better. Unlike
    the log loss it can be compared between data of different base rates.

    `result()` is NaN while all labels are equal (the entropy of the base rate is 0 then).

    Args:
      from_logits: Whether y_pred are logits. False: probabilities, which are clipped to [e, 1 - e] with
        e = `keras.backend.epsilon()` (1e-7).
      name, dtype: As in any Keras metric; states are always float64.

    Call arguments of `update_state`:
      y_true: `[B]` or `[B, ...]`, in [0, 1].
      y_pred: The same number of values; any float type.
      sample_weight: None, `[B]`, `[B, 1]`, or the shape of y_pred; >= 0.

    Raises:
      ValueError: Shapes do not fit.
      tf.errors.InvalidArgumentError: A label is outside of [0, 1], or a weight is negative.
    """

    _direction = "down"  # which values are better, for Keras' callbacks

    def __init__(
        self, from_logits: bool = False, name: str = "normalized_entropy", dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits
        self._losses = arguments.summed(self, "losses")
        self._positives = arguments.summed(self, "positives")
        self._weights = arguments.summed(self, "weights")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch; see the class."""
        labels, predictions, weights = arguments.flat(y_true, y_pred, sample_weight)
        arguments.probability_labels(labels)
        if self.from_logits:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions)
        else:
            epsilon = keras.backend.epsilon()
            inside = tf.clip_by_value(predictions, epsilon, 1 - epsilon)
            losses = -(labels * tf.math.log(inside) + (1 - labels) * tf.math.log1p(-inside))
        self._losses.assign_add(tf.reduce_sum(weights * losses))
        self._positives.assign_add(tf.reduce_sum(weights * labels))
        self._weights.assign_add(tf.reduce_sum(weights))

    def result(self) -> Any:
        """Returns the normalised entropy of all samples so far, a scalar."""
        weights = tf.convert_to_tensor(self._weights)
        rate = tf.convert_to_tensor(self._positives) / weights
        # xlogy: 0 log 0 = 0, so that the entropy of equal labels is 0, and the result NaN.
        entropy = -(tf.math.xlogy(rate, rate) + tf.math.xlogy(1 - rate, 1 - rate))
        mean = tf.convert_to_tensor(self._losses) / weights
        undefined = tf.constant(float("nan"), tf.float64)
        return arguments.as_result(self, tf.where(entropy > 0, mean / entropy, undefined))

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "from_logits": self.from_logits}


@keras.utils.register_keras_serializable(package="het_tf")
class Calibration(keras.metrics.Metric):
    """Sum of predictions divided by sum of labels (He et al., ADKDD 2014, section 3); 1 is unbiased.

    `result()` is NaN while the sum of labels is 0.

    Args:
      from_logits: Whether y_pred are logits, to which the sigmoid is applied.
      name, dtype: As in any Keras metric; states are always float64.

    Call arguments of `update_state`: as in `NormalizedEntropy`, but labels may be any numbers, such as
    counts.

    Raises:
      ValueError: Shapes do not fit.
      tf.errors.InvalidArgumentError: A weight is negative.
    """

    def __init__(self, from_logits: bool = False, name: str = "calibration", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits
        self._predicted = arguments.summed(self, "predicted")
        self._observed = arguments.summed(self, "observed")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch; see the class."""
        labels, predictions, weights = arguments.flat(y_true, y_pred, sample_weight)
        if self.from_logits:
            predictions = tf.sigmoid(predictions)
        self._predicted.assign_add(tf.reduce_sum(weights * predictions))
        self._observed.assign_add(tf.reduce_sum(weights * labels))

    def result(self) -> Any:
        """Returns the ratio over all samples so far, a scalar."""
        observed = tf.convert_to_tensor(self._observed)
        ratio = tf.convert_to_tensor(self._predicted) / observed
        undefined = tf.constant(float("nan"), tf.float64)
        return arguments.as_result(self, tf.where(tf.equal(observed, 0), undefined, ratio))

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "from_logits": self.from_logits}
