"""The dense part of the models of benchmarks/accuracy: rows of N workers in, their gradients out.

All-reduce gives every worker the mean of the workers' gradients, and so the dense weights that one process
has which sees all their batches. So the dense part runs once, on the batches of all workers, each with the
rows that its own worker read.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

FloatArray = npt.NDArray[np.float32]

MODELS = {"wide_deep": "WideDeep", "deepfm": "DeepFM", "dcn": "DCNv2"}
CHUNK = 8192
"""Test rows of one call."""

# Keras means its own kind of build; the weights are made by the first call.
warnings.filterwarnings("ignore", r"`build\(\)` was called on layer")


def optimizers(model: str, settings: Any) -> dict[str, Any]:
    """Returns the optimizers of a model's tables; none where the model is to choose."""
    import het_tf

    given = {"initial_accumulator": settings.accumulator, "decay_steps": settings.decay_steps}
    given = {name: value for name, value in given.items() if value is not None}
    rate = settings.learning_rate
    if rate is None and (not given or model == "deepfm"):  # which has AdaGrad by itself
        return {}
    kind = type(het_tf.optimizers.get(settings.optimizer))
    return {"table_optimizer": kind(0.05 if rate is None else rate, **given)}


def make_model(name: str, description: Any, settings: Any, seed: int) -> tuple[Any, Any]:
    """Returns a model of het_tf.models whose rows are given to it, and the parts (tables) it asks for."""
    import het_tf

    class GivenRows(tf.keras.layers.Layer):  # type: ignore[misc]
        """In place of the tables: the rows are among the inputs."""

        def call(self, inputs: Any) -> Any:
            return inputs["rows"]

    # Without this a second model's tables would meet those of the first.
    het_tf.reset()
    tf.keras.utils.set_random_seed(seed)
    model = getattr(het_tf.models, MODELS[name])(
        description,
        embedding_dim=settings.dim,
        hidden_units=settings.hidden,
        **optimizers(name, settings),
        seed=seed,
        **({"cross_rank": 32} if name == "dcn" else {}),
    )
    parts = model.rows.parts
    del model.rows
    model.rows = GivenRows()
    return model, parts


class Dense:
    """One model for all runs of a data set: traced once, set back before each run.

    Args:
      name: of MODELS.
      description: of the data set.
      settings: dim, hidden, optimizer, learning_rate, dense_learning_rate.

    Attributes:
      parts: the tables.
    """

    def __init__(self, name: str, description: Any, settings: Any) -> None:
        self.name, self.description, self.settings = name, description, settings
        self.model, self.parts = make_model(name, description, settings, 0)
        self._numbers = len(description.numeric)
        self._sequences = [field.name for field in description.sequences]
        self._make_weights()
        self.optimizer = tf.keras.optimizers.Adam(settings.dense_learning_rate)
        self._weights = self._own(self.model.trainable_variables)
        self.optimizer.build(self._weights)
        self._fresh = [variable.numpy() for variable in self.optimizer.variables]
        self.train = tf.function(self._train, jit_compile=True)
        self._predict = tf.function(self._scores, jit_compile=True)

    @staticmethod
    def _own(variables: Any) -> list[Any]:
        """Without those of the layer that was replaced, which stand for its tables."""
        import het_tf

        return [one for one in variables if not isinstance(one, het_tf.keras.TableVariable)]

    def _make_weights(self) -> None:
        """Calls the model once."""
        rows = []
        for part in self.parts:
            rows += [tf.zeros([1, len(part.single), part.dim])] if part.single else []
            rows += [tf.zeros([1, field.length, part.dim]) for field in part.sequences]
        self._call(rows, tf.zeros([1, self._numbers]), tf.ones([1, len(self._sequences)]), False)

    def reset(self, seed: int) -> None:
        """Gives the weights those of a new model of the seed, and the optimizer its beginning."""
        model, _ = make_model(self.name, self.description, self.settings, seed)
        ours, self.model = self.model, model
        self._make_weights()
        self.model = ours
        for variable, value in zip(self._own(ours.variables), self._own(model.variables), strict=True):
            variable.assign(value)
        for variable, value in zip(self.optimizer.variables, self._fresh, strict=True):
            variable.assign(value)

    def _call(self, rows: Sequence[Any], numeric: Any, lengths: Any, training: bool) -> Any:
        """Logits `[B]` of the rows of all features, in the order of `parts`; padding's rows are zeros."""
        taken = iter(rows)
        by_part = {}
        for part in self.parts:
            blocks = [next(taken)] if part.single else []
            for field in part.sequences:
                length = lengths[:, self._sequences.index(field.name), None]
                mean = tf.reduce_sum(next(taken), 1) / tf.maximum(length, 1.0)
                blocks.append(mean[:, None, :])
            by_part[part.name] = tf.concat(blocks, axis=1)
        inputs = {"rows": by_part}
        if self._numbers:
            inputs["numeric"] = numeric
        return self.model(inputs, training=training)[:, 0]

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
            for _ in range(bool(part.single) + len(part.sequences)):
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
