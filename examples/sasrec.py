"""Trains SASRec (Kang and McAuley, 2018) on MovieLens: python examples/sasrec.py

    x_t  = sqrt(d) m_{s_t} + p_t                       rows of the films of a history, and of their places
    f_t  = LayerNorm(block(... block(x)))_t            causal self-attention
    loss = mean over t of  -log sigmoid(<f_t, m_{s_{t+1}}>) - log(1 - sigmoid(<f_t, m_j>))

A user's films are a sequence; each place predicts the next one, against one film j that is drawn evenly.
Films of the history, next ones and drawn ones read rows of one table.
"""

from __future__ import annotations

import argparse
from typing import Any

import data
import keras
import numpy as np
import tensorflow as tf
import training
from keras import layers, ops

import het_tf

LENGTH = 20


def block(x: Any, there: Any, dropout: float) -> Any:
    """A causal block of the paper's section III.B: [B, L, D] to [B, L, D], zeros for padding."""
    query = layers.LayerNormalization(epsilon=1e-8)(x)
    attend = layers.MultiHeadAttention(1, x.shape[-1], dropout=dropout)
    x = layers.LayerNormalization(epsilon=1e-8)(query + attend(query, x, use_causal_mask=True))
    hidden = layers.Dropout(dropout)(layers.Dense(x.shape[-1], "relu")(x))
    return (x + layers.Dropout(dropout)(layers.Dense(x.shape[-1])(hidden))) * there


def sasrec(rows: Any, places: Any, there: Any, dropout: float, blocks: int = 2) -> Any:
    """The states f of rows and of rows of places, all [B, L, D]; `there`, [B, L, 1], is 0 for padding."""
    x = layers.Dropout(dropout)(rows * rows.shape[-1] ** 0.5 + places) * there
    for _ in range(blocks):
        x = block(x, there, dropout)
    return layers.LayerNormalization(epsilon=1e-8)(x)


def main(options: argparse.Namespace) -> None:
    # Data: what users liked, and the films that they had liked before. Padding is at the end of a history.
    splits = data.movielens(history=LENGTH)
    films = splits.fields["item"] or 0
    train, test = (
        part.take((part.label > 0) & (part.columns["history"][:, 0] != data.PADDING))
        for part in (splits.train, splits.test)
    )

    def sample(inputs: dict[str, Any], _: Any) -> tuple[Any, Any, Any]:
        past = inputs["history"]
        last = tf.reduce_sum(tf.cast(past != data.PADDING, tf.int32), axis=1) - 1
        is_last = tf.range(LENGTH) == last[:, None]
        following = tf.where(is_last, inputs["item"][:, None], tf.roll(past, -1, 1))
        drawn = tf.random.uniform(tf.shape(past), 0, films, tf.int64)
        there = past != data.PADDING
        candidates = tf.where(there[..., None], tf.stack([following, drawn], 2), data.PADDING)
        label = tf.broadcast_to(tf.constant([1.0, 0.0]), tf.shape(candidates))
        return {"history": past, "candidates": candidates}, label, there

    size = min(options.batch_size, len(train))
    batches = train.batches(size, shuffle=True, seed=options.seed, drop_remainder=True).map(sample)
    batches = het_tf.workers.shard(batches)

    # Table.
    table = het_tf.TableConfig(
        "sasrec/item", options.embedding_dim, training.row_optimizer(options), seed=options.seed
    )
    feature = het_tf.FeatureConfig(table, padding_id=data.PADDING)
    embed = het_tf.keras.EmbeddingCollection({"items": feature}, cache=training.cache(options))
    inputs = {
        "history": keras.Input((LENGTH,), dtype="int64", name="history"),
        "candidates": keras.Input((LENGTH, 2), dtype="int64", name="candidates"),
    }
    ids = ops.concatenate([inputs["history"], ops.reshape(inputs["candidates"], (-1, 2 * LENGTH))], axis=1)
    rows = embed({"items": ids})["items"]

    # Model.
    there = ops.cast(ops.not_equal(inputs["history"], data.PADDING), "float32")[..., None]
    places = layers.Embedding(LENGTH, options.embedding_dim)(
        ops.zeros_like(inputs["history"]) + ops.arange(LENGTH)
    )
    states = sasrec(rows[:, :LENGTH], places, there, options.dropout)
    offered = ops.reshape(rows[:, LENGTH:], (-1, LENGTH, 2, options.embedding_dim))
    logits = ops.sum(states[:, :, None] * offered, axis=-1)
    model = het_tf.workers.distribute(keras.Model(inputs, logits, name="sasrec"))
    model.compile(
        keras.optimizers.Adam(options.dense_learning_rate), keras.losses.BinaryCrossentropy(from_logits=True)
    )
    training.resume(model, options)

    # Training, and on rank 0 the share of the test's films that are among the first K of their user.
    model.fit(
        batches,
        epochs=options.epochs,
        callbacks=training.callbacks(options),
        verbose=training.verbose(),
        shuffle=False,
    )
    if not training.finish(model, options):
        return
    user = tf.function(keras.Model(inputs, states))
    last = (test.columns["history"] != data.PADDING).sum(axis=1) - 1
    past = test.columns["history"]
    none = np.full((*past.shape, 2), data.PADDING)
    found = [user({"history": past[at : at + 1024], "candidates": none[at : at + 1024]}).numpy()
             for at in range(0, len(past), 1024)]  # fmt: skip
    vectors = np.concatenate(found)[np.arange(len(past)), last]
    scores = vectors @ het_tf.Table("sasrec/item").lookup(np.arange(films)).T
    best = np.argsort(-scores, axis=1)[:, : options.k]
    right = (best == test.columns["item"][:, None]).any(axis=1)
    print(f"recall@{options.k} {right.mean():.4f} ({len(right):,} rows; {options.k / films:.4f} by chance)")


if __name__ == "__main__":
    arguments = training.parser(__doc__, epochs=5, batch_size=128, embedding_dim=32, dropout=0.2)
    arguments.add_argument("--k", type=training.number(int, 1), default=100, help="films found; default 100")
    training.run(main, arguments)
