"""DeepFM."""

from collections.abc import Mapping
from typing import Any

from het_tf.python.models.base import ClickModel
from het_tf.python.models.blocks import FactorizationMachine, NumericVectors
from het_tf.python.models.embedding_side import Part
from het_tf.python.session.native import tf

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class DeepFM(ClickModel):
    """DeepFM (Guo et al., IJCAI 2017, equations 1 to 4).

        logit = sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j + w_deep^T MLP([v_1 x_1; v_2 x_2; ...]) + b

    over the categorical fields and sequences (x = 1; the mean over the ids of a sequence) and the numeric
    columns (x is the standardised number, w and v belong to the column). Second order and deep part share the
    vectors v; there are no crossed features, for the second order finds them.

    Tables: `NAME/deep` with the vectors v, `NAME/linear` with the weights w.

    Args, inputs, outputs and errors: see `ClickModel`; `linear_optimizer` is `table_optimizer` unless given.
    """

    default_name = "deepfm"

    def __init__(self, description: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(description, *args, **kwargs)
        self.second_order = FactorizationMachine(name="second_order")
        self.output_layer = keras.layers.Dense(1, name="deep_logit")
        if self.scale is not None:
            self.numeric_linear = keras.layers.Dense(1, use_bias=False, name="numeric_linear")
            self.numeric_vectors = NumericVectors(self.embedding_dim, self.seed, name="numeric_vectors")

    def parts(self) -> tuple[Part, ...]:
        """The tables: deep and linear."""
        return self.deep_part(), self.linear_part("linear", self.deep_fields)

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        rows = self.rows(inputs)
        vectors = rows["deep"]
        logit = tf.reduce_sum(rows["linear"], axis=1)
        numeric = self.numeric(inputs)
        if numeric is not None:
            logit += self.numeric_linear(numeric)
            vectors = tf.concat([vectors, self.numeric_vectors(numeric)], axis=1)
        logit += self.second_order(vectors)
        logit += self.output_layer(self.run_hidden(self.deep_input(vectors, None), training))
        return tf.cast(logit, tf.float32)
