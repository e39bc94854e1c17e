"""The building blocks of the models."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from het_tf.python.checks import is_whole, whole_or_none

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class FactorizationMachine(keras.layers.Layer):
    """All products of two fields: the second order of a factorization machine (Rendle, ICDM 2010).

        y = sum_{i<j} <v_i, v_j> = 1/2 sum_d [(sum_i v_id)^2 - sum_i v_id^2]

    which costs O(fields * dim) instead of O(fields^2 * dim).

    Call arguments:
      inputs: float `[B, fields, dim]`, a vector a field (for a column its number times its vector).

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
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: The pair (x_0, x_l), both float `[B, d]`.

    Returns:
      x_{l+1}, float `[B, d]`.

    Raises:
      ValueError: rank < 1.
    """

    def __init__(self, rank: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rank = whole_or_none("rank", rank, otherwise="None for a full matrix")

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


@keras.utils.register_keras_serializable(package="het_tf")
class NumericVectors(keras.layers.Layer):
    """A vector for each numeric column, times the number, so that columns interact with fields.

    Args:
      dim: Floats of a vector.
      seed: Seed of the initial vectors, uniform in [-0.05, 0.05) like rows of tables.
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: float `[B, M]`.

    Returns:
      float `[B, M, dim]`.
    """

    def __init__(self, dim: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.seed = seed

    def build(self, input_shape: Any) -> None:
        """Makes the vectors."""
        initializer = keras.initializers.RandomUniform(-0.05, 0.05, seed=self.seed + 100)
        shape = (int(input_shape[-1]), self.dim)
        self.vectors = self.add_weight(name="vectors", shape=shape, initializer=initializer)
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """See the class."""
        return inputs[..., None] * self.vectors

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "dim": self.dim, "seed": self.seed}


def hidden_layers(
    units: Sequence[int], dropout: float, seed: int, name: str = "hidden", activation: str = "relu"
) -> list[Any]:
    """Returns Dense layers NAME_1, NAME_2, ..., each followed by dropout if it is above 0."""
    layers: list[Any] = []
    for number, width in enumerate(units):
        initializer = keras.initializers.GlorotUniform(seed=seed + number)
        layers.append(
            keras.layers.Dense(width, activation, kernel_initializer=initializer, name=f"{name}_{number + 1}")
        )
        if dropout:
            layers.append(
                keras.layers.Dropout(dropout, seed=seed + number, name=f"{name}_dropout_{number + 1}")
            )
    return layers


def check_widths(argument: str, units: Sequence[int]) -> list[int]:
    """Returns the widths of layers as a list.

    Raises:
      ValueError: A width is below 1.
    """
    if not all(is_whole(width, 1) for width in units):
        raise ValueError(f"{argument} is {tuple(units)}; give widths of 1 or more, or () for none")
    return list(units)


def apply(layers: Sequence[Any], x: Any, training: Any) -> Any:
    """Applies the layers in order."""
    for layer in layers:
        x = layer(x, training=training) if isinstance(layer, keras.layers.Dropout) else layer(x)
    return x
