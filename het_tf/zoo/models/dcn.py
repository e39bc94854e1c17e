"""DCN-v2."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import tensorflow as tf

from het_tf.python.checks import one_of, whole
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import Cross

keras: Any = tf.keras

Structure = Literal["parallel", "stacked"]


@keras.utils.register_keras_serializable(package="het_tf")
class DCNv2(ClickModel):
    """DCN-v2, the second Deep & Cross Network (Wang et al., WWW 2021).

        x_0     = [rows of the fields; numeric columns]
        x_{l+1} = x_0 * (W_l x_l + b_l) + x_l        (W_l = U_l V_l^T of rank `cross_rank`, if that is given)
        logit   = w^T [x_L; MLP(x_0)] + b            "parallel"
        logit   = w^T MLP(x_L) + b                   "stacked"

    over the categorical fields, the sequences (mean of the rows) and the standardised numeric columns.

    Table: `NAME/deep`.

    Args:
      description: See `ClickModel`, also for all other arguments, inputs, outputs and errors.
      cross_layers: L, the number of cross layers.
      cross_rank: Rank of their matrices; None for full ones.
      structure: "parallel" or "stacked".
      **kwargs: See `ClickModel`. The model has no first-order weights: `linear_optimizer` has no effect.
    """

    default_name = "dcn"

    def __init__(
        self,
        description: Any,
        *args: Any,
        cross_layers: int = 2,
        cross_rank: int | None = None,
        structure: Structure = "parallel",
        **kwargs: Any,
    ) -> None:
        super().__init__(description, *args, **kwargs)
        whole("cross_layers", cross_layers, 0)
        one_of("structure", structure, get_args(Structure))
        self._arguments |= {"cross_layers": cross_layers, "cross_rank": cross_rank, "structure": structure}
        self.crosses = [Cross(cross_rank, name=f"cross_{number + 1}") for number in range(cross_layers)]
        self.structure = structure
        self.output_layer = keras.layers.Dense(1, name="logit")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        first = self.deep_input(self.rows(inputs)["deep"], self.numeric(inputs))
        crossed = first
        for cross in self.crosses:
            crossed = cross([first, crossed])
        if self.structure == "stacked":
            output = self.run_hidden(crossed, training)
        else:
            output = tf.concat([crossed, self.run_hidden(first, training)], axis=1)
        return tf.cast(self.output_layer(output), tf.float32)
