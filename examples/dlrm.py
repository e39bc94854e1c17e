"""Trains DLRM (Naumov et al., 2019): python examples/dlrm.py --data criteo_like

    z     = MLP_bottom(numbers)
    p     = [<v_i, v_j>] for i < j of z and the rows of the fields
    logit = w^T MLP_top([z; p]) + b

Without numbers z is a learnt vector: its products with the rows let each field count by itself, too.
"""

from __future__ import annotations

import argparse
from typing import Any

import data
import keras
import numpy as np
import training
from keras import layers, ops

import het_tf


def dlrm(rows: Any, numeric: Any, hidden: tuple[int, ...], dropout: float) -> Any:
    """The logit [B, 1] of rows [B, F, D] and numbers [B, M] or None."""
    z = ops.ones_like(rows[:, 0, :1]) if numeric is None else numeric
    z = layers.Dense(rows.shape[2], "relu")(layers.Dense(64, "relu")(z))
    vectors = layers.Concatenate(axis=1)([z[:, None], rows])
    count = vectors.shape[1]
    products = ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1)))
    upper = np.ravel_multi_index(np.triu_indices(count, 1), (count, count))
    x = layers.Concatenate()([z, ops.take(layers.Flatten()(products), upper, axis=1)])
    for width in hidden:
        x = layers.Dropout(dropout)(layers.Dense(width, "relu")(x))
    return layers.Dense(1)(x)


def main(options: argparse.Namespace) -> None:
    # Data: ids of fields, lists of ids, numbers.
    splits = data.load(options.data)
    inputs = training.inputs(splits)
    fields = ops.stack([inputs[name] for name in splits.fields], axis=1)
    lists = {name: inputs[name] for name in splits.lists}

    # Table: one of rows; the rows of a list are averaged.
    row = het_tf.TableConfig(
        "dlrm/deep", options.embedding_dim, training.row_optimizer(options), seed=options.seed
    )
    features = {"fields": het_tf.FeatureConfig(row)}
    features |= {name: het_tf.FeatureConfig(row, "mean", padding_id=data.PADDING) for name in lists}
    embed = het_tf.keras.EmbeddingCollection(features, cache=training.cache(options))
    found = embed({"fields": fields, **lists})

    # Model.
    rows = ops.concatenate([found["fields"], *(found[name][:, None] for name in lists)], axis=1)
    logit = dlrm(rows, inputs.get("numeric"), options.hidden, options.dropout)
    model = het_tf.workers.distribute(keras.Model(inputs, logit, name="dlrm"))
    model.compile(
        keras.optimizers.Adam(options.dense_learning_rate),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(num_thresholds=2000, from_logits=True, name="auc")],
    )
    training.resume(model, options)

    # Training, and the test on rank 0.
    train, valid = training.batches(splits, options, model)
    model.fit(
        train,
        validation_data=valid,
        epochs=options.epochs,
        callbacks=training.callbacks(options),
        verbose=training.verbose(),
        shuffle=False,  # the data set is shuffled
    )
    if training.finish(model, options):
        training.report(model, splits)


if __name__ == "__main__":
    training.run(main, training.ranking_parser(__doc__))
