"""The result type of every data set: `Examples`, and the `Description` that a model is built from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from het_tf.python.checks import one_of, whole
from het_tf.zoo.data.checks import check_shard, check_thresholds
from het_tf.zoo.data.passes import Pass

if TYPE_CHECKING:
    import tensorflow as tf

PADDING = -1
"""The id that fills the unused end of a row of a sequence field; in fields of strings it is ""."""

NUMERIC = "numeric"
"""The key of the numeric columns in the inputs of a model."""

Int64Array = npt.NDArray[np.int64]
IdArray = npt.NDArray[Any]  # int64, or strings
FloatArray = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Field:
    """One input of ids.

    Attributes:
      name: its key in the inputs.
      size: ids are in `[0, size)`; None if they are 64-bit hashes, where any int64 may occur.
      crossed: the names of the fields (or bucketised columns) of a cross; () if it is not a cross.
      length: the padded length L of a sequence field; None for a field with one id a row.
      shares: the name of a field of one id a row with which it shares ids, and rows in a model: the item's
        for the history of a user's items; None: the field has its own ids.
      dtype: "int64", or "string": the model takes strings, and hashes them to 64 bits.

    Raises:
      ValueError: dtype is unknown, or "string" with a size.
    """

    name: str
    size: int | None
    crossed: tuple[str, ...] = ()
    length: int | None = None
    shares: str | None = None
    dtype: str = "int64"

    def __post_init__(self) -> None:
        one_of(f"field {self.name!r}: dtype", self.dtype, ("int64", "string"))
        if self.dtype == "string" and self.size is not None:
            raise ValueError(f"field {self.name!r}: strings have no size, but it is {self.size}; give None")

    @property
    def padding(self) -> int | str:
        """Fills the unused end of a row of a sequence, and replaces missing ids."""
        return PADDING if self.dtype == "int64" else ""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table as found by `describe`.

    Attributes:
      name: Name of the column.
      type: Its type in Arrow.
      use: "ids", "numeric", "label", "date", "index" or "left out"; dates and indices are left out, too.
      missing: Number of missing values: nulls, NaN and empty strings. None: the column was not read.
      low: The lowest number; None without numbers.
      high: The highest.
      cut: Number of lists that are longer than their field; their last ids stay.
    """

    name: str
    type: str
    use: str
    missing: int | None = 0
    low: float | None = None
    high: float | None = None
    cut: int = 0

    def __str__(self) -> str:
        bounds = "" if self.low is None else f", {self.low:g} to {self.high:g}"
        cut = f", {self.cut:,} longer lists cut" if self.cut else ""
        missing = "" if self.missing is None else f", {self.missing:,} missing"
        return f"{self.name}: {self.type}, {self.use}{bounds}{missing}{cut}"


