"""DIN."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import apply, check_widths, hidden_layers
from het_tf.zoo.models.embedding_side import Part, ids_of, is_padding

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class TargetAttention(keras.layers.Layer):
    """The local activation unit and the weighted sum (Zhou et al., KDD 2018, equation 3).

        a_j = w^T MLP([h_j; t; h_j - t; h_j * t]) + b
        y   = sum_j a_j h_j

    for a target t and a history h. Without a softmax the length of y shows how much of the history is about
    the target. (The paper feeds the outer product of h_j and t; its authors' code feeds these four.)

    Args:
      units: Widths of the hidden layers of the unit, with sigmoid as in the authors' code.
      seed: Seed of the initial weights.
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: target float `[B, d]`, history float `[B, L, d]`, and bool `[B, L]`, True for items.

    Returns:
      float `[B, d]`; zeros for an empty history.

    Raises:
      ValueError: A width is below 1.
    """

    def __init__(self, units: Sequence[int] = (32,), seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = check_widths("attention_units", units)
        self.seed = seed
        self.hidden = hidden_layers(self.units, 0.0, seed, "unit", "sigmoid")
        self.weight = keras.layers.Dense(1, name="weight")

    def build(self, input_shape: Any) -> None:
        """Makes the weights of the unit."""
        width = 4 * int(input_shape[0][-1])
        for layer in [*self.hidden, self.weight]:
            layer.build((None, None, width))
            width = layer.units
        super().build(input_shape)

    def call(self, inputs: Sequence[Any]) -> Any:
        """See the class."""
        target, history, there = inputs
        targets = tf.broadcast_to(target[:, None, :], tf.shape(history))
        pairs = tf.concat([history, targets, history - targets, history * targets], axis=2)
        weights = self.weight(apply(self.hidden, pairs, None))
        weights *= tf.cast(there, weights.dtype)[..., None]
        return tf.reduce_sum(weights * history, axis=1)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "units": self.units, "seed": self.seed}


@keras.utils.register_keras_serializable(package="het_tf")
class DIN(ClickModel):
    """DIN, the deep interest network (Zhou et al., KDD 2018): the target attends to the history.

        y_h   = TargetAttention(row of the target, rows of history h)
        logit = w^T MLP([rows of the fields; y_1; y_2; ...; numeric columns]) + b

    A history is a sequence of the description that shares the ids of another field, the target:
    `Field("history", items, length=20, shares="item")`. Both read the same rows. Other sequences are averaged
    as in the other models.

    Table: `NAME/deep`.

    Args:
      description: See `ClickModel`; it must have one or more histories.
      *args: See `ClickModel`.
      attention_units: Widths of the hidden layers of each activation unit.
      **kwargs: See `ClickModel`.

    Inputs, outputs and errors: see `ClickModel`; ValueError if the description has no history.
    """

    default_name = "din"

    def __init__(
        self, description: Any, *args: Any, attention_units: Sequence[int] = (32,), **kwargs: Any
    ) -> None:
        super().__init__(description, *args, **kwargs)
        self._arguments |= {"attention_units": list(attention_units)}
        self.attention = [
            TargetAttention(attention_units, self.seed + 70 + number, name=f"attention_{field.name}")
            for number, field in enumerate(self.description.histories)
        ]
        self.output_layer = keras.layers.Dense(1, name="logit")

    def parts(self) -> tuple[Part, ...]:
        """The table: deep."""
        self.check_history()
        return (self.deep_part(apart=self.description.histories),)

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        rows = self.rows(inputs)
        (part,) = self.rows.parts
        vectors = rows["deep"]
        names = [field.name for field in part.columns]
        interests = []
        for field, attention in zip(self.description.histories, self.attention, strict=True):
            there = ~is_padding(field, ids_of(field, inputs[field.name]))
            target = vectors[:, names.index(str(field.shares))]
            interests.append(attention([target, rows[part.key(field)], there])[:, None, :])
        x = self.deep_input(tf.concat([vectors, *interests], axis=1), self.numeric(inputs))
        return tf.cast(self.output_layer(self.run_hidden(x, training)), tf.float32)
