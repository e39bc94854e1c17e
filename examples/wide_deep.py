"""Trains Wide & Deep (Cheng et al., 2016): python examples/wide_deep.py --data census

    logit = sum of the wide weights + w^T MLP([rows of the fields; numbers]) + b

The wide part has a weight for each id of a field and of a cross, trained by FTRL with L1 as in the paper,
which leaves those of rare crosses at 0. The deep part has a row for each id of a field.
"""

from __future__ import annotations

import argparse
from typing import Any

import data
import keras
import training
from keras import layers, ops

import het_tf


def wide_deep(wide: Any, rows: Any, numeric: Any, hidden: tuple[int, ...], dropout: float) -> Any:
    """The logit [B, 1] of wide weights [B, W, 1], rows [B, F, D] and numbers [B, M] or None."""
    x = layers.Flatten()(rows)
    if numeric is not None:
        x = layers.Concatenate()([x, numeric])
    for width in hidden:
        x = layers.Dropout(dropout)(layers.Dense(width, "relu")(x))
    return layers.Add()([ops.sum(wide, axis=1), layers.Dense(1)(x)])


def main(options: argparse.Namespace) -> None:
    # Data: ids of fields and crosses, lists of ids, numbers.
    splits = data.load(options.data)
    inputs = training.inputs(splits)
    fields = ops.stack([inputs[name] for name in splits.fields], axis=1)
    wide = ops.stack([inputs[name] for name in (*splits.fields, *splits.crosses)], axis=1)
    lists = {name: inputs[name] for name in splits.lists}

    # Tables: one of weights, one of rows; the rows of a list are averaged.
    weight = het_tf.TableConfig(
        "wide_deep/wide", 1, het_tf.optimizers.Ftrl(0.05, l1=0.001), het_tf.initializers.Zeros()
    )
    row = het_tf.TableConfig(
        "wide_deep/deep", options.embedding_dim, training.row_optimizer(options), seed=options.seed
    )
    features = {"wide": het_tf.FeatureConfig(weight), "fields": het_tf.FeatureConfig(row)}
    features |= {name: het_tf.FeatureConfig(row, "mean", padding_id=data.PADDING) for name in lists}
    embed = het_tf.keras.EmbeddingCollection(features, cache=training.cache(options))
    found = embed({"wide": wide, "fields": fields, **lists})

    # Model.
    rows = ops.concatenate([found["fields"], *(found[name][:, None] for name in lists)], axis=1)
    logit = wide_deep(found["wide"], rows, inputs.get("numeric"), options.hidden, options.dropout)
    model = het_tf.workers.distribute(keras.Model(inputs, logit, name="wide_deep"))
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
