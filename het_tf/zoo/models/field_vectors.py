"""The base of DeepFM and xDeepFM: first-order weights, and a vector for each field and column."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import NumericVectors
from het_tf.zoo.models.embedding_side import Part

keras: Any = tf.keras


class FieldVectorModel(ClickModel):
    """Base class of models with w_i x_i of first order, and vectors v_i x_i for the higher orders.

    x is 1 for a categorical field, the mean over the ids of a sequence, and a numeric column's standardised
    number.

    Tables: `NAME/deep` with the vectors v, `NAME/linear` with the weights w. Arguments: see `ClickModel`.
    """

    def __init__(self, description: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(description, *args, **kwargs)
        if self.scale is not None:
            self.numeric_linear = keras.layers.Dense(1, use_bias=False, name="numeric_linear")
            self.numeric_vectors = NumericVectors(self.embedding_dim, self.seed, name="numeric_vectors")

    def parts(self) -> tuple[Part, ...]:
        """The tables: deep and linear."""
        return self.deep_part(), self.linear_part("linear", self.deep_fields)

    def first_order(self, inputs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The sum of first order, float `[B, 1]`, and the vectors, float `[B, fields + columns, dim]`."""
        rows = self.rows(inputs)
        logit, vectors = tf.reduce_sum(rows["linear"], axis=1), rows["deep"]
        numeric = self.numeric(inputs)
        if numeric is not None:
            logit += self.numeric_linear(numeric)
            vectors = tf.concat([vectors, self.numeric_vectors(numeric)], axis=1)
        return logit, vectors
