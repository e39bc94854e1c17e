"""The base of all models: embedding side, numeric columns, configuration."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from het_tf import Cache, optimizers
from het_tf.python.checks import share, whole
from het_tf.zoo.data.examples import NUMERIC, Column, Description, Field
from het_tf.zoo.models.blocks import apply, check_widths, hidden_layers
from het_tf.zoo.models.embedding_side import EmbeddingSide, Part, config_of

keras: Any = tf.keras

ADAPT_ROWS = 1 << 17
"""Rows of a stream from which `adapt` takes the scale of numeric columns."""


class ClickModel(keras.Model):
    """Base class of the click-through models: maps inputs of `description.inputs()` to logits.

    Subclasses define the parts (tables) and compute the logits.

    Args:
      description: Description of the data set; names, sizes and lengths of the fields.
      embedding_dim: Floats of a row of the deep part.
      hidden_units: Widths of the deep part's layers; () for none.
      dropout: Share of the outputs of hidden layers to drop in training, in [0, 1).
      table_optimizer: Optimizer of the tables, which are named `NAME/deep` and the like, one of
        `het_tf.optimizers` or its name; None: the class's default, or `RowWiseAdagrad()`.
      linear_optimizer: Optimizer of the table of first-order weights; None: the class's default.
      cache: Cache of the tables, a `het_tf.Cache`; None: its defaults.
      seed: Seed of initial rows and weights.
      name: Name of the model, and prefix of its tables' names. Two models of one name share their tables,
        unless they are made in different `het_tf.namespace()`. None: the model has its own tables, which
        are removed with it.

    Call arguments:
      inputs: A dict: int64 or strings `[B]` a categorical field, `[B, L]` a sequence (see `Field.dtype`; of
        longer ones the last L ids count), float32 `[B, M]` under "numeric". Fields that the model does not
        use may be missing.

    Returns:
      Logits, float32 `[B, 1]`, or one for each label if the class says so; `tf.sigmoid` makes them
      probabilities.

    Raises:
      ValueError: An argument is out of range; the message gives the legal values.
    """

    def __init__(
        self,
        description: Description | Mapping[str, Any],
        embedding_dim: int = 16,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.0,
        table_optimizer: Any = None,
        linear_optimizer: Any = None,
        cache: Cache | None = None,
        seed: int = 0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or self.default_name, **kwargs)
        self._is_named = name is not None
        if not isinstance(description, Description):
            description = description_from_config(description)
        whole("embedding_dim", embedding_dim, what="the floats of a row")
        share("dropout", dropout)
        hidden_units = check_widths("hidden_units", hidden_units)
        self.description = description
        self.embedding_dim = embedding_dim
        self.table_optimizer = (
            self.default_table_optimizer() if table_optimizer is None else optimizers.get(table_optimizer)
        )
        self.linear_optimizer = (
            self.default_linear_optimizer() if linear_optimizer is None else optimizers.get(linear_optimizer)
        )
        self._arguments: dict[str, Any] = {
            "embedding_dim": embedding_dim,
            "hidden_units": hidden_units,
            "dropout": dropout,
            "cache": config_of(cache),
            "seed": seed,
        }
        self.rows = EmbeddingSide(self.parts(), self.name, cache, seed, self._is_named, name="rows")
        self.scale = keras.layers.Normalization(axis=-1, name="scale") if description.numeric else None
        if self.scale is not None:
            # If the first call, in a traced function, built it, it would keep tensors of that function.
            self.scale.build((None, len(description.numeric)))
        self.hidden = hidden_layers(hidden_units, dropout, seed) if self.has_perceptron else []

    default_name = "click_model"
    has_perceptron = True
    """Whether `hidden_units` define one perceptron, `run_hidden`."""

    @property
    def seed(self) -> int:
        """Seed of initial rows and weights."""
        return int(self._arguments["seed"])

    def parts(self) -> tuple[Part, ...]:
        """The tables of the model; here: deep."""
        return (self.deep_part(),)

    def default_table_optimizer(self) -> optimizers.Optimizer:
        """The default optimizer of the tables."""
        return optimizers.get(None)

    def default_linear_optimizer(self) -> optimizers.Optimizer:
        """The default optimizer of first-order weights."""
        return self.table_optimizer

    @property
    def deep_fields(self) -> tuple[Field, ...]:
        """The fields with rows of `embedding_dim` floats: categorical ones and sequences, no crosses."""
        return self.description.categorical + self.description.sequences

    def deep_part(self, apart: Sequence[Field] = ()) -> Part:
        """The table of the rows of `embedding_dim` floats; the rows of sequences `apart` are not averaged."""
        names = tuple(field.name for field in apart)
        return Part("deep", self.deep_fields, self.embedding_dim, self.table_optimizer, apart=names)

    def check_history(self) -> None:
        """Raises ValueError unless the description has a history of items."""
        if not self.description.histories:
            raise ValueError(
                f"the description of {self.description.name!r} has no history; give it a sequence that "
                'shares the ids of another field, Field(..., length=20, shares="item"), as '
                'het_tf.data.load("movielens", history=20) does'
            )

    def linear_part(self, name: str, fields: Sequence[Field]) -> Part:
        """Returns a table of one weight an id; the weights start at 0."""
        return Part(name, tuple(fields), 1, self.linear_optimizer, scale=0.0)

    # --- numeric columns ------------------------------------------------------------------------------------

    def adapt(self, examples: Any) -> None:
        """Sets mean and variance of the numeric columns, to standardise them.

        Call it before `fit`, with only the training part. Without it the columns are not scaled.

        A missing number (NaN) counts as the mean, here and in every call.

        Args:
          examples: A part of a data set, or a `tf.data.Dataset` of inputs or `(inputs, label)` in batches
            (only the first 131,072 rows of a stream or data set are read), or float32 `[N, M]`.

        Raises:
          ValueError: A column has no number, or an infinite one.
        """
        if self.scale is None:
            return
        numbers = _numbers_of(examples)
        infinite = np.isinf(numbers).any(0)
        if infinite.any():
            names = np.array(self.description.numeric)[infinite].tolist()
            raise ValueError(f"numeric columns {names} have infinite numbers; correct them, or give NaN")
        there = np.isfinite(numbers)
        empty = [name for name, any_ in zip(self.description.numeric, there.any(0), strict=True) if not any_]
        if empty:
            raise ValueError(f"numeric columns {empty} have no number in {len(numbers)} rows; leave them out")
        mean = np.mean(numbers, axis=0, where=there, dtype=np.float64)
        self.scale.adapt(np.where(there, numbers, mean).astype(np.float32))

    def numeric(self, inputs: Mapping[str, Any]) -> Any:
        """Returns the standardised numeric columns, float32 `[B, M]`, 0 if missing; None without columns."""
        if self.scale is None:
            return None
        scaled = self.scale(inputs[NUMERIC])
        return tf.where(tf.math.is_nan(scaled), tf.zeros_like(scaled), scaled)

    def deep_input(self, rows: Any, numeric: Any) -> Any:
        """Concatenates rows `[B, fields, dim]` and numbers `[B, M]`: `[B, fields * dim + M]`."""
        width = int(rows.shape[1]) * int(rows.shape[2])
        flat = tf.reshape(rows, [-1, width])
        return flat if numeric is None else tf.concat([flat, tf.cast(numeric, flat.dtype)], axis=1)

    def run_hidden(self, x: Any, training: Any) -> Any:
        """Applies the hidden layers to `x`."""
        return apply(self.hidden, x, training)

    def input_specs(self) -> dict[str, Any]:
        """The inputs of the model for `het_tf.export`: a `tf.TensorSpec` for each.

        Lists may have any length: models cut longer ones to their last ids, and do not count them: the cut
        is made by TensorFlow's ops in the graph.
        """
        lists = {field.name for field in self.description.sequences}
        return {
            name: tf.TensorSpec([None, *([None] if name in lists else shape)], dtype, name)
            for name, (shape, dtype) in self.description.inputs().items()
        }

    # --- configuration --------------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The model's arguments. Tables are named, not contained."""
        return {
            "name": self.name if self._is_named else None,
            "description": dataclasses.asdict(self.description),
            "table_optimizer": self.table_optimizer.get_config(),
            "linear_optimizer": self.linear_optimizer.get_config(),
            **self._arguments,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """The inverse of `get_config`."""
        del custom_objects
        return cls(**{**config, "cache": Cache.from_config(config["cache"])})


def _numbers_of(examples: Any) -> np.ndarray:
    """Returns the numeric columns of the argument of `ClickModel.adapt`, float32 `[N, M]`."""
    if hasattr(examples, "read"):
        return np.asarray(examples.read(ADAPT_ROWS).numeric, np.float32)
    if not isinstance(examples, tf.data.Dataset):
        return np.asarray(examples, np.float32)
    found: list[np.ndarray] = []
    for batch in examples:
        inputs = batch[0] if isinstance(batch, tuple) else batch
        found.append(np.asarray(inputs[NUMERIC], np.float32))
        if sum(map(len, found)) >= ADAPT_ROWS:
            break
    return np.concatenate(found)


def description_from_config(config: Mapping[str, Any]) -> Description:
    """Returns the description from its `dataclasses.asdict`, which may have passed through JSON."""

    def fields(items: Sequence[Mapping[str, Any]]) -> tuple[Field, ...]:
        return tuple(Field(**{**item, "crossed": tuple(item["crossed"])}) for item in items)

    groups = {name: fields(config[name]) for name in ("categorical", "crosses", "sequences")}
    texts = {name: tuple(config[name]) for name in ("numeric", "labels", "item")}
    columns = tuple(Column(**column) for column in config["columns"])
    return Description(**{**config, **groups, **texts, "columns": columns})
