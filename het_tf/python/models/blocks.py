"""Layers that the models are made of."""

from collections.abc import Sequence
from typing import Any

from het_tf.python.session.native import tf

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class FactorizationMachine(keras.layers.Layer):
    """All products of two fields: the second order of a factorization machine (Rendle, ICDM 2010).

        y = sum_{i<j} <v_i, v_j> = 1/2 sum_d [(sum_i v_id)^2 - sum_i v_id^2]

    which costs O(fields * dim) instead of O(fields^2 * dim).

    Call arguments:
      inputs: float `[B, fields, dim]`, a vector a field (a number times the vector of its column).

    Returns:
      float `[B, 1]`.
    """

    def call(self, inputs: Any) -> Any:
        """See the class."""
        square_of_sum = tf.square(tf.reduce_sum(inputs, axis=1))
        sum_of_squares = tf.reduce_sum(tf.square(inputs), axis=1)
        return 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)


@keras.utils.register_keras_serializable(package="het_tf")
class Cross(keras.layers.Layer):
    """A cross layer of DCN-v2 (Wang et al., WWW 2021, equations 1 and 2).

        x_{l+1} = x_0 * (W x_l + b) + x_l             full rank, W is d x d
        x_{l+1} = x_0 * (U (V^T x_l) + b) + x_l       low rank, U and V are d x r

    where * multiplies element by element. l such layers give all products of up to l + 1 features.

    Args:
      rank: r; None for a full matrix.
      **kwargs: As of any Keras layer.

    Call arguments:
      inputs: The pair (x_0, x_l), both float `[B, d]`.

    Returns:
      x_{l+1}, float `[B, d]`.

    Raises:
      ValueError: rank < 1.
    """

    def __init__(self, rank: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if rank is not None and rank < 1:
            raise ValueError(f"rank is {rank}; give a number of 1 or more, or None for a full matrix")
        self.rank = rank

    def build(self, input_shape: Any) -> None:
        """Makes W and b, or U, V and b."""
        width = int(input_shape[0][-1])
        if self.rank is None:
            self.matrix = self.add_weight(name="w", shape=(width, width), initializer="glorot_uniform")
        else:
            self.down = self.add_weight(name="v", shape=(width, self.rank), initializer="glorot_uniform")
            self.up = self.add_weight(name="u", shape=(self.rank, width), initializer="glorot_uniform")
        self.bias = self.add_weight(name="b", shape=(width,), initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: Sequence[Any]) -> Any:
        """See the class."""
        first, last = inputs
        if self.rank is None:
            mixed = tf.matmul(last, self.matrix)
        else:
            mixed = tf.matmul(tf.matmul(last, self.down), self.up)
        return first * (mixed + self.bias) + last

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "rank": self.rank}


def hidden_layers(units: Sequence[int], dropout: float, seed: int) -> list[Any]:
    """Dense layers with ReLU, each followed by dropout if there is any; none for no units."""
    layers: list[Any] = []
    for number, width in enumerate(units):
        initializer = keras.initializers.GlorotUniform(seed=seed + number)
        layers.append(
            keras.layers.Dense(width, "relu", kernel_initializer=initializer, name=f"hidden_{number + 1}")
        )
        if dropout:
            layers.append(keras.layers.Dropout(dropout, seed=seed + number, name=f"dropout_{number + 1}"))
    return layers


def apply(layers: Sequence[Any], x: Any, training: Any) -> Any:
    """Calls the layers one after the other."""
    for layer in layers:
        x = layer(x, training=training) if isinstance(layer, keras.layers.Dropout) else layer(x)
    return x
