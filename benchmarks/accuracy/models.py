"""The models of the examples, cut where the rows come in: their tables, and their dense part.

`Dense` is the dense part of benchmarks/accuracy: rows of N workers in, their gradients out. All-reduce gives
every worker the mean of the workers' gradients, and so the dense weights that one process has which sees all
their batches. So the dense part runs once, on the batches of all workers, each with the rows that its own
worker read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

FloatArray = npt.NDArray[np.float32]

MODELS = ("wide_deep", "deepfm", "dcn")
CHUNK = 8192
"""Test rows of one call."""

keras: Any = tf.keras


@dataclasses.dataclass(frozen=True)
class Part:
    """One table of a model.

    Attributes:
      name: its name.
      dim: floats of a row.
      single: the inputs of one id a row that read it, by one lookup.
      lists: the inputs of several ids a row, whose rows are averaged.
      scale: rows start uniform in `[-scale, scale)`; 0: with zeros.
      optimizer: of the table; None: the default.
    """

    name: str
    dim: int
    single: tuple[str, ...]
    lists: tuple[str, ...] = ()
    scale: float = 0.05
    optimizer: Any = dataclasses.field(default=None, compare=False)

    @property
    def fields(self) -> tuple[str, ...]:
        """All inputs that read the table."""
        return self.single + self.lists


def row_optimizer(model: str, settings: Any) -> Any:
    """Returns the optimizer of a model's tables; None where the model is to choose."""
    import het_tf

    given = {"initial_accumulator": settings.accumulator, "decay_steps": settings.decay_steps}
    given = {name: value for name, value in given.items() if value is not None}
    rate = settings.learning_rate
    if rate is None and (not given or model == "deepfm"):  # which has AdaGrad by itself
        return None
    name = "Ftrl" if settings.optimizer == "FTRL" else settings.optimizer
    return getattr(het_tf.optimizers, name)(0.05 if rate is None else rate, **given)


def parts_of(model: str, splits: Any, dim: int, optimizer: Any = None) -> tuple[Part, ...]:
    """Returns the tables that an example has for a data set; `optimizer` is that of its rows, if given."""
    import het_tf

    fields, lists = tuple(splits.fields), tuple(splits.lists)
    optimizers = het_tf.optimizers
    if model == "wide_deep":
        wide = optimizers.Ftrl(0.05, l1=0.001)
        return (
            Part("deep", dim, fields, lists, optimizer=optimizer or optimizers.RowWiseAdagrad()),
            Part("wide", 1, fields + tuple(splits.crosses), (), 0.0, wide),
        )
    if model == "deepfm":
        slow, fast = (optimizers.RowWiseAdagrad(rate, decay_steps=1) for rate in (0.005, 0.02))
        return (
            Part("deep", dim, fields, lists, optimizer=optimizer or slow),
            Part("linear", 1, fields, lists, 0.0, optimizer or fast),
        )
    return (Part("deep", dim, fields, lists, optimizer=optimizer or optimizers.RowWiseAdagrad()),)


def logit_of(model: str, rows: Sequence[Any], numeric: Any, hidden: Sequence[int], dropout: float = 0) -> Any:
    """Returns the logit [B, 1] of an example, of the rows [B, F, dim] of each part and numbers or None."""
    import dcn
    import deepfm
    import wide_deep

    if model == "wide_deep":
        return wide_deep.wide_deep(rows[1], rows[0], numeric, tuple(hidden), dropout)
    if model == "deepfm":
        return deepfm.deepfm(rows[1], rows[0], numeric, tuple(hidden), dropout)
    return dcn.dcn(rows[0], numeric, tuple(hidden), dropout, rank=32)


def make_model(model: str, parts: Sequence[Part], numbers: int, settings: Any, seed: int) -> Any:
    """Returns a model of rows of each part, and of numbers if there are some."""
    tf.keras.utils.set_random_seed(seed)
    rows = [keras.Input((len(part.fields), part.dim)) for part in parts]
    numeric = keras.Input((numbers,)) if numbers else None
    inputs = [*rows, *([] if numeric is None else [numeric])]
    return keras.Model(inputs, logit_of(model, rows, numeric, settings.hidden))


