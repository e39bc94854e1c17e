"""Models in pairs: one with tables of het_tf and its twin with keras.layers.Embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from floats_lib import TRAINED, assert_close
from keras_twin import sides_of, to_keras

import het_tf
from het_tf.zoo.data import PADDING, Description, Examples, Field

keras = tf.keras

EVENTS = Description(
    "events",
    categorical=(Field("user", 5), Field("item", 9)),
    sequences=(Field("kinds", 6, length=3), Field("history", 9, length=4, shares="item")),
    numeric=("x", "y"),
    labels=("liked", "loved"),
    item=("item", "kinds"),
)
"""Users meet items: fields of both sides, a history, numbers, two labels."""


def events(rng: np.random.Generator, rows: int = 32) -> Examples:
    """Returns inputs from EVENTS; the first row has an empty history, the second a full one."""

    def sequence(size: int, lengths: np.ndarray, length: int) -> np.ndarray:
        ids = rng.integers(0, size, (rows, length))
        return np.where(np.arange(length) < lengths[:, None], ids, PADDING)

    lengths = np.concatenate([[0, 4], rng.integers(0, 5, rows - 2)])
    item = rng.integers(0, 9, rows)
    return Examples(
        {"user": rng.integers(0, 5, rows), "item": item},
        {"kinds": sequence(6, rng.integers(0, 4, rows), 3), "history": sequence(9, lengths, 4)},
        rng.normal(size=(rows, 2)).astype(np.float32),
        np.stack([item % 2, item > 5], axis=1).astype(np.float32),
    )


def tensors(examples: Examples) -> dict[str, Any]:
    return {name: tf.constant(column) for name, column in examples.inputs().items()}


def pairs_of(het: Any, other: Any) -> list[tuple[het_tf.Table, Any]]:
    """Each table of a model beside the Keras embedding of its twin."""
    return [
        (het_tf.Table(table.name, ours.collection.namespace), embedding)
        for ours, theirs in zip(sides_of(het), sides_of(other), strict=True)
        for table, embedding in zip(ours.collection.tables, theirs.collection.embeddings, strict=True)
    ]


def dense_of(model: Any, embeddings: list[Any]) -> list[Any]:
    """All weights that are no rows."""
    rows = [embedding.embeddings for embedding in embeddings]
    return [
        w
        for w in model.weights
        if w.name.split(":")[0].split("/")[-1] != "anchor" and not any(w is one for one in rows)
    ]


def twins(cls: Any, description: Description, examples: Examples, **arguments: Any) -> tuple[Any, Any]:
    """A model of tables and its twin of Keras embeddings, of equal rows and weights; tables learn by SGD."""
    sgd = het_tf.optimizers.SGD(0.1)
    arguments = {"table_optimizer": sgd, "linear_optimizer": sgd, "seed": 3, **arguments}
    het, other = cls(description, **arguments), to_keras(cls(description, **arguments))
    for model in (het, other):
        model.adapt(examples)
        model(tensors(examples), training=False)
    embeddings = [embedding for _, embedding in pairs_of(het, other)]
    ours, theirs = dense_of(het, []), dense_of(other, embeddings)
    assert [w.shape for w in ours] == [w.shape for w in theirs]
    for mine, other_weight in zip(ours, theirs, strict=True):
        other_weight.assign(mine.numpy())
    return het, other


def assert_equal_twins(het: Any, other: Any, learnt: bool = True) -> None:
    """Weights and rows are the same; `learnt`: every table has rows that were trained."""
    tables = pairs_of(het, other)
    theirs = dense_of(other, [embedding for _, embedding in tables])
    for mine, other_weight in zip(dense_of(het, []), theirs, strict=True):
        expected = other_weight.numpy()
        # One that begins at 0 and changes no output, as a bias of keys before a softmax, stays near 0: its
        # gradients are sums of larger terms.
        assert_close(mine.numpy(), expected, TRAINED, magnitude=max(0.1, np.abs(expected).max()))
    for table, embedding in tables:
        rows = table.lookup(np.arange(embedding.input_dim))
        assert_close(rows, embedding.embeddings.numpy(), TRAINED)
        assert not learnt or table.size > 0, table.name


def train(model: Any, examples: Examples, steps: int = 3, loss_of: Any = None) -> list[float]:
    """Steps of SGD without a graph, which would take longer to build than this takes; returns the losses."""
    optimizer = keras.optimizers.SGD(0.1)
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    losses = []
    for batch in list(examples.batches(len(examples) // steps))[:steps]:
        inputs, label = tensors(batch), tf.constant(batch.label)
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = loss_of(model, inputs, outputs) if loss_of else binary(label, outputs)
        gradients = tape.gradient(loss, model.trainable_variables)
        pairs = zip(gradients, model.trainable_variables, strict=True)
        optimizer.apply_gradients([(g, v) for g, v in pairs if g is not None])
        losses.append(float(loss))
    return losses
