"""examples/graphsage.py with `keras.layers.Embedding` in place of its table, for run.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "tests/lib")]

import tensorflow as tf
from graph_training import Run, main
from keras_twin import KerasRows, to_keras


class KerasRun(Run):
    """A training of twins, which begin with the rows of the tables."""

    def _prepared(self, model: Any, batches: Any) -> Any:
        if not isinstance(model.rows.collection, KerasRows):
            to_keras(model)
        return batches

    def _optimizer(self) -> Any:
        kind = AdamAndRows if self.options.optimizer == "adagrad" else tf.keras.optimizers.Adam
        optimizer = kind(self.options.dense_learning_rate)
        optimizer.rate_of_rows = self.options.learning_rate
        return optimizer


class AdamAndRows(tf.keras.optimizers.Adam):
    """Adam for the layers; for the rows AdaGrad, with the formula and the sums of tables of het_tf.

    Keras 3 would accumulate the squares of an id's gradients one by one.
    """

    def update_step(self, gradient: Any, variable: Any, *rest: Any) -> None:
        """One variable's."""
        if "embeddings" not in variable.name:
            super().update_step(gradient, variable, *rest)
            return
        summed = tf.convert_to_tensor(gradient)
        if not hasattr(self, "squares"):
            with tf.init_scope():
                self.squares = tf.Variable(tf.zeros(variable.shape), trainable=False)
        squares = self.squares.assign_add(tf.square(summed))
        variable.assign_sub(self.rate_of_rows * summed / tf.sqrt(squares + 1e-10))


if __name__ == "__main__":
    main(kind=KerasRun)
