"""Trains GraphSAGE (Hamilton et al., 2017) on PubMed: python examples/graphsage.py

    x_v = [row of v; features of v]
    h^0 = x,   h^k_v = ReLU(W_k mean({h^{k-1}_v} and {h^{k-1}_u: u a drawn neighbour of v}) + b_k)
    logits = W h^hops + b

Every hop of --fanouts is a layer (the paper's "gcn" aggregator, equation 2). Rows are learnt floats of each
node, in a table; features are given.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import data
import keras
import numpy as np
import tensorflow as tf
import training
from keras import layers, ops

import het_tf

L2 = 0.02


def graphsage(
    hops: Sequence[Any], fanouts: Sequence[int], units: Sequence[int], dropout: float = 0.0, l2: float = 0.0
) -> Any:
    """The vectors of the nodes of the first hop, [B, units], from x of each: [B, 1, d], [B, f1, d], ..."""
    hidden = list(hops)
    for number, width in enumerate(units):
        activation = "relu" if number + 1 < len(units) else None
        step = layers.Dense(width, activation, kernel_regularizer=keras.regularizers.L2(l2))
        reached = []
        for own, others, fanout in zip(hidden, hidden[1:], fanouts, strict=False):
            others = ops.reshape(others, (-1, own.shape[1], fanout, others.shape[-1]))
            around = layers.Concatenate(axis=2)([own[:, :, None], others])
            x = step(ops.mean(around, axis=2))
            reached.append(x if activation is None else layers.Dropout(dropout)(x))
        hidden = reached
    return hidden[0][:, 0]


def main(options: argparse.Namespace) -> None:
    # Data: nodes, and the neighbours that are drawn for each, hop by hop.
    nodes = data.pubmed()

    def batches(ids: np.ndarray, size: int, seed: int, shuffle: bool = False) -> tf.data.Dataset:
        drawn = tf.data.Dataset.from_tensor_slices((ids, nodes.labels[ids]))
        drawn = drawn.shuffle(len(ids), seed=seed) if shuffle else drawn
        drawn = drawn.batch(size, drop_remainder=shuffle)
        numbers = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)

        def sample(number: Any, batch: tuple[Any, Any]) -> tuple[dict[str, Any], Any]:
            hops = nodes.graph.sample(batch[0], options.fanouts, seed=seed, batch=number)
            return {f"hop_{hop}": tf.reshape(one, (-1, width[hop])) for hop, one in enumerate(hops)}, batch[1]

        return tf.data.Dataset.zip((numbers, drawn)).map(sample)

    width = [1, *np.cumprod(options.fanouts).tolist()]

    # Table: a row for each node, of all hops by one lookup.
    inputs = {
        f"hop_{hop}": keras.Input((count,), dtype="int64", name=f"hop_{hop}")
        for hop, count in enumerate(width)
    }
    row = het_tf.TableConfig(
        "graphsage/nodes",
        options.embedding_dim,
        training.row_optimizer(options, het_tf.optimizers.Adagrad(3e-4)),
        seed=options.seed,
    )
    ids = ops.concatenate(list(inputs.values()), axis=1)
    rows = het_tf.keras.Embedding(row, cache=training.cache(options))(ids)

    # Model.
    given = layers.Embedding(
        *nodes.features.shape, weights=[nodes.features], trainable=False, name="features"
    )
    x = layers.Dropout(options.dropout)(layers.Concatenate()([rows, given(ids)]))
    ends = np.cumsum(width).tolist()
    hops = [x[:, end - count : end] for end, count in zip(ends, width, strict=True)]
    units = (options.units,) * len(options.fanouts)
    logits = layers.Dense(nodes.classes)(graphsage(hops, options.fanouts, units, options.dropout, L2))
    model = het_tf.workers.distribute(keras.Model(inputs, logits, name="graphsage"))
    model.compile(
        keras.optimizers.Adam(options.dense_learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    training.resume(model, options)

    # Training, and on rank 0 the share of right classes, by the sum of the logits of some draws.
    own = het_tf.workers.shard(nodes.train)
    seed = options.seed + 1000 * het_tf.workers.rank()
    train = batches(own, min(options.batch_size, len(own)), seed, shuffle=True)
    model.fit(
        het_tf.lookahead(train, model),
        epochs=options.epochs,
        callbacks=training.callbacks(options),
        verbose=0,
        shuffle=False,
    )
    if not training.finish(model, options):
        return
    predict = tf.function(lambda batch: model(batch, training=False), reduce_retracing=True)
    for name, part in (("valid", nodes.valid), ("test", nodes.test)):
        draws = [
            np.concatenate([predict(batch).numpy() for batch, _ in batches(part, 512, draw)])
            for draw in range(options.draws)
        ]
        logits = np.sum(draws, axis=0)
        right = (logits.argmax(axis=1) == nodes.labels[part]).mean()
        print(f"{name} accuracy {right:.4f} ({len(part):,} nodes)")


if __name__ == "__main__":
    arguments = training.parser(__doc__, epochs=80, batch_size=60, dropout=0.5, dense_learning_rate=0.003)
    arguments.add_argument(
        "--fanouts", type=training.widths, default=(10, 10), metavar="N,N", help="neighbours of each hop"
    )
    arguments.add_argument(
        "--units", type=training.number(int, 1), default=32, metavar="W", help="default 32"
    )
    arguments.add_argument(
        "--draws", type=training.number(int, 1), default=4, metavar="N", help="of a test node"
    )
    training.run(main, arguments)
