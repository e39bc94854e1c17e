"""xDeepFM."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from het_tf.zoo.models.blocks import check_widths
from het_tf.zoo.models.field_vectors import FieldVectorModel

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class CompressedInteraction(keras.layers.Layer):
    """The compressed interaction network, CIN (Lian et al., KDD 2018, equations 6 and 8).

        x^k_h = sum_{i, j} W^{k,h}_ij (x^{k-1}_i * x^0_j)      for h < units[k - 1]; * multiplies elements
        y     = [sum_d x^k_hd]                                 for every layer k and every h

    Layer k has products of k + 1 fields. It is linear, which the paper found best (section 4.4). A layer of H
    vectors costs O(H * H_before * F * dim) a sample.

    Args:
      units: H of each layer.
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: float `[B, F, dim]`, a vector a field.

    Returns:
      float `[B, sum of units]`.

    Raises:
      ValueError: There are no units, or one is below 1.
    """

    def __init__(self, units: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = check_widths("cin_units", units)
        if not self.units:
            raise ValueError("cin_units is (); give the width of one layer or more")

    def build(self, input_shape: Any) -> None:
        """Makes W of each layer, `[H_before * F, H]`."""
        fields = before = int(input_shape[1])
        self.matrices = []
        for number, width in enumerate(self.units):
            matrix = self.add_weight(
                name=f"w_{number + 1}", shape=(before * fields, width), initializer="glorot_uniform"
            )
            self.matrices.append(matrix)
            before = width
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """See the class."""
        first = last = tf.transpose(inputs, [0, 2, 1])  # fields last: a layer is one product of matrices
        sums = []
        for matrix in self.matrices:
            products = last[..., :, None] * first[..., None, :]
            pairs = int(last.shape[-1]) * int(first.shape[-1])
            last = tf.matmul(tf.reshape(products, [-1, int(first.shape[1]), pairs]), matrix)
            sums.append(tf.reduce_sum(last, axis=1))
        return tf.concat(sums, axis=1)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "units": self.units}


@keras.utils.register_keras_serializable(package="het_tf")
class XDeepFM(FieldVectorModel):
    """xDeepFM (Lian et al., KDD 2018, equation 9).

        logit = sum_i w_i x_i + w_cin^T CIN(v) + w_dnn^T MLP([v_1 x_1; v_2 x_2; ...]) + b

    over the categorical fields and sequences (x = 1; the mean over the ids of a sequence) and the numeric
    columns (x is the standardised number, w and v belong to the column).

    Tables: `NAME/deep` with the vectors v, `NAME/linear` with the weights w.

    Args:
      description: See `ClickModel`.
      *args: See `ClickModel`.
      cin_units: Vectors of each layer of the compressed interaction network.
      **kwargs: See `ClickModel`.

    Inputs, outputs and errors: see `ClickModel`.
    """

    default_name = "xdeepfm"

    def __init__(
        self, description: Any, *args: Any, cin_units: Sequence[int] = (32, 32), **kwargs: Any
    ) -> None:
        super().__init__(description, *args, **kwargs)
        self.interaction = CompressedInteraction(cin_units, name="cin")
        self._arguments |= {"cin_units": list(cin_units)}
        self.output_layer = keras.layers.Dense(1, name="logit")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        logit, vectors = self.first_order(inputs)
        hidden = self.run_hidden(self.deep_input(vectors, None), training)
        logit += self.output_layer(tf.concat([self.interaction(vectors), hidden], axis=1))
        return tf.cast(logit, tf.float32)