@dataclasses.dataclass(frozen=True)
class Description:
    """Describes a data set for a model.

    Attributes:
      name: the name of the data set in `load`.
      categorical: fields of one id a row, for the deep part and for first-order terms.
      crosses: crossed features, for the wide part only.
      sequences: fields of up to `length` ids a row.
      numeric: names of the numeric columns, in their order.
      labels: the meaning of 1 in each column of the label, in words: one for each task of a model.
      item: the names of the fields that describe the offered item (categorical and sequences); the others
        describe the user. () if a data set has no such sides.
      columns: Found by `describe`: types, ranges, missing values, and columns that it left out.
      thresholds: for labels in the file that are not 0 or 1: the least number that counts as 1; None keeps
        the numbers, for a regression.

    Raises:
      ValueError: `item`, or `shares` of a field, names a field that does not exist; `thresholds` names no
        label; two fields, or two numeric columns, have one name; there are no labels.
    """

    name: str
    categorical: tuple[Field, ...]
    crosses: tuple[Field, ...] = ()
    sequences: tuple[Field, ...] = ()
    numeric: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("clicked",)
    item: tuple[str, ...] = ()
    columns: tuple[Column, ...] = dataclasses.field(default=(), repr=False)
    thresholds: Mapping[str, float | None] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.labels, str) or not self.labels:
            raise ValueError(f"labels is {self.labels!r}; give a tuple of words, one for each label")
        check_thresholds(self.thresholds, self.labels)
        _check_names("fields", [field.name for field in self.fields] + [NUMERIC] * bool(self.numeric))
        _check_names("numeric columns", self.numeric)
        known = {field.name for field in self.categorical + self.sequences}
        unknown = sorted(set(self.item) - known)
        if unknown:
            raise ValueError(f"item names {unknown}; give names of categorical fields or sequences: {known}")
        kinds = {field.name: (field.size, field.dtype) for field in self.categorical}
        for field in self.fields:
            if field.shares is not None and kinds.get(field.shares) != (field.size, field.dtype):
                raise ValueError(
                    f"field {field.name!r} shares {field.shares!r}; give the name of a categorical field of "
                    f"its size, {field.size}, and dtype, {field.dtype}"
                )

    @property
    def wide(self) -> tuple[Field, ...]:
        """The fields of a wide part: categorical and crosses."""
        return self.categorical + self.crosses

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields of ids: categorical, crosses, sequences."""
        return self.categorical + self.crosses + self.sequences

    @property
    def histories(self) -> tuple[Field, ...]:
        """The sequences that share the ids of another field."""
        return tuple(field for field in self.sequences if field.shares is not None)

    def side(self, item: bool) -> Description:
        """Returns the item's side (`item`) or the user's, which has the numeric columns; without crosses.

        Raises:
          ValueError: this side has no fields.
        """
        groups = {
            group: tuple(one for one in getattr(self, group) if (one.name in self.item) == item)
            for group in ("categorical", "sequences")
        }
        if not any(groups.values()):
            raise ValueError(
                f"the description of {self.name!r} has no fields of the {'item' if item else 'user'}; give "
                "Description(item=...) the names of the item's fields, and leave the user's out"
            )
        names = {one.name for group in groups.values() for one in group}
        own = {
            group: tuple(
                one if one.shares in names else dataclasses.replace(one, shares=None) for one in fields
            )
            for group, fields in groups.items()
        }
        return Description(
            self.name,
            own["categorical"],
            sequences=own["sequences"],
            numeric=() if item else self.numeric,
            labels=self.labels,
            item=self.item if item else (),
            thresholds=self.thresholds,
        )

    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The inputs of a model: `{name: (shape without the batch dimension, dtype)}`."""
        result: dict[str, tuple[tuple[int, ...], str]] = {
            field.name: (() if field.length is None else (field.length,), field.dtype)
            for field in self.fields
        }
        if self.numeric:
            result[NUMERIC] = ((len(self.numeric),), "float32")
        return result


def _check_names(what: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"two {what} are called {twice[0]!r}; name each input of a model once"
            + (f", and no field {NUMERIC!r} beside numeric columns" if twice[0] == NUMERIC else "")
        )


