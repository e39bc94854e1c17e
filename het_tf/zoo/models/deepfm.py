"""DeepFM."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from het_tf import optimizers
from het_tf.zoo.models.blocks import FactorizationMachine
from het_tf.zoo.models.field_vectors import FieldVectorModel

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class DeepFM(FieldVectorModel):
    """DeepFM (Guo et al., IJCAI 2017, equations 1 to 4).

        logit = sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j + w_deep^T MLP([v_1 x_1; v_2 x_2; ...]) + b

    over the categorical fields and sequences (x = 1; the mean over the ids of a sequence) and the numeric
    columns (x is the standardised number, w and v belong to the column). Second order and deep part share the
    vectors v; crossed features are not needed, since the second order finds them.

    Tables: `NAME/deep` with the vectors v, `NAME/linear` with the weights w. The logit has unscaled products
    of vectors, so a step moves it more than in other models: `table_optimizer` is
    `RowWiseAdagrad(0.005, decay_steps=1)`, and `linear_optimizer` `RowWiseAdagrad(0.02, decay_steps=1)`, or
    the given `table_optimizer`.

    Args, inputs, outputs and errors: see `ClickModel`.
    """

    default_name = "deepfm"

    def __init__(self, description: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(description, *args, **kwargs)
        self.second_order = FactorizationMachine(name="second_order")
        self.output_layer = keras.layers.Dense(1, name="deep_logit")

    def default_table_optimizer(self) -> optimizers.Optimizer:
        """AdaGrad with a smaller rate than the default of tables, see the class."""
        return optimizers.RowWiseAdagrad(0.005, decay_steps=1)

    def default_linear_optimizer(self) -> optimizers.Optimizer:
        """AdaGrad with a larger rate than for the vectors, which occur in products."""
        given = self.table_optimizer.get_config() != self.default_table_optimizer().get_config()
        return self.table_optimizer if given else optimizers.RowWiseAdagrad(0.02, decay_steps=1)

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        logit, vectors = self.first_order(inputs)
        logit += self.second_order(vectors)
        logit += self.output_layer(self.run_hidden(self.deep_input(vectors, None), training))
        return tf.cast(logit, tf.float32)
