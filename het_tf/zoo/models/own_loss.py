"""Models whose loss is their own: of a batch as a whole, or of every place of a sequence."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

keras: Any = tf.keras


class OwnLoss(keras.Model):
    """A model that is compiled without a loss; `fit` and `evaluate` show its own as "loss"."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._shown_loss = (
            None if hasattr(tf.keras, "ops") else keras.metrics.Mean(name="loss")
        )  # Keras 3 shows it by itself

    def own_loss(self, inputs: Mapping[str, Any], outputs: Any, sample_weight: Any) -> Any:
        """The loss of a batch, a scalar.

        Args:
          inputs: What the model was called with.
          outputs: What it gave, in training or not.
          sample_weight: None, or floats `[B]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must say its loss: define own_loss()")

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Keras calls it in each step; labels are not looked at."""
        del y, kwargs
        loss = self.own_loss(x, y_pred, sample_weight)
        loss = tf.add_n([loss, *(tf.cast(one, loss.dtype) for one in self.losses)])
        if self._shown_loss is not None:
            self._shown_loss.update_state(loss)
        return loss
