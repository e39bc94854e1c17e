"""Trains two towers (Yi et al., 2019) on MovieLens, and searches films: python examples/two_tower.py

    score(x, y) = <user tower(x), item tower(y)> / temperature
    loss_i      = -log softmax over the items j of the batch of (score(x_i, y_j) - log q_j), at j = i

The other items of a batch are the negatives of a sample. Popular ones are met more often: without the
correction by their share q of all samples the loss would hold them down.
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

TEMPERATURE = 0.05
SIDES = {
    "user": (("user", "age", "gender", "occupation", "zip"), "history"),
    "item": (("item", "year"), "genres"),
}
"""What each tower reads: fields, and a list."""


def tower(rows: Any, hidden: tuple[int, ...]) -> Any:
    """A vector of length 1, [B, 32], of the rows of one side, [B, F, D]."""
    x = layers.Flatten()(rows)
    for width in hidden:
        x = layers.Dense(width, "relu")(x)
    return layers.UnitNormalization()(layers.Dense(32)(x))


def main(options: argparse.Namespace) -> None:
    # Data: what users liked, with the films that they had liked before; how often each film is liked.
    splits = data.movielens(history=20)
    train, test = (part.take(part.label > 0) for part in (splits.train, splits.test))
    films = splits.fields["item"] or 0
    share = np.log(np.bincount(train.columns["item"], minlength=films) / len(train) + 1e-9)

    def sample(inputs: dict[str, Any], _: Any) -> tuple[dict[str, Any], Any]:
        log_q = tf.gather(tf.constant(share, tf.float32), inputs["item"])
        given = {name: one for name, one in inputs.items() if name not in splits.crosses}
        return {**given, "log_q": log_q}, tf.range(options.batch_size)

    batches = train.batches(options.batch_size, shuffle=True, seed=options.seed, drop_remainder=True)
    batches = het_tf.workers.shard(batches.map(sample))

    # Towers: a side has one table, whose rows its fields and its list share, and can be served alone.
    inputs = {name: one for name, one in training.inputs(splits).items() if name not in splits.crosses}
    sides = {}
    for side, (fields, listed) in SIDES.items():
        table = het_tf.TableConfig(
            f"two_tower/{side}", options.embedding_dim, training.row_optimizer(options), seed=options.seed
        )
        features = {side: het_tf.FeatureConfig(table)}
        features[listed] = het_tf.FeatureConfig(table, "mean", padding_id=data.PADDING)
        embed = het_tf.keras.EmbeddingCollection(features, cache=training.cache(options))
        found = embed({side: ops.stack([inputs[name] for name in fields], axis=1), listed: inputs[listed]})
        rows = ops.concatenate([found[side], found[listed][:, None]], axis=1)
        read = {name: inputs[name] for name in (*fields, listed)}
        sides[side] = keras.Model(read, tower(rows, options.hidden), name=f"{side}_tower")

    # Model.
    users, items = (one.output for one in sides.values())
    log_q = keras.Input((), name="log_q")
    scores = ops.matmul(users, ops.transpose(items)) / TEMPERATURE - log_q
    model = keras.Model({**inputs, "log_q": log_q}, scores, name="two_tower")
    model = het_tf.workers.distribute(model)
    model.compile(
        keras.optimizers.Adam(options.dense_learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
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
    if not training.finish(sides["user"], options):
        return
    known = np.unique(train.columns["item"], return_index=True)[1]
    vectors = {
        side: np.concatenate(
            [
                one({name: batch[name] for name in one.input}, training=False)
                for batch, _ in rows.batches(4096)
            ]
        )
        for (side, one), rows in zip(sides.items(), (test, train.take(known)), strict=True)
    }
    best = np.argsort(-vectors["user"] @ vectors["item"].T, axis=1)[:, : options.k]
    right = train.columns["item"][known][best] == test.columns["item"][:, None]
    chance = options.k / len(known)
    print(f"recall@{options.k} {right.any(axis=1).mean():.4f} ({len(test):,} rows; {chance:.4f} by chance)")


if __name__ == "__main__":
    arguments = training.parser(__doc__, epochs=3, batch_size=256, hidden=(64,))
    arguments.add_argument("--k", type=training.number(int, 1), default=100, help="films found; default 100")
    training.run(main, arguments)
