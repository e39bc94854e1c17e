"""The embedding side of a click-through model: maps ids of many fields to one row a field.

A `Part` is one table for a group of fields ("deep": rows of dim floats; "wide": one weight an id), and an
`IdSpace` maps the ids of a field to ids of the table.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from het_tf import Cache, FeatureConfig, TableConfig, initializers, optimizers
from het_tf.keras import EmbeddingCollection
from het_tf.python.hashing import salt
from het_tf.python.ids import as_int64, check_dtype, to_tensor
from het_tf.python.quoting import quoted
from het_tf.zoo.data.examples import PADDING, Field

keras: Any = tf.keras

_NAN = (
    "ids are -2^63, which is what NaN becomes as an integer; leave these samples out, or give missing "
    "values a separate id before you convert ids to integers"
)


@dataclasses.dataclass(frozen=True)
class Part:
    """One table, and the fields that read it.

    Attributes:
      name: name of the table, and key of its rows in the outputs.
      fields: fields of one id a row, and sequences, whose rows are averaged (an empty one gives zeros).
      dim: floats of a row.
      optimizer: optimizer of the table.
      scale: rows start uniform in `[-scale, scale)`; 0: with zeros.
      apart: names of the sequences whose rows are not averaged: each is kept, padding gives zeros.
    """

    name: str
    fields: tuple[Field, ...]
    dim: int
    optimizer: optimizers.Optimizer | None = None
    scale: float = 0.05
    apart: tuple[str, ...] = ()

    @property
    def single(self) -> tuple[Field, ...]:
        """The fields of one id a row."""
        return tuple(field for field in self.fields if field.length is None)

    @property
    def sequences(self) -> tuple[Field, ...]:
        """The fields of several ids a row."""
        return tuple(field for field in self.fields if field.length is not None)

    @property
    def columns(self) -> tuple[Field, ...]:
        """The fields of the outputs' second axis: fields of one id a row, then averaged sequences."""
        return self.single + tuple(field for field in self.sequences if field.name not in self.apart)

    def key(self, field: Field) -> str:
        """Returns the key of a sequence in the inputs of the tables; if it is apart, also in the outputs."""
        return f"{self.name}/{field.name}"


def config_of(cache: Cache | None) -> dict[str, Any]:
    """Returns the configuration of a model's argument `cache`. ValueError: it is not a Cache."""
    cache = Cache() if cache is None else cache
    if not isinstance(cache, Cache):
        raise ValueError(f"cache is {cache!r}; give a het_tf.Cache, or None for its defaults")
    return cache.get_config()


def ids_of(field: Field, ids: Any) -> Any:
    """Returns a tensor of ids in the field's type: int64 or strings.

    Raises:
      ValueError: They have another type.
    """
    ids = to_tensor(ids, f"feature {quoted(field.name)}: ids")
    check_dtype(field.name, ids.dtype)
    if (ids.dtype == tf.string) != (field.dtype == "string"):
        given = "string" if ids.dtype == tf.string else "int64"
        raise ValueError(
            f"feature {field.name!r}: ids are {ids.dtype.name}, but the model was made for {field.dtype}; "
            f"feed it these, or make it from a description with Field({field.name!r}, None, dtype={given!r})"
        )
    return _fitted(field, ids if field.dtype == "string" else tf.cast(ids, tf.int64))


def _fitted(field: Field, ids: Any) -> Any:
    """Returns a sequence as `[B, L]`: of more than L ids the last ones, of fewer with padding."""
    if not field.length or ids.shape.rank != 2 or ids.shape[1] == field.length:
        return ids
    there = tf.cast(tf.not_equal(ids, tf.constant(field.padding, ids.dtype)), tf.int32)
    ends = tf.reduce_max(tf.pad(there * tf.range(1, tf.shape(ids)[1] + 1), [[0, 0], [1, 0]]), axis=1)
    places = tf.maximum(ends - field.length, 0)[:, None] + tf.range(field.length)
    padding = tf.fill([tf.shape(ids)[0], field.length], tf.constant(field.padding, ids.dtype))
    return tf.gather(tf.concat([ids, padding], axis=1), places, batch_dims=1)


def is_padding(field: Field, ids: Any) -> Any:
    """Returns True where a sequence has no id, in the shape of the result of `ids_of`."""
    return tf.equal(ids, tf.constant(field.padding, ids.dtype))


def refuse_nan(names: Sequence[str], ids: Any) -> None:
    """Raises an error, also when a graph runs, if ids `[..., names]` hold -2^63, NaN as an integer."""
    is_nan = tf.equal(ids, tf.int64.min)

    def refuse() -> Any:
        counts = tf.reduce_sum(tf.cast(tf.reshape(is_nan, [-1, len(names)]), tf.int32), axis=0)
        if tf.executing_eagerly():
            texts = [f"feature {name!r}: {n}" for name, n in zip(names, counts.numpy(), strict=True) if n]
            raise tf.errors.InvalidArgumentError(None, None, f"{', '.join(texts)} {_NAN}")
        found = tf.boolean_mask(tf.constant(list(names)), counts > 0), tf.boolean_mask(counts, counts > 0)
        told = tf.debugging.Assert(tf.constant(False), ["features", *found, _NAN], summarize=100)
        with tf.control_dependencies([told]):
            return tf.constant(True)

    tf.cond(tf.reduce_any(is_nan), refuse, lambda: tf.constant(False))


