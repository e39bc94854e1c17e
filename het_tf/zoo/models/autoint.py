"""AutoInt."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from het_tf.python.checks import whole
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import NumericVectors

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class FieldAttention(keras.layers.Layer):
    """An interacting layer (Song et al., CIKM 2019, equations 5 to 8).

        a^h_mk = softmax_k <Q_h e_m, K_h e_k>
        e'_m   = ReLU([sum_k a^1_mk V_1 e_k; sum_k a^2_mk V_2 e_k; ...] + R e_m)

    for each head h. Each field m becomes a mixture of the fields k that it attends to.

    Args:
      heads: Number of heads.
      dim: Floats of a field in one head.
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: float `[B, F, d]`.

    Returns:
      float `[B, F, heads * dim]`.

    Raises:
      ValueError: heads or dim is below 1.
    """

    def __init__(self, heads: int = 2, dim: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = whole("attention_heads", heads)
        self.dim = whole("attention_dim", dim)

    def build(self, input_shape: Any) -> None:
        """Makes Q, K, V and R side by side, `[d, 4 * heads * dim]`."""
        shape = (int(input_shape[-1]), 4 * self.heads * self.dim)
        self.matrices = self.add_weight(name="qkvr", shape=shape, initializer="glorot_uniform")
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """See the class."""
        fields = int(inputs.shape[1])
        width = self.heads * self.dim
        projected = tf.matmul(inputs, self.matrices)
        by_head = tf.reshape(projected[..., : 3 * width], [-1, fields, 3, self.heads, self.dim])
        query, key, value = tf.unstack(tf.transpose(by_head, [2, 0, 3, 1, 4]))  # [B, heads, F, dim]
        attention = tf.nn.softmax(tf.matmul(query, key, transpose_b=True))
        mixed = tf.transpose(tf.matmul(attention, value), [0, 2, 1, 3])
        return tf.nn.relu(tf.reshape(mixed, [-1, fields, width]) + projected[..., 3 * width :])

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "heads": self.heads, "dim": self.dim}


@keras.utils.register_keras_serializable(package="het_tf")
class AutoInt(ClickModel):
    """AutoInt (Song et al., CIKM 2019): self-attention over the fields learns their interactions.

        e^0   = (v_1 x_1, v_2 x_2, ...)
        e^l+1 = FieldAttention(e^l)
        logit = w^T [e^L_1; e^L_2; ...; MLP([e^0_1; e^0_2; ...])] + b

    over the categorical fields and sequences (x = 1; the mean over the ids of a sequence) and the numeric
    columns (x is the standardised number, v belongs to the column). With the perceptron this is the paper's
    AutoInt+ (section 5.4); `hidden_units=()` leaves it out and gives AutoInt.

    Table: `NAME/deep`.

    Args:
      description: See `ClickModel`.
      *args: See `ClickModel`.
      attention_layers: L, 1 or more; each adds an order of interaction.
      attention_heads: Heads of each layer.
      attention_dim: Floats of a field in one head.
      **kwargs: See `ClickModel`.

    Inputs, outputs and errors: see `ClickModel`.
    """

    default_name = "autoint"

    def __init__(
        self,
        description: Any,
        *args: Any,
        attention_layers: int = 2,
        attention_heads: int = 2,
        attention_dim: int = 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(description, *args, **kwargs)
        whole("attention_layers", attention_layers)
        self._arguments |= {
            "attention_layers": attention_layers,
            "attention_heads": attention_heads,
            "attention_dim": attention_dim,
        }
        self.attention = [
            FieldAttention(attention_heads, attention_dim, name=f"attention_{number + 1}")
            for number in range(attention_layers)
        ]
        self.output_layer = keras.layers.Dense(1, name="logit")
        if self.scale is not None:
            self.numeric_vectors = NumericVectors(self.embedding_dim, self.seed, name="numeric_vectors")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        vectors = self.rows(inputs)["deep"]
        numeric = self.numeric(inputs)
        if numeric is not None:
            vectors = tf.concat([vectors, self.numeric_vectors(numeric)], axis=1)
        fields = vectors
        for layer in self.attention:
            fields = layer(fields)
        output = self.deep_input(fields, None)
        if self.hidden:
            deep = self.run_hidden(self.deep_input(vectors, None), training)
            output = tf.concat([output, deep], axis=1)
        return tf.cast(self.output_layer(output), tf.float32)