class Dense:
    """One model for all runs of a data set: traced once, set back before each run.

    Args:
      name: of MODELS.
      splits: the data set.
      settings: dim, hidden, optimizer, learning_rate, dense_learning_rate.

    Attributes:
      parts: the tables.
    """

    def __init__(self, name: str, splits: Any, settings: Any) -> None:
        self.name, self.settings = name, settings
        self.parts = parts_of(name, splits, settings.dim, row_optimizer(name, settings))
        self._numbers, self._lists = splits.numeric, list(splits.lists)
        self.model = self._make(0)
        self.optimizer = tf.keras.optimizers.Adam(settings.dense_learning_rate)
        self._weights = self.model.trainable_variables
        self.optimizer.build(self._weights)
        self._fresh = [variable.numpy() for variable in self.optimizer.variables]
        self.train = tf.function(self._train, jit_compile=True)
        self._predict = tf.function(self._scores, jit_compile=True)

    def _make(self, seed: int) -> Any:
        return make_model(self.name, self.parts, self._numbers, self.settings, seed)

    def reset(self, seed: int) -> None:
        """Gives the weights those of a new model of the seed, and the optimizer its beginning."""
        for variable, value in zip(self.model.variables, self._make(seed).variables, strict=True):
            variable.assign(value)
        for variable, value in zip(self.optimizer.variables, self._fresh, strict=True):
            variable.assign(value)

    def _call(self, rows: Sequence[Any], numeric: Any, lengths: Any, training: bool) -> Any:
        """Logits `[B]` of the rows of all features, in the order of `parts`; padding's rows are zeros."""
        taken = iter(rows)
        inputs = []
        for part in self.parts:
            blocks = [next(taken)]
            for name in part.lists:
                length = lengths[:, self._lists.index(name), None]
                mean = tf.reduce_sum(next(taken), 1) / tf.maximum(length, 1.0)
                blocks.append(mean[:, None, :])
            inputs.append(tf.concat(blocks, axis=1))
        return self.model([*inputs, *([numeric] if self._numbers else [])], training=training)[:, 0]

    def _train(self, rows: list[Any], numeric: Any, lengths: Any, label: Any) -> list[Any]:
        """One step of the dense weights; returns the gradients of the rows, of the mean loss."""
        with tf.GradientTape() as tape:
            tape.watch(rows)
            logits = self._call(rows, numeric, lengths, True)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
        of_rows, of_weights = tape.gradient(loss, [rows, self._weights])
        self.optimizer.apply_gradients(zip(of_weights, self._weights, strict=True))
        return of_rows

    def _scores(self, tables: list[Any], numbers: list[Any], numeric: Any, lengths: Any) -> Any:
        rows = []
        taken = iter(numbers)
        for part, table in zip(self.parts, tables, strict=True):
            for _ in range(1 + len(part.lists)):
                rows.append(tf.gather(table, next(taken)))
        return self._call(rows, numeric, lengths, False)

    def predict(
        self,
        tables: list[FloatArray],
        numbers: list[npt.NDArray[np.int32]],
        numeric: FloatArray,
        lengths: FloatArray,
    ) -> FloatArray:
        """Returns the logits of test rows.

        Args:
          tables: of each part its rows `[n, dim]`.
          numbers: of each feature the numbers of its rows, int32 `[rows, F]`; n is padding.
          numeric: float32 `[rows, M]`.
          lengths: of each sequence how many ids are real, float32 `[rows, S]`.
        """
        count = len(numeric)
        # One shape a data set, or each would be compiled: the table's size changes from seed to seed.
        padded = []
        for table in tables:
            room = -(-(len(table) + 1) // (1 << 18)) << 18 if len(table) > 1 << 16 else 1 << 16
            padded.append(tf.constant(np.pad(table, ((0, room - len(table)), (0, 0)))))
        result = np.empty(count, np.float32)
        for begin in range(0, count, CHUNK):
            of = slice(begin, min(begin + CHUNK, count))
            rest = CHUNK - (of.stop - of.start)
            part, *more = (
                [np.pad(one[of], ((0, rest), (0, 0))) for one in arrays]
                for arrays in (numbers, [numeric], [lengths])
            )
            scores = self._predict(padded, part, *(one for [one] in more))
            result[of] = np.array(scores)[: of.stop - of.start]
        return result