class IdSpace:
    """Maps the ids of several fields into one space: the ids of a table.

    It adds a field's number to each of its ids. Fields with a size get numbers that place them one after
    another in [0, sum of sizes). A field without a size gets a 64-bit hash of its name, and sums wrap around:
    two such fields collide in 2^64 ids like any two hashes, and differences between ids of one field, which
    travel, stay the same. A field that shares the ids of another has its number.

    Args:
      fields: Fields with ids in `[0, size)`, or any int64 (size None).

    Attributes:
      size: The sum of the sizes.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self._offsets: dict[str, int] = {}
        self.size = 0
        names = {field.name for field in fields}
        shared = [field for field in fields if field.shares in names]
        for field in fields:
            if field in shared:
                continue
            self._offsets[field.name] = _number_of_name(field.name) if field.size is None else self.size
            self.size += field.size or 0
        for field in shared:
            self._offsets[field.name] = self._offsets[str(field.shares)]

    def __call__(self, field: Field, ids: Any) -> Any:
        """Returns the ids of `field`, of any shape, as int64 in the common space; does not treat padding."""
        return self._moved((field,), as_int64(ids_of(field, ids)))

    def stack(self, fields: Sequence[Field], inputs: Mapping[str, Any]) -> Any:
        """Returns the ids of fields of one id a row as one int64 `[B, F]`."""
        columns = [as_int64(ids_of(field, inputs[field.name])) for field in fields]
        return self._moved(fields, tf.stack(columns, axis=1))

    def _moved(self, fields: Sequence[Field], ids: Any) -> Any:
        names = [field.name for field in fields]
        refuse_nan(names, ids)
        offsets = [self._offsets[name] for name in names]
        return ids + tf.constant(offsets if len(offsets) > 1 else offsets[0], tf.int64)


def _number_of_name(name: str) -> int:
    return int(salt("field", name).astype(np.int64))


@keras.utils.register_keras_serializable(package="het_tf")
class EmbeddingSide(keras.layers.Layer):
    """Reads the rows of all parts by one `het_tf.keras.EmbeddingCollection` with tables `PREFIX/PART`.

    Args:
      parts: The tables.
      prefix: Prefix of the names of tables.
      cache: Cache of the collection.
      seed: Seed of the initial rows.
      named: Whether the user has chosen the prefix; else the layer owns the tables.

    Call arguments:
      inputs: int64 `[B]` or `[B, L]` (padded with -1) for each field, or strings (padded with "").

    Returns:
      For each part float32 `[B, F + S, dim]`: its F fields of one id a row, then its S averaged sequences
      (no entry if F + S is 0); and for each sequence apart float32 `[B, L, dim]` under `PART/FIELD`.

    Raises:
      ValueError: Ids have another type than the field.
      tf.errors.InvalidArgumentError: Ids are -2^63, which NaN becomes as an integer.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        prefix: str = "model",
        cache: Cache | None = None,
        seed: int = 0,
        named: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.parts = tuple(parts)
        self._spaces = [IdSpace(part.fields) for part in parts]
        features: dict[str, FeatureConfig] = {}
        for part in parts:
            initializer = (
                initializers.RandomUniform(-part.scale, part.scale) if part.scale else initializers.Zeros()
            )
            table = TableConfig(f"{prefix}/{part.name}", part.dim, part.optimizer, initializer, seed=seed)
            table.unnamed = not named
            if part.single:
                features[part.name] = FeatureConfig(table)
            for field in part.sequences:
                features[part.key(field)] = FeatureConfig(
                    table, None if field.name in part.apart else "mean", padding_id=PADDING
                )
        self.collection = EmbeddingCollection(features, cache=cache, name="tables")

    def call(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See the class."""
        rows = self.collection(self.ids(inputs))
        outputs: dict[str, Any] = {}
        for part in self.parts:
            blocks = [rows[part.name]] if part.single else []
            for field in part.sequences:
                of_field = rows[part.key(field)]
                if field.name in part.apart:
                    outputs[part.key(field)] = tf.identity(of_field)  # without the mask of Keras
                else:
                    blocks.append(of_field[:, None, :])
            if blocks:
                outputs[part.name] = tf.concat(blocks, axis=1)
        return outputs

    def ids(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs of the collection: int64 for each of its features."""
        ids: dict[str, Any] = {}
        for part, space in zip(self.parts, self._spaces, strict=True):
            if part.single:
                ids[part.name] = space.stack(part.single, inputs)
            for field in part.sequences:
                sequence = ids_of(field, inputs[field.name])
                padding = tf.constant(PADDING, tf.int64)
                ids[part.key(field)] = tf.where(is_padding(field, sequence), padding, space(field, sequence))
        return ids

    def row_ids(self, part: str, field: str, ids: Any) -> npt.NDArray[np.int64]:
        """Returns ids of the table for ids of a field, for `het_tf.Table` and `load_rows`.

            table = het_tf.Table("clicks/deep")
            table.lookup(model.rows.row_ids("deep", "user", [5, 7]))

        Args:
          part: Name of a part, such as "deep".
          field: Name of one of its fields.
          ids: Ids of the field, any shape.

        Returns:
          int64 of the shape of `ids`.

        Raises:
          KeyError: The part does not exist, or lacks the field.
        """
        for one, space in zip(self.parts, self._spaces, strict=True):
            for of_part in one.fields:
                if (one.name, of_part.name) == (part, field):
                    given = np.asarray(ids)  # any shape: these are no lists of samples, which have a length
                    found: npt.NDArray[np.int64] = space(of_part, given.reshape(-1)).numpy()
                    return found.reshape(given.shape)
        known = {one.name: [of_part.name for of_part in one.fields] for one in self.parts}
        raise KeyError(f"part {part!r} with field {field!r}: the model has {known}")
