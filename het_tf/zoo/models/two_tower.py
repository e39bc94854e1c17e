"""Two towers: retrieval of items for users."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from het_tf import Cache
from het_tf.python.checks import whole
from het_tf.python.ids import as_int64
from het_tf.zoo.data.examples import Description
from het_tf.zoo.models.base import ClickModel, description_from_config
from het_tf.zoo.models.embedding_side import ids_of
from het_tf.zoo.models.index import Index, batches_of, make_index
from het_tf.zoo.models.occurrences import Occurrences
from het_tf.zoo.models.own_loss import OwnLoss

keras: Any = tf.keras

NEGATIVE = "negative/"
"""Prefix of the item's fields in the inputs of negatives."""


@keras.utils.register_keras_serializable(package="het_tf")
class Tower(ClickModel):
    """One side of a `TwoTower`: maps the fields of a user, or of an item, to a vector.

        v = W MLP([rows of the fields; numeric columns]) + b,  divided by its length if `unit_length`

    Table: `NAME/deep`. `het_tf.export(model.user_tower, path)` serves only this side.

    Args:
      description: Description of the side: `description.side(item)`.
      *args: See `ClickModel`.
      vector_dim: Floats of a vector.
      unit_length: Whether vectors have the length 1.
      **kwargs: See `ClickModel`.

    Returns:
      Vectors, float32 `[B, vector_dim]`.
    """

    default_name = "tower"

    def __init__(
        self, description: Any, *args: Any, vector_dim: int = 32, unit_length: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(description, *args, **kwargs)
        whole("vector_dim", vector_dim)
        self._arguments |= {"vector_dim": vector_dim, "unit_length": unit_length}
        self.unit_length = unit_length
        initializer = keras.initializers.GlorotUniform(seed=self.seed + 40)
        self.output_layer = keras.layers.Dense(vector_dim, kernel_initializer=initializer, name="vector")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        x = self.deep_input(self.rows(inputs)["deep"], self.numeric(inputs))
        vectors = tf.cast(self.output_layer(self.run_hidden(x, training)), tf.float32)
        return tf.math.l2_normalize(vectors, axis=1) if self.unit_length else vectors


@keras.utils.register_keras_serializable(package="het_tf")
class TwoTower(OwnLoss):
    """Two towers, trained by the softmax over the items of the batch (Yi et al., RecSys 2019).

        s(x, y)  = <user_tower(x), item_tower(y)> / temperature
        loss_i   = -log( exp(s'(x_i, y_i)) / sum_j exp(s'(x_i, y_j)) ),   s'(x, y_j) = s(x, y_j) - log E_j

    y_i is the item of sample i; the items j of the other samples are its negatives. (If one of them is y_i
    again, it has the vector of y_i, and is not pushed away.) Popular items are negatives more often, so
    without the correction log E_j (equation 3) the loss would hold them down. E_j is
    B n_j / n, where the model counts n_j and n, the occurrences of item j and of all items in training
    (`Occurrences`: a table of counts; the paper estimates the same from the distance between two batches with
    an item).

    **More negatives.** Inputs `negative/FIELD` for each field of the item, `[K, ...]` or `[B, H, ...]`, are
    negatives of all samples of the batch. With `drawn_from=N` they are K items drawn uniformly from N (mixed
    negative sampling, Yang et al., WWW 2020; `mixed_negatives` draws them), and E_j = B n_j / n + K / N.
    Without it they are taken for hard negatives that you chose, and E_j = 1.

    **Training.** All samples are positives: `model.compile("adam")`, `model.fit(dataset)`; labels are
    ignored, so leave out items that users did not like (`examples.take(examples.label > 0)`). Sample weights
    count. **Searching.** `model.index(items).search(model.user_tower(inputs), k)`.

    Tables: `NAME_user/deep`, `NAME_item/deep`, `NAME/occurrences`.

    Args:
      description: Description of the data set; `description.item` names the fields of the item. The first
        categorical one of them is the item's id.
      vector_dim: Floats of the vectors of users and items.
      temperature: Divisor of scores, above 0.
      logq: Whether to correct for the frequency of items.
      unit_length: Whether vectors have the length 1.
      drawn_from: N, if given negatives are drawn uniformly from N items; None: they are hard ones.
      name: See `ClickModel`.
      **tower: Arguments of both towers: embedding_dim, hidden_units, dropout, table_optimizer, cache and
        seed of `ClickModel`.

    Call arguments:
      inputs: A dict, see `ClickModel`, with the fields of both sides.

    Returns:
      A dict: "user" and "item", float32 `[B, vector_dim]`; "score", their dot product, `[B, 1]`; and in
      training further inputs of the loss.

    Raises:
      ValueError: The description has no fields of one side; an argument is out of range.
    """

    def __init__(
        self,
        description: Description | Mapping[str, Any],
        vector_dim: int = 32,
        temperature: float = 0.05,
        logq: bool = True,
        unit_length: bool = True,
        drawn_from: int | None = None,
        name: str | None = None,
        **tower: Any,
    ) -> None:
        super().__init__(name=name or "two_tower")
        if not isinstance(description, Description):
            description = description_from_config(description)
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; give a number above 0")
        if drawn_from is not None:
            whole("drawn_from", drawn_from)
        self._is_named = name is not None
        self.description = description
        self.temperature = temperature
        self.logq = logq
        self.drawn_from = drawn_from
        of_item = description.side(item=True)
        if not of_item.categorical:
            raise ValueError(
                f"the item side of {description.name!r} has only sequences; add a categorical field, the "
                "item's id"
            )
        self.item_field = of_item.categorical[0]
        arguments = {"vector_dim": vector_dim, "unit_length": unit_length, **tower}
        self.user_tower = self._tower("user", description.side(item=False), arguments)
        self.item_tower = self._tower("item", of_item, arguments)
        counts = (f"{self.name}/occurrences", tower.get("cache"), self._is_named)
        self.occurrences = Occurrences(*counts, name="occurrences") if logq else None
        if self.occurrences is not None:
            self.occurrences.build(None)

    def _tower(self, side: str, description: Description, arguments: dict[str, Any]) -> Tower:
        if not self._is_named:
            return Tower(description, **arguments)
        return Tower(description, name=f"{self.name}_{side}", **arguments)

    def adapt(self, examples: Any) -> None:
        """See `ClickModel.adapt`."""
        self.user_tower.adapt(examples)

    # --- training -------------------------------------------------------------------------------------------

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> dict[str, Any]:
        """See the class."""
        users = self.user_tower(inputs, training=training)
        items, given = self._items(inputs)
        vectors = self.item_tower(items, training=training)
        number = tf.shape(users)[0]
        of_samples = vectors[:number] if given else vectors
        score = tf.reduce_sum(users * of_samples, axis=1, keepdims=True)
        outputs = {"user": users, "item": of_samples, "score": score}
        if training:
            outputs |= self._candidates(items, vectors, number, training)
        return outputs

    def _items(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Returns the items' fields, negatives after those of the samples; and whether it has negatives."""
        fields = self.item_tower.description.fields
        missing = [field.name for field in fields if NEGATIVE + field.name not in inputs]
        items = {field.name: ids_of(field, inputs[field.name]) for field in fields}
        if len(missing) == len(fields):
            return items, False
        if missing:
            raise ValueError(
                f"negatives lack {[NEGATIVE + name for name in missing]}; give all fields of the item"
            )
        for field in fields:
            shape = [-1] if field.length is None else [-1, field.length]
            negatives = tf.reshape(ids_of(field, inputs[NEGATIVE + field.name]), shape)
            items[field.name] = tf.concat([items[field.name], negatives], axis=0)
        return items, True

    def _candidates(self, items: dict[str, Any], vectors: Any, number: Any, training: Any) -> dict[str, Any]:
        """Returns candidates of the softmax, `[B + K, d]`, their log E `[B + K]`, and a term of the loss."""
        ids = items[self.item_field.name]
        result = {"candidates": vectors}
        if self.occurrences is None:
            return {**result, "log_e": tf.zeros_like(vectors[:, 0]), "term": tf.constant(0.0)}
        counts, total, term = self.occurrences(as_int64(ids), occurred=number, training=training)
        size, drawn = (tf.cast(one, tf.float32) for one in (number, tf.shape(ids)[0] - number))
        expected = size * (counts + 1.0) / (total + 1.0)  # counts lack this batch
        if self.drawn_from is None:
            expected = tf.where(tf.range(tf.shape(ids)[0]) < number, expected, 1.0)
        else:
            expected += drawn / self.drawn_from
        return {**result, "log_e": tf.math.log(expected), "term": term}

    def own_loss(self, inputs: Mapping[str, Any], outputs: Any, sample_weight: Any) -> Any:
        """Returns the softmax loss over the batch's items, a scalar."""
        if "candidates" not in outputs:  # in evaluation
            items, _ = self._items(inputs)
            vectors = self.item_tower(items, training=False)
            outputs = outputs | self._candidates(items, vectors, tf.shape(outputs["user"])[0], False)
        return self.softmax_loss(outputs, sample_weight)

    def softmax_loss(self, outputs: Mapping[str, Any], sample_weight: Any = None) -> Any:
        """Returns the loss of a call in training: the mean over samples, by weights `[B]` if given."""
        number = tf.shape(outputs["user"])[0]
        logits = tf.matmul(outputs["user"], outputs["candidates"], transpose_b=True) / self.temperature
        logits -= outputs["log_e"][None, :]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(number), logits)
        if sample_weight is None:
            return tf.reduce_mean(losses) + outputs["term"]
        weight = tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weight), tf.reduce_sum(weight)) + outputs["term"]

    # --- searching ------------------------------------------------------------------------------------------

    def index(self, items: Any, batch_size: int = 4096) -> Index:
        """Returns an index of items by the model's present state; it does not follow later training.

        Args:
          items: int64 or strings `[N]` if the item has one field, its id; else a dict of arrays of the
            item's fields. Or what training takes, a part of a data set or a `tf.data.Dataset` of batches:
            the first row of each item counts. Keys that are not fields of the item are ignored.
          batch_size: Items per call of the tower.

        Raises:
          ValueError: There are no items, an array has one twice, a field is missing, or a dataset has no end.
        """
        fields = self.item_tower.description.fields
        name = self.item_field.name
        batches = batches_of(items)
        if batches is None:
            columns = self._fields_of(items if isinstance(items, Mapping) else {name: items})
        else:
            seen: set[Any] = set()
            parts = []
            for batch in batches:
                part = self._fields_of(batch)
                first = np.unique(part[name], return_index=True)[1]
                new = [place for place in first if part[name][place] not in seen]
                seen.update(part[name][new].tolist())
                parts.append({key: column[new] for key, column in part.items()})
            if not parts:
                raise ValueError("items has no rows; give one or more")
            columns = {field.name: np.concatenate([part[field.name] for part in parts]) for field in fields}
            order = np.argsort(columns[name], kind="stable")
            columns = {key: column[order] for key, column in columns.items()}
        return make_index(lambda batch: self.item_tower(batch, training=False), columns, name, batch_size)

    def _fields_of(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the item's fields as arrays. ValueError: one is missing."""
        fields = self.item_tower.description.fields
        missing = [field.name for field in fields if field.name not in inputs]
        if missing:
            raise ValueError(
                f"items lack the fields {missing}; give a dict with all fields of the item, or the data that "
                "training takes"
            )
        return {
            field.name: np.asarray(inputs[field.name], np.int64 if field.dtype == "int64" else object)
            for field in fields
        }

    # --- configuration --------------------------------------------------------------------------------------

    def input_specs(self) -> dict[str, Any]:
        """The inputs of the model for `het_tf.export`: a `tf.TensorSpec` for each."""
        return {**self.user_tower.input_specs(), **self.item_tower.input_specs()}

    def get_config(self) -> dict[str, Any]:
        """The model's arguments. Tables are named, not contained."""
        tower = self.user_tower.get_config()
        for name in ("name", "description", "linear_optimizer"):
            del tower[name]
        return {
            "name": self.name if self._is_named else None,
            "description": dataclasses.asdict(self.description),
            "temperature": self.temperature,
            "logq": self.logq,
            "drawn_from": self.drawn_from,
            **tower,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """The inverse of `get_config`."""
        del custom_objects
        return cls(**{**config, "cache": Cache.from_config(config["cache"])})


def mixed_negatives(dataset: Any, items: Mapping[str, Any], count: int, seed: int = 0) -> Any:
    """Adds uniformly drawn negatives to each batch, for `TwoTower(drawn_from=N)` (Yang et al., WWW 2020).

    Args:
      dataset: A `tf.data.Dataset` of `(inputs, label)` batches.
      items: All N items: arrays of N rows, one for each field of the item.
      count: K, drawn for each batch, with replacement.
      seed: Seed of the draws.

    Returns:
      The dataset with inputs `negative/FIELD` of K rows.

    Raises:
      ValueError: There are no items, fields have different numbers of rows, or count is below 1.
    """
    whole("count", count)
    columns: dict[str, Any] = {name: tf.constant(np.asarray(column)) for name, column in items.items()}
    numbers: Sequence[int] = sorted({int(column.shape[0]) for column in columns.values()})
    if len(numbers) != 1 or not numbers[0]:
        raise ValueError(f"items have columns of {numbers or 'no'} rows; give each field one row an item")

    def add(inputs: dict[str, Any], *rest: Any) -> tuple[Any, ...]:
        places = tf.random.uniform([count], 0, numbers[0], tf.int64, seed=seed)
        drawn = {NEGATIVE + name: tf.gather(column, places) for name, column in columns.items()}
        return {**inputs, **drawn}, *rest

    return dataset.map(add)
