"""Metrics of predicted probabilities: normalised entropy and calibration."""

from typing import Any

from het_tf.python.backend import keras
from het_tf.python.metrics.programs import demand, exact
from het_tf.zoo.metrics import arguments

ops = keras.ops


@keras.utils.register_keras_serializable(package="het_tf")
class NormalizedEntropy(arguments.Sums):
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
      ValueError: Shapes do not fit. A label is outside of [0, 1], or a weight is negative: on TensorFlow
        tf.errors.InvalidArgumentError, in a step that JAX has compiled JaxRuntimeError.
    """

    _direction = "down"  # which values are better, for Keras' callbacks

    def __init__(
        self, from_logits: bool = False, name: str = "normalized_entropy", dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits
        self._losses = self.sum("losses")
        self._positives = self.sum("positives")
        self._weights = self.sum("weights")

    @exact
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch; see the class."""
        labels, predictions, weights = arguments.flat(y_true, y_pred, sample_weight)
        inside = ops.all((labels >= 0) & (labels <= 1))
        labels, weights = demand(
            [labels, weights],
            (inside, "y_true has a value outside of [0, 1]; give labels of 0 and 1"),
            arguments.no_negative(weights),
        )
        if self.from_logits:
            losses = ops.relu(predictions) - predictions * labels + ops.log1p(ops.exp(-ops.abs(predictions)))
        else:
            epsilon = keras.backend.epsilon()
            least, most = (arguments.constant(one, predictions) for one in (epsilon, 1 - epsilon))
            clipped = ops.where(predictions < least, least, predictions)
            clipped = ops.where(clipped > most, most, clipped)
            losses = -(labels * ops.log(clipped) + (1 - labels) * ops.log1p(-clipped))
        self._losses.assign_add(ops.sum(weights * losses))
        self._positives.assign_add(ops.sum(weights * labels))
        self._weights.assign_add(ops.sum(weights))

    @exact
    def result(self) -> Any:
        """Returns the normalised entropy of all samples so far, a scalar."""
        weights = ops.convert_to_tensor(self._weights)
        rate = ops.convert_to_tensor(self._positives) / weights
        entropy = -(_x_log_x(rate) + _x_log_x(1 - rate))
        mean = ops.convert_to_tensor(self._losses) / weights
        return self.as_result(ops.where(entropy > 0, mean / entropy, float("nan")))

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "from_logits": self.from_logits}


def _x_log_x(x: Any) -> Any:
    """Returns x log x, with 0 log 0 = 0: the entropy of equal labels is 0, and the result NaN."""
    return x * ops.log(ops.where(x > 0, x, 1.0))


@keras.utils.register_keras_serializable(package="het_tf")
class Calibration(arguments.Sums):
    """Sum of predictions divided by sum of labels (He et al., ADKDD 2014, section 3); 1 is unbiased.

    `result()` is NaN while the sum of labels is 0.

    Args:
      from_logits: Whether y_pred are logits, to which the sigmoid is applied.
      name, dtype: As in any Keras metric; states are always float64.

    Call arguments of `update_state`: as in `NormalizedEntropy`, but labels may be any numbers, such as
    counts.

    Raises:
      ValueError: As `NormalizedEntropy`, but for labels.
    """

    def __init__(self, from_logits: bool = False, name: str = "calibration", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits
        self._predicted = self.sum("predicted")
        self._observed = self.sum("observed")

    @exact
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch; see the class."""
        labels, predictions, weights = arguments.flat(y_true, y_pred, sample_weight)
        (weights,) = demand([weights], arguments.no_negative(weights))
        if self.from_logits:
            predictions = ops.sigmoid(predictions)
        self._predicted.assign_add(ops.sum(weights * predictions))
        self._observed.assign_add(ops.sum(weights * labels))

    @exact
    def result(self) -> Any:
        """Returns the ratio over all samples so far, a scalar."""
        observed = ops.convert_to_tensor(self._observed)
        ratio = ops.convert_to_tensor(self._predicted) / observed
        return self.as_result(ops.where(observed == 0, float("nan"), ratio))

    def get_config(self) -> dict[str, Any]:
        """The metric's arguments."""
        return {**super().get_config(), "from_logits": self.from_logits}
