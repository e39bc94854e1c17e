"""Wide & Deep."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from het_tf import optimizers
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.embedding_side import Part

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class WideDeep(ClickModel):
    """Wide & Deep (Cheng et al., DLRS 2016, equation 3), trained jointly.

        logit = sum_{i in wide} w_i + w_deep^T a + b,    a = MLP([rows of the fields; numeric columns])

    The wide part is linear over the categorical fields and the crossed features (`description.wide`), the
    deep part sees the categorical fields, the sequences (mean of the rows) and the standardised numeric
    columns. As in the paper FTRL with L1 trains the wide weights, and leaves weights of rare
    crosses at exactly 0, and AdaGrad the rows of the deep part; `linear_optimizer` and `table_optimizer`
    change that.

    Tables: `NAME/deep` of `embedding_dim` floats a row, `NAME/wide` of one.

    Args, inputs, outputs and errors: see `ClickModel`.
    """

    default_name = "wide_deep"

    def __init__(self, description: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(description, *args, **kwargs)
        self.output_layer = keras.layers.Dense(1, name="deep_logit")

    def parts(self) -> tuple[Part, ...]:
        """The tables: deep and wide."""
        return self.deep_part(), self.linear_part("wide", self.description.wide)

    def default_linear_optimizer(self) -> optimizers.Optimizer:
        """FTRL, as in the paper."""
        return optimizers.Ftrl(learning_rate=0.05, l1=0.001)

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        rows = self.rows(inputs)
        wide = tf.reduce_sum(rows["wide"], axis=1)
        deep = self.run_hidden(self.deep_input(rows["deep"], self.numeric(inputs)), training)
        return tf.cast(wide + self.output_layer(deep), tf.float32)