@dataclasses.dataclass(frozen=True)
class Examples:
    """Rows of a data set in memory, column by column.

    Attributes:
      categorical: int64 or strings `[N]` by name: the categorical fields and the crosses.
      sequences: int64 `[N, L]` by name, padded with `PADDING`, or strings, padded with "".
      numeric: float32 `[N, M]`; M is 0 without numeric columns. NaN: the number is missing.
      label: float32, 0 or 1: `[N]`, or `[N, T]` for T labels.

    Raises:
      ValueError: columns have different lengths or other dtypes.
    """

    categorical: Mapping[str, IdArray]
    sequences: Mapping[str, IdArray]
    numeric: FloatArray
    label: FloatArray

    def __post_init__(self) -> None:
        expected: list[tuple[str, np.ndarray, type, int]] = []
        expected += [(name, ids, np.int64, 1) for name, ids in self.categorical.items()]
        expected += [(name, ids, np.int64, 2) for name, ids in self.sequences.items()]
        expected += [(NUMERIC, self.numeric, np.float32, 2)]
        expected += [("label", self.label, np.float32, 2 if self.label.ndim == 2 else 1)]
        for name, column, dtype, rank in expected:
            fits = column.dtype == dtype or (dtype is np.int64 and column.dtype.kind in "OSU")
            if not fits or column.ndim != rank or len(column) != len(self.label):
                raise ValueError(
                    f"column {name!r} is {column.dtype}{list(column.shape)}; Examples of {len(self.label)} "
                    f"rows needs {np.dtype(dtype)}{' or strings' * (dtype is np.int64)} of rank {rank} with "
                    "that many rows; convert it."
                )

    def __len__(self) -> int:
        return len(self.label)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.label)

    def take(self, indices: npt.ArrayLike | slice) -> Examples:
        """Returns the rows at `indices`: integers `[K]` in any order, a boolean mask `[N]`, or a slice."""
        index: Any = indices if isinstance(indices, slice) else np.asarray(indices)
        return Examples(
            {name: ids[index] for name, ids in self.categorical.items()},
            {name: ids[index] for name, ids in self.sequences.items()},
            self.numeric[index],
            self.label[index],
        )

    def shard(self, index: int, count: int) -> Examples:
        """Returns the `index`-th of `count` disjoint equal parts (the last `N % count` rows drop out).

        Raises:
          ValueError: if `index` is not in `[0, count)`.
        """
        check_shard(index, count)
        return self.take(slice(index, len(self) - len(self) % count, count))

    def read(self, rows: int | None = None) -> Examples:
        """Returns the first `rows` rows (None: all of them)."""
        return self if rows is None else self.take(slice(0, rows))

    def inputs(self) -> dict[str, np.ndarray]:
        """Returns the inputs of a model for all rows; see `Description.inputs` for shapes and dtypes."""
        result: dict[str, np.ndarray] = {**self.categorical, **self.sequences}
        if self.numeric.shape[1]:
            result[NUMERIC] = self.numeric
        return result

    def batches(
        self, batch_size: int, order: Int64Array | None = None, drop_remainder: bool = False
    ) -> Iterator[Examples]:
        """Yields consecutive batches of the rows, or of the rows at `order` (int64 `[K]`)."""
        total = len(self) if order is None else len(order)
        stop = total - total % batch_size if drop_remainder else total
        for start in range(0, stop, batch_size):
            part = slice(start, min(start + batch_size, stop))
            yield self.take(part if order is None else order[part])

    def to_tf(
        self, batch_size: int, shuffle: bool = False, seed: int = 0, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        """Returns a `tf.data.Dataset` of `(inputs, label)` batches; its cardinality is known.

        Args:
          batch_size: rows a batch, at least 1.
          shuffle: whether to shuffle the rows anew in each epoch.
          seed: seed of the order; epoch e of the returned dataset uses (seed, e).
          drop_remainder: whether to leave out a smaller last batch.

        Raises:
          ValueError: if `batch_size` is not positive.
        """
        whole("batch_size", batch_size, what="the rows of a batch")

        def epoch(number: int) -> Iterator[Examples]:
            order = np.random.default_rng([seed, number]).permutation(len(self)) if shuffle else None
            return self.batches(batch_size, order, drop_remainder)

        count = len(self) // batch_size if drop_remainder else -(-len(self) // batch_size)
        return to_tf_dataset(epoch, self, count, batch_size if drop_remainder else None)


class Splits(NamedTuple):
    """The result of `load`: three parts (`Examples` or streams of them) and their `Description`."""

    train: Any
    valid: Any
    test: Any
    description: Description


def to_tf_dataset(
    epoch: Callable[[int], Iterator[Examples]], like: Examples, count: int | None, batch_size: int | None
) -> tf.data.Dataset:
    """Makes a `tf.data.Dataset` of `(inputs, label)` from a generator of batches.

    Args:
      epoch: called with 0, 1, 2, ... for the batches of each pass.
      like: examples (of any number of rows) with the columns of the batches.
      count: the number of batches of a pass, if it is known.
      batch_size: the static batch dimension, or None for an unknown one.
    """
    import tensorflow as tf

    passes = iter(range(2**62))

    # A tensor from Python costs tens of microseconds: all int64 fields of one id a row go as one matrix,
    # all string fields as another.
    groups = {
        dtype: [
            name for name, ids in like.categorical.items() if (ids.dtype == np.int64) == (dtype is np.int64)
        ]
        for dtype in (np.int64, object)
    }

    def generate() -> Iterator[tuple[dict[str, np.ndarray], dict[str, np.ndarray], FloatArray]]:
        for batch in epoch(next(passes)):
            others = {name: column for name, column in batch.inputs().items() if name not in like.categorical}
            ids = {
                str(number): np.stack([batch.categorical[name] for name in names]).astype(dtype, copy=False)
                for number, (dtype, names) in enumerate(groups.items())
                if names
            }
            yield ids, others, batch.label

    def unpack(ids: dict[str, tf.Tensor], others: dict[str, tf.Tensor], label: tf.Tensor) -> tuple[Any, Any]:
        columns = {
            name: column
            for number, names in enumerate(groups.values())
            if names
            for name, column in zip(names, tf.unstack(ids[str(number)], num=len(names)), strict=True)
        }
        return {**columns, **others}, label

    def spec(column: np.ndarray) -> tf.TensorSpec:
        dtype = column.dtype if column.dtype.kind in "if" else tf.string
        return tf.TensorSpec((batch_size, *column.shape[1:]), dtype)

    others = {name: spec(column) for name, column in like.inputs().items() if name not in like.categorical}
    kinds = (tf.int64, tf.string)
    matrices = {
        str(number): tf.TensorSpec((len(names), batch_size), kinds[number])
        for number, names in enumerate(groups.values())
        if names
    }
    signature = (matrices, others, spec(like.label))
    dataset = tf.data.Dataset.from_generator(lambda: Pass(generate()), output_signature=signature)
    dataset = dataset.map(unpack)
    if count is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE)
