"""Trains DCN-v2 (Wang et al., 2021): python examples/dcn.py --data criteo_like

    x_0     = [rows of the fields; numbers]
    x_{l+1} = x_0 * (W_l x_l + b_l) + x_l        W_l = U_l V_l^T of --cross-rank, if that is given
    logit   = w^T [x_L; MLP(x_0)] + b

where * multiplies element by element: L layers have all products of up to L + 1 features.
"""

from __future__ import annotations

import argparse
from typing import Any

import data
import keras
import training
from keras import layers, ops

import het_tf


def cross(first: Any, last: Any, rank: int | None) -> Any:
    """A cross layer: x_{l+1} of x_0 and x_l, [B, width]."""
    x = last if rank is None else layers.Dense(rank, use_bias=False)(last)
    return first * layers.Dense(first.shape[1])(x) + last


def dcn(
    rows: Any,
    numeric: Any,
    hidden: tuple[int, ...],
    dropout: float,
    cross_layers: int = 2,
    rank: int | None = None,
) -> Any:
    """The logit [B, 1] of rows [B, F, D] and numbers [B, M] or None."""
    first = layers.Flatten()(rows)
    if numeric is not None:
        first = layers.Concatenate()([first, numeric])
    crossed = x = first
    for _ in range(cross_layers):
        crossed = cross(first, crossed, rank)
    for width in hidden:
        x = layers.Dropout(dropout)(layers.Dense(width, "relu")(x))
    return layers.Dense(1)(layers.Concatenate()([crossed, x]))


def main(options: argparse.Namespace) -> None:
    # Data: ids of fields, lists of ids, numbers.
    splits = data.load(options.data)
    inputs = training.inputs(splits)
    fields = ops.stack([inputs[name] for name in splits.fields], axis=1)
    lists = {name: inputs[name] for name in splits.lists}

    # Table: one of rows; the rows of a list are averaged.
    row = het_tf.TableConfig(
        "dcn/deep", options.embedding_dim, training.row_optimizer(options), seed=options.seed
    )
    features = {"fields": het_tf.FeatureConfig(row)}
    features |= {name: het_tf.FeatureConfig(row, "mean", padding_id=data.PADDING) for name in lists}
    embed = het_tf.keras.EmbeddingCollection(features, cache=training.cache(options))
    found = embed({"fields": fields, **lists})

    # Model.
    rows = ops.concatenate([found["fields"], *(found[name][:, None] for name in lists)], axis=1)
    logit = dcn(
        rows, inputs.get("numeric"), options.hidden, options.dropout, options.cross_layers, options.cross_rank
    )
    model = het_tf.workers.distribute(keras.Model(inputs, logit, name="dcn"))
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
    arguments = training.ranking_parser(__doc__)
    arguments.add_argument(
        "--cross-layers", type=training.number(int, 0), default=2, metavar="L", help="default 2"
    )
    arguments.add_argument(
        "--cross-rank", type=training.number(int, 1), metavar="R", help="of their matrices; default full"
    )
    training.run(main, arguments)
