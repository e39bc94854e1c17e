"""SASRec."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from het_tf.python.checks import whole
from het_tf.zoo.data.examples import PADDING, Field
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.embedding_side import Part, ids_of
from het_tf.zoo.models.index import Index, make_index
from het_tf.zoo.models.own_loss import OwnLoss

keras: Any = tf.keras

ITEMS = "items"


@keras.utils.register_keras_serializable(package="het_tf")
class CausalBlock(keras.layers.Layer):
    """A block of SASRec (Kang and McAuley, ICDM 2018, section III.B), in the order of its authors' code.

        q = LayerNorm(x);   y = q + Attention(q, x, x);   z = LayerNorm(y);   out = z + FFN(z)

    A place sees itself and the places before it. FFN is two dense layers, ReLU between them.

    Args:
      heads: Heads of the attention.
      dropout: Share of attention weights and of outputs to drop in training.
      seed: Seed of dropout and initial weights.
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: float `[B, L, d]`, and bool `[B, L]`, True for items.
      training: As in Keras.

    Returns:
      float `[B, L, d]`, zeros for padding.
    """

    def __init__(self, heads: int = 1, dropout: float = 0.0, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = whole("heads", heads)
        self.dropout = dropout
        self.seed = seed
        self.norms = [keras.layers.LayerNormalization(epsilon=1e-8, name=f"norm_{n + 1}") for n in range(2)]
        self.drops = [keras.layers.Dropout(dropout, seed=seed + n, name=f"drop_{n + 1}") for n in range(2)]

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        shape = (None, *input_shape[0][1:])
        width = int(shape[-1])
        glorot = [keras.initializers.GlorotUniform(seed=self.seed + number) for number in range(3)]
        self.attention = keras.layers.MultiHeadAttention(
            self.heads,
            max(1, width // self.heads),
            dropout=self.dropout,
            kernel_initializer=glorot[0],
            name="attention",
        )
        self.dense = [
            keras.layers.Dense(width, activation, kernel_initializer=glorot[n + 1], name=f"dense_{n + 1}")
            for n, activation in enumerate(("relu", None))
        ]
        self.attention.build(shape, shape)
        for layer in [*self.norms, *self.dense]:
            layer.build(shape)
        super().build(input_shape)

    def call(self, inputs: Any, training: Any = None) -> Any:
        """See the class."""
        x, there = inputs
        length = int(x.shape[1])
        before = tf.constant(np.tri(length, dtype=bool))[None]
        # A place without an item sees itself, so that its softmax is defined.
        mask = before & (there[:, None, :] | tf.eye(length, dtype=tf.bool)[None])
        query = self.norms[0](x)
        seen = self.attention(query, x, x, attention_mask=mask, training=training)
        z = self.norms[1](query + seen)
        hidden = self.drops[0](self.dense[0](z), training=training)
        result = z + self.drops[1](self.dense[1](hidden), training=training)
        return result * tf.cast(there, result.dtype)[..., None]

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "heads": self.heads, "dropout": self.dropout, "seed": self.seed}


@keras.utils.register_keras_serializable(package="het_tf")
class SASRec(ClickModel, OwnLoss):
    """SASRec, self-attentive sequential recommendation (Kang and McAuley, ICDM 2018).

        x_t  = sqrt(d) m_{s_t} + p_t                        rows of the history's items, and of their places
        f_t  = LayerNorm(CausalBlock(... CausalBlock(x)))_t
        r_it = <f_t, m_i>                                   item i as the next one after place t (equation 7)
        loss = -mean over t and K negatives j of log sigmoid(r_{s_{t+1} t}) + log(1 - sigmoid(r_jt))

    The history `Field(..., shares="item")` of the description gives s_1 ... s_n, the field that it shares
    gives s_{n+1}. Items of the history, next items and negatives read rows of one table. It trains on each
    place of a history; negatives are drawn uniformly from [0, size) for each place and step.

    **Training.** All samples are positives: `model.compile("adam")`, `model.fit(dataset)`; labels are
    ignored. **Searching.** `model.index(item_ids).search(model(inputs)["user"], k)`.

    Table: `NAME/item`.

    Args:
      description: See `ClickModel`; it must have one history. Other fields are ignored.
      *args: See `ClickModel`; `hidden_units` are ignored.
      blocks: Number of causal blocks.
      heads: Heads of their attention; `embedding_dim` must be a multiple of it.
      negatives: K, the number of negatives of each place.
      **kwargs: See `ClickModel`.

    Returns:
      A dict: "user", f_n, float32 `[B, embedding_dim]`; "score", r of the item, `[B, 1]`; and in training
      "logits" `[B, L, 1 + K]` (the next item, then negatives) and "there" bool `[B, L]`.

    Raises:
      ValueError: The description has no history, or several, or one of 64-bit hashes; an argument is out of
        range.
    """

    default_name = "sasrec"
    has_perceptron = False

    def __init__(
        self, description: Any, *args: Any, blocks: int = 2, heads: int = 1, negatives: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(description, *args, **kwargs)
        whole("blocks", blocks)
        whole("heads", heads)
        whole("negatives", negatives)
        if self.embedding_dim % heads:
            raise ValueError(
                f"embedding_dim is {self.embedding_dim} and heads is {heads}; give a multiple of the heads"
            )
        self._arguments |= {"blocks": blocks, "heads": heads, "negatives": negatives}
        self.negatives = negatives
        self.blocks = [
            CausalBlock(
                heads, self._arguments["dropout"], self.seed + 10 * number, name=f"block_{number + 1}"
            )
            for number in range(blocks)
        ]
        self.norm = keras.layers.LayerNormalization(epsilon=1e-8, name="norm")
        self.drop = keras.layers.Dropout(self._arguments["dropout"], seed=self.seed, name="drop")
        self.places = self.add_weight(
            name="places",
            shape=(self.past.length, self.embedding_dim),
            initializer=keras.initializers.RandomUniform(-0.05, 0.05, seed=self.seed + 60),
        )

    @property
    def past(self) -> Field:
        """The history of the description."""
        return self.description.histories[0]

    def parts(self) -> tuple[Part, ...]:
        """The table: item. History, next items and negatives are one sequence of it."""
        self.check_history()
        histories = self.description.histories
        if len(histories) > 1:
            names = [field.name for field in histories]
            raise ValueError(f"the description has the histories {names}; SASRec reads one")
        if histories[0].size is None:
            raise ValueError(
                f"the items of {histories[0].name!r} are 64-bit hashes, but negatives are drawn from "
                "[0, size): give ids with a size"
            )
        field = Field(ITEMS, histories[0].size, length=0)  # of any length: history, item and negatives
        return (Part("item", (field,), self.embedding_dim, self.table_optimizer, apart=(ITEMS,)),)

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> dict[str, Any]:
        """See the class."""
        return self._run(inputs, training, bool(training))

    def _run(self, inputs: Mapping[str, Any], training: Any, with_logits: bool) -> dict[str, Any]:
        history = ids_of(self.past, inputs[self.past.name])
        item = tf.cast(inputs[str(self.past.shares)], tf.int64)
        length, number = int(self.past.length or 0), tf.shape(history)[0]
        there = tf.not_equal(history, PADDING)
        last = tf.maximum(tf.reduce_sum(tf.cast(there, tf.int32), axis=1) - 1, 0)
        ids = [history, item[:, None]]
        if with_logits:
            draws = [number, length * self.negatives]
            ids.append(tf.random.uniform(draws, 0, self.past.size, tf.int64, seed=self.seed))
        rows = self.rows({ITEMS: tf.concat(ids, axis=1)})[f"item/{ITEMS}"]
        # Each slice would have a gradient of the size of all rows; the gradient of a split is one concat.
        past, offered, *drawn = tf.split(rows, [length, 1, *(int(one.shape[1]) for one in ids[2:])], axis=1)
        states = self._states(past, there, training)
        user = tf.gather(states, last, batch_dims=1)
        score = tf.reduce_sum(user * offered[:, 0], axis=1, keepdims=True)
        outputs = {"user": tf.cast(user, tf.float32), "score": tf.cast(score, tf.float32)}
        if with_logits:
            is_last = tf.equal(tf.range(length)[None], last[:, None])[..., None]
            following = tf.where(is_last, offered, tf.roll(past, -1, 1))
            others = tf.reshape(drawn[0], [number, length, self.negatives, self.embedding_dim])
            of_following = tf.reduce_sum(states * following, axis=2, keepdims=True)
            logits = tf.concat([of_following, tf.reduce_sum(states[:, :, None] * others, axis=3)], axis=2)
            outputs |= {"logits": tf.cast(logits, tf.float32), "there": there}
        return outputs

    def _states(self, rows: Any, there: Any, training: Any) -> Any:
        """Returns f_t of all places, `[B, L, d]`, from the rows of the history."""
        present = tf.cast(there, rows.dtype)[..., None]
        x = rows * self.embedding_dim**0.5 + tf.cast(tf.convert_to_tensor(self.places), rows.dtype)
        x = self.drop(x, training=training) * present
        for block in self.blocks:
            x = block((x, there), training=training)
        return self.norm(x)

    def own_loss(self, inputs: Mapping[str, Any], outputs: Any, sample_weight: Any) -> Any:
        """Returns the loss of the class, a scalar."""
        if "logits" not in outputs:  # in evaluation
            outputs = self._run(inputs, False, True)
        return self.next_item_loss(outputs, sample_weight)

    def next_item_loss(self, outputs: Mapping[str, Any], sample_weight: Any = None) -> Any:
        """Returns the loss of a call in training: the mean over places with an item, by weights `[B]`."""
        logits = outputs["logits"]
        losses = tf.nn.softplus(-logits[..., 0]) + tf.reduce_mean(tf.nn.softplus(logits[..., 1:]), axis=2)
        weight = tf.cast(outputs["there"], tf.float32)
        if sample_weight is not None:
            weight *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weight), tf.reduce_sum(weight))

    def index(self, items: npt.ArrayLike, batch_size: int = 4096) -> Index:
        """Returns an index of items by the model's present state; it does not follow later training.

        Args:
          items: int64 `[N]`.
          batch_size: Rows to read at a time.

        Raises:
          ValueError: There are no items, or one is there twice.
        """

        def encode(batch: Mapping[str, Any]) -> Any:
            return tf.cast(self.rows({ITEMS: batch[ITEMS][:, None]})[f"item/{ITEMS}"][:, 0], tf.float32)

        return make_index(encode, {ITEMS: np.asarray(items)}, ITEMS, batch_size)

    def input_specs(self) -> dict[str, Any]:
        """The inputs of the model for `het_tf.export`: history and item."""
        specs = super().input_specs()
        return {name: specs[name] for name in (self.past.name, str(self.past.shares))}
