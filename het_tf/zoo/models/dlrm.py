"""DLRM."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import apply, check_widths, hidden_layers

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class PairwiseDots(keras.layers.Layer):
    """The dot products of all pairs of fields, each pair once.

        y = [<v_i, v_j>]  for i < j

    Call arguments:
      inputs: float `[B, F, dim]`.

    Returns:
      float `[B, F (F - 1) / 2]`: (0, 1), (0, 2), ..., (F - 2, F - 1).
    """

    def call(self, inputs: Any) -> Any:
        """See the class."""
        fields = int(inputs.shape[1])
        products = tf.matmul(inputs, inputs, transpose_b=True)
        rows, columns = np.triu_indices(fields, 1)
        places = (rows * fields + columns).astype(np.int32)
        return tf.gather(tf.reshape(products, [-1, fields * fields]), places, axis=1)


@keras.utils.register_keras_serializable(package="het_tf")
class DLRM(ClickModel):
    """DLRM, the deep learning recommendation model (Naumov et al., arXiv:1906.00091, section 2).

        z     = MLP_bottom(numeric columns)                        [B, embedding_dim]
        p     = [<v_i, v_j>] for i < j of (z, rows of the fields)
        logit = w^T MLP_top([z; p]) + b

    over the categorical fields, the sequences (mean of the rows) and the standardised numeric columns.
    Without numeric columns the bottom perceptron reads the number 1, so z is a learnt vector: its products
    with the rows let each field count by itself, too. Otherwise products of small rows are about 0 and hardly
    learn, and a single field has none.

    Table: `NAME/deep`.

    Args:
      description: See `ClickModel`.
      *args: See `ClickModel`; `hidden_units` are the widths of the top perceptron.
      bottom_units: Widths of the bottom perceptron's hidden layers; its last layer has `embedding_dim`.
      **kwargs: See `ClickModel`.

    Inputs, outputs and errors: see `ClickModel`.
    """

    default_name = "dlrm"

    def __init__(
        self, description: Any, *args: Any, bottom_units: Sequence[int] = (64,), **kwargs: Any
    ) -> None:
        super().__init__(description, *args, **kwargs)
        bottom_units = check_widths("bottom_units", bottom_units)
        self._arguments |= {"bottom_units": bottom_units}
        self.dots = PairwiseDots(name="dots")
        self.output_layer = keras.layers.Dense(1, name="logit")
        self.bottom = hidden_layers([*bottom_units, self.embedding_dim], 0.0, self.seed + 50, "bottom")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        vectors = self.rows(inputs)["deep"]
        numeric = self.numeric(inputs)
        if numeric is None:
            numeric = tf.ones_like(vectors[:, 0, :1])
        dense = apply(self.bottom, numeric, training)
        top = self.dots(tf.concat([dense[:, None, :], vectors], axis=1))
        top = tf.concat([dense, top], axis=1)
        return tf.cast(self.output_layer(self.run_hidden(top, training)), tf.float32)
