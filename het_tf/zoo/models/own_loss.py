"""Models that define their loss: over a whole batch, or over every place of a sequence."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

keras: Any = tf.keras


class OwnLoss(keras.Model):
    """A model that is compiled without a loss; `fit` and `evaluate` show its own loss as "loss"."""

    def own_loss(self, inputs: Mapping[str, Any], outputs: Any, sample_weight: Any) -> Any:
        """Returns the loss of a batch, a scalar.

        Args:
          inputs: The inputs of the call.
          outputs: The outputs of the call, in training or not.
          sample_weight: None, or floats `[B]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define its loss: define own_loss()")

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Called by Keras in each step; ignores labels."""
        del y, kwargs
        loss = self.own_loss(x, y_pred, sample_weight)
        return tf.add_n([loss, *(tf.cast(one, loss.dtype) for one in self.losses)])
