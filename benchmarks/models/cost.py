"""What a training step of a model costs beside its Keras twin: CPU time of all threads, in turns.

`run.py cpu` runs it.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import tensorflow as tf
from keras_twin import to_keras

import het_tf
from het_tf.data import Description, Field

SIDES = ("het", "keras")
RATE = 0.1
HUGE = 10_000_000


def synthetic(rows: int, labels: int = 1, items_alone: bool = False) -> Description:
    """Users, items and a history of them, whose tables have `rows` rows in all.

    Args:
      rows: Of users and items, half of each.
      labels: One or two.
      items_alone: The model has no users, so that all rows are those of items.
    """
    fields = (Field("user", rows // 2), Field("item", rows if items_alone else rows - rows // 2))
    history = Field("history", fields[1].size, length=20, shares="item")
    return Description("huge", fields, (), (history,), labels=("a", "b")[:labels], item=("item",))


def inputs_of(description: Description, rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Zipf's ids for all fields: few are met often."""
    inputs = {}
    for name, (shape, dtype) in description.inputs().items():
        if dtype != "int64":
            inputs[name] = tf.constant(rng.normal(size=(rows, *shape)).astype(np.float32))
            continue
        size = next(field.size or 1 << 12 for field in description.fields if field.name == name)
        inputs[name] = tf.constant((rng.zipf(1.2, (rows, *shape)) * 2654435761) % size)
    return inputs


def stepper(model: Any, optimizer: Any, own_loss: bool) -> Any:
    binary = tf.keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def step(inputs: Any, label: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = model.own_loss(inputs, outputs, None) if own_loss else binary(label, outputs)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(
            [one for one in zip(gradients, variables, strict=True) if one[0] is not None]
        )
        return loss

    return step


def step_cost(name: str, description: Description, dim: int, batch: int, steps: int) -> dict[str, float]:
    """CPU milliseconds of a step of either side: medians over turns."""
    rng = np.random.default_rng(0)
    batches = [inputs_of(description, rng, batch) for _ in range(8)]
    label = tf.constant(rng.integers(0, 2, (batch, len(description.labels))).astype(np.float32))
    own_loss = name in ("SASRec", "TwoTower")
    made, turns = {}, {side: [] for side in SIDES}
    for side in SIDES:
        tf.keras.utils.set_random_seed(1)
        rows = {"embedding_dim": dim, "table_optimizer": het_tf.optimizers.Adagrad(RATE)}
        model = getattr(het_tf.models, name)(description, **rows)
        if side == "keras":
            to_keras(model)
        model(batches[0], training=False)
        made[side] = stepper(model, tf.keras.optimizers.Adagrad(RATE), own_loss)
        for inputs in batches[:3]:
            made[side](inputs, label)
    for turn in range(5):
        for side in SIDES:
            began = time.process_time()
            for number in range(steps):
                loss = made[side](batches[(turn + number) % 8], label)
            float(loss)
            turns[side].append((time.process_time() - began) / steps * 1e3)
    return {side: statistics.median(each) for side, each in turns.items()}
