"""Trains DeepFM (Guo et al., 2017): python examples/deepfm.py --data movielens

    logit = sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j + w^T MLP([v_1 x_1; v_2 x_2; ...]) + b

x is 1 for a field, the mean over the ids of a list, and a column's number. The products and the deep part
share the vectors v. The logit has unscaled products of rows, so a step moves it more than in other models:
rows of v have a smaller rate than the default.
"""

from __future__ import annotations

import argparse
from typing import Any

import data
import keras
import training
from keras import layers, ops

import het_tf


def deepfm(first: Any, rows: Any, numeric: Any, hidden: tuple[int, ...], dropout: float) -> Any:
    """The logit [B, 1] of weights [B, F, 1], rows [B, F, D] and numbers [B, M] or None."""
    terms = [ops.sum(first, axis=1)]
    if numeric is not None:
        columns, dim = numeric.shape[1], rows.shape[2]
        begin = keras.initializers.RandomUniform(-0.05, 0.05)
        vectors = layers.EinsumDense("bm,md->bmd", (columns, dim), kernel_initializer=begin)
        rows = layers.Concatenate(axis=1)([rows, vectors(numeric)])
        terms.append(layers.Dense(1, use_bias=False)(numeric))
    # All products of two vectors: half of the square of the sum less the sum of the squares.
    products = ops.square(ops.sum(rows, axis=1)) - ops.sum(ops.square(rows), axis=1)
    x = layers.Flatten()(rows)
    for width in hidden:
        x = layers.Dropout(dropout)(layers.Dense(width, "relu")(x))
    return layers.Add()([*terms, 0.5 * ops.sum(products, axis=1, keepdims=True), layers.Dense(1)(x)])


def main(options: argparse.Namespace) -> None:
    # Data: ids of fields, lists of ids, numbers.
    splits = data.load(options.data)
    inputs = training.inputs(splits)
    fields = ops.stack([inputs[name] for name in splits.fields], axis=1)
    lists = {name: inputs[name] for name in splits.lists}

    # Tables: one of weights w, one of vectors v; those of a list are averaged.
    given = training.row_optimizer(options)
    slow, fast = (het_tf.optimizers.RowWiseAdagrad(rate, decay_steps=1) for rate in (0.005, 0.02))
    tables = {
        "first": het_tf.TableConfig("deepfm/linear", 1, given or fast, het_tf.initializers.Zeros()),
        "rows": het_tf.TableConfig("deepfm/deep", options.embedding_dim, given or slow, seed=options.seed),
    }
    ids, features = {}, {}
    for name, table in tables.items():
        ids[name], features[name] = fields, het_tf.FeatureConfig(table)
        for part, of_list in lists.items():
            ids[f"{name}/{part}"] = of_list
            features[f"{name}/{part}"] = het_tf.FeatureConfig(table, "mean", padding_id=data.PADDING)
    found = het_tf.keras.EmbeddingCollection(features, cache=training.cache(options))(ids)

    # Model.
    first, rows = (
        ops.concatenate([found[name], *(found[f"{name}/{part}"][:, None] for part in lists)], axis=1)
        for name in tables
    )
    logit = deepfm(first, rows, inputs.get("numeric"), options.hidden, options.dropout)
    model = het_tf.workers.distribute(keras.Model(inputs, logit, name="deepfm"))
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
