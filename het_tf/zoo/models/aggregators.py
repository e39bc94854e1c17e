"""One step of GraphSAGE: computes a node's vector from its own and its neighbours' vectors."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import tensorflow as tf

from het_tf.python.checks import one_of, whole

keras: Any = tf.keras

Aggregator = Literal["mean", "gcn", "pool"]


@keras.utils.register_keras_serializable(package="het_tf")
class SageLayer(keras.layers.Layer):
    """A layer of GraphSAGE (Hamilton et al., NIPS 2017, algorithm 1, lines 4, 5 and 7).

        mean   n = mean({h_u: u a neighbour of v})                   (section 3.3, element by element)
        pool   n = max({ReLU(W_pool h_u + b)})                       (equation 3)
        gcn    n = mean({h_v} and {h_u}), and h_v is left out below          (equation 2)
        h_v' = activation(W [h_v; n] + b),  then h_v' / |h_v'|_2 if `normalize`

    Args:
      units: Floats of h_v'.
      aggregator: "mean", "gcn" or "pool"; the hidden width of "pool" is `units`. "gcn" has half the weights
        of "mean", which helps if few nodes have a class.
      activation: As in a Dense layer; None: linear.
      normalize: Whether to scale vectors to length 1.
      l2: The layer adds l2 times the sum of the squares of W (and W_pool) to the loss.
      seed: Seed of the weights.

    Call arguments:
      inputs: The pair of h_v, float [N, d], and of the neighbours' h_u, float [N, n, d].

    Returns:
      float [N, units].

    Raises:
      ValueError: Unknown aggregator; units < 1.
    """

    def __init__(
        self,
        units: int,
        aggregator: Aggregator = "mean",
        activation: Any = "relu",
        normalize: bool = True,
        l2: float = 0.0,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        one_of("aggregator", aggregator, get_args(Aggregator))
        whole("units", units, what="the floats of a vector")
        self.units, self.aggregator, self.normalize, self.l2, self.seed = (
            units,
            aggregator,
            normalize,
            l2,
            seed,
        )
        self.activation = keras.activations.get(activation)
        self.pool = None
        if aggregator == "pool":
            self.pool = self._matrix("relu", seed + 1, "pool")
        self.dense = self._matrix(activation, seed, "dense")

    def _matrix(self, activation: Any, seed: int, name: str) -> Any:
        return keras.layers.Dense(
            self.units,
            activation,
            kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
            kernel_regularizer=keras.regularizers.L2(self.l2) if self.l2 else None,
            name=name,
        )

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        width = int(input_shape[0][-1])
        if self.pool is not None:
            self.pool.build((None, None, width))
        gathered = {"mean": 2 * width, "gcn": width, "pool": width + self.units}
        self.dense.build((None, gathered[self.aggregator]))
        super().build(input_shape)

    def call(self, inputs: Sequence[Any]) -> Any:
        """See the class."""
        own, neighbours = inputs
        if self.aggregator == "gcn":
            together = tf.reduce_mean(tf.concat([own[:, None], neighbours], axis=1), axis=1)
        elif self.pool is None:
            together = tf.concat([own, tf.reduce_mean(neighbours, axis=1)], axis=-1)
        else:
            together = tf.concat([own, tf.reduce_max(self.pool(neighbours), axis=1)], axis=-1)
        result = self.dense(together)
        return tf.math.l2_normalize(result, axis=-1) if self.normalize else result

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "aggregator": self.aggregator,
            "activation": keras.activations.serialize(self.activation),
            "normalize": self.normalize,
            "l2": self.l2,
            "seed": self.seed,
        }
