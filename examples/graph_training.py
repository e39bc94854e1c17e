"""Training of GraphSAGE from the command line to the figures: by links, by classes, and the test."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import arguments
import common
import numpy as np

DATA = "pubmed, blogcatalog, debian, graph_like or graph_like:NODES"


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Hyper-parameters: of pubmed chosen on its validation part, of blogcatalog by a few trials.

    Attributes:
      link_epochs: Passes in which rows learn who is near whom, before classes; 0: rows learn by classes.
      fanouts, link_fanouts: Of the classifier, and of that training.
    """

    link_epochs: int
    epochs: int
    batch_size: int
    fanouts: tuple[int, ...]
    link_fanouts: tuple[int, ...]
    embedding_dim: int
    units: int
    dropout: float
    l2: float
    normalize: bool
    aggregator: str
    optimizer: str
    learning_rate: float
    dense_learning_rate: float


DEFAULTS = {
    "pubmed": Defaults(0, 80, 60, (10, 10), (5,), 16, 32, 0.5, 0.02, False, "gcn", "adagrad", 3e-4, 0.003),
    "blogcatalog": Defaults(240, 12, 128, (40,), (5,), 128, 128, 0.3, 0.0, False, "mean", "adam", 0.01, 0.01),
    "debian": Defaults(0, 3, 256, (10, 5), (5,), 64, 128, 0.0, 0.0, True, "mean", "adagrad", 0.03, 0.005),
    "graph_like": Defaults(0, 1, 64, (10, 5), (5,), 32, 64, 0.0, 0.0, True, "mean", "adagrad", 0.03, 0.005),
}
LINK_BATCH, LINK_NEGATIVES = 512, 100


def parser() -> arguments.Parser:
    """The arguments."""
    result = arguments.Parser(
        description="Trains GraphSAGE (Hamilton et al., 2017) with a table of het_tf.",
        epilog="Defaults of pubmed were chosen on its validation part, of blogcatalog by a few trials.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
    )
    whole, positive = arguments.number(int, 1), arguments.number(float, 0)
    add = result.add_argument
    add("--data", type=_data_name, default="pubmed", metavar="NAME", help=f"{DATA}; default pubmed")
    add("--seed", type=arguments.number(int, 0, 2**31), default=1, metavar="N", help="default 1")
    add("--aggregator", choices=("mean", "gcn", "pool"), help="default by data set")
    add("--fanouts", type=arguments.widths, metavar="N,N", help="neighbours a hop; default by data set")
    add("--embedding-dim", type=whole, metavar="D", help="floats of a row; default by data set")
    add("--units", type=whole, metavar="W", help="width of the layers; default by data set")
    add("--dropout", type=arguments.number(float, 0, 0.99), metavar="P", help="default by data set")
    add("--l2", type=positive, metavar="X", help="of the layers' weights; default by data set")
    add("--epochs", type=whole, metavar="N", help="passes by classes; default by data set")
    add(
        "--link-epochs", type=arguments.number(int, 0), metavar="N",
        help="passes by links before, after which rows stay; 0: rows learn by classes; default by data set",
    )  # fmt: skip
    add("--batch-size", type=whole, metavar="N", help="nodes of a batch; default by data set")
    add("--optimizer", choices=("adagrad", "adam"), help="of the table; default by data set")
    add("--learning-rate", type=positive, metavar="X", help="of the table; default by data set")
    add("--dense-learning-rate", type=positive, metavar="X", help="Adam's, of layers; default by data set")
    add(
        "--staleness", type=arguments.number_or_none("unbounded"), default=30, metavar="S",
        help="how many updates by others a cached row may miss, or 'unbounded'; default 30",
    )  # fmt: skip
    add(
        "--cache-rows", type=arguments.number_or_none("none"), default=100_000, metavar="N",
        help="rows that the worker caches, or 'none'; default 100000",
    )  # fmt: skip
    add("--draws", type=whole, default=4, metavar="N", help="neighbourhoods a test node has; default 4")
    add("--export", type=Path, metavar="DIR", help="write the classifier there as a SavedModel")
    result.set_defaults(checkpoint=None)
    return result


def _data_name(text: str) -> str:
    if text.partition(":")[0] not in DEFAULTS:
        raise argparse.ArgumentTypeError(f"there is no graph {text!r}; give {DATA}")
    return text


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line and fills in the defaults of the data set."""
    options = parser().parse_args(argv)
    for name, value in dataclasses.asdict(DEFAULTS[options.data.partition(":")[0]]).items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    return options


def model_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that the models for links and for classes share."""
    import het_tf

    return {
        "units": options.units,
        "aggregator": options.aggregator,
        "embedding_dim": options.embedding_dim,
        "table_optimizer": row_optimizer(options),
        "cache": het_tf.Cache(rows=options.cache_rows, staleness=options.staleness),
        "seed": options.seed,
    }


def row_optimizer(options: argparse.Namespace) -> Any:
    """The optimizer of the table."""
    from het_tf import optimizers

    if options.optimizer == "adam":
        return optimizers.Adam(options.learning_rate)
    return optimizers.Adagrad(options.learning_rate)


class Run:
    """One training, on one rank of several or alone.

    Args:
      task: From het_tf.data.load_graph.
      options: From `parse`.
    """

    def __init__(self, task: Any, options: argparse.Namespace) -> None:
        import het_tf

        self.task, self.options, self.rank = task, options, het_tf.workers.rank()
        self.verbose = 0 if self.rank else 2

    def classifier(self, rows: Any) -> Any:
        """GraphSAGE with a logit a class, over given rows or rows of its own."""
        import het_tf

        options, task = self.options, self.task
        return het_tf.models.GraphSAGE(
            *(task.graph.nodes, task.classes, options.fanouts),
            features=task.features,
            dropout=options.dropout,
            l2=options.l2,
            normalize=options.normalize,
            rows=rows,
            name="graphsage",
            **model_arguments(options),
        )

    def learn_links(self) -> Any:
        """Trains rows to be near where nodes are; returns the layer that has them, which stay from now on."""
        import het_tf

        options, graph = self.options, self.task.graph
        model = het_tf.models.LinkGraphSAGE(
            graph.nodes,
            LINK_NEGATIVES,
            fanouts=options.link_fanouts,
            normalize=False,
            name="links",
            **model_arguments(options),
        )
        nodes = self._shard(np.arange(graph.nodes))
        batches = het_tf.data.link_batches(
            *(graph, nodes, min(LINK_BATCH, len(nodes)), options.link_fanouts, LINK_NEGATIVES, 1),
            seed=self._seed(),
        )
        self._fit(model, batches, het_tf.models.LinkLoss(weight=1.0), options.link_epochs)
        rows: Any = model.rows
        rows.trainable = False
        return rows

    def learn_classes(self, model: Any) -> None:
        """Trains the classifier."""
        import tensorflow as tf

        losses = tf.keras.losses
        kind = losses.BinaryCrossentropy if self.task.multi_label else losses.SparseCategoricalCrossentropy
        part, options = self._shard(self.task.train), self.options
        size = min(options.batch_size, len(part))
        batches = part.to_tf(self.task.graph, size, options.fanouts, True, self._seed(), drop_remainder=True)
        self._fit(model, batches, kind(from_logits=True), options.epochs)

    def _fit(self, model: Any, batches: Any, loss: Any, epochs: int) -> None:
        import het_tf

        batches = self._prepared(model, batches)
        model = het_tf.workers.distribute(model)
        model.compile(self._optimizer(), loss)
        began = time.monotonic()
        model.fit(batches, epochs=epochs, verbose=0, shuffle=False)
        het_tf.flush(all_ranks=True)  # rank 0 tests what all have learned
        if self.verbose:
            print(f"{model.name}: {epochs} epochs in {time.monotonic() - began:.1f} s", flush=True)

    def _prepared(self, model: Any, batches: Any) -> Any:
        """The batches of a model that is about to be trained."""
        import het_tf

        return het_tf.lookahead(batches, model) if model.rows.trainable else batches

    def _optimizer(self) -> Any:
        import tensorflow as tf

        return tf.keras.optimizers.Adam(self.options.dense_learning_rate)

    def score(self, model: Any, part: Any) -> float:
        """The share of right classes; where nodes have several, micro-F1 of as many as each node has.

        The latter is what work on BlogCatalog reports since Tang and Liu (2009).
        """
        import tensorflow as tf

        predict = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)
        total: Any = 0.0
        for draw in range(self.options.draws):
            batches = part.to_tf(self.task.graph, 512, self.options.fanouts, seed=draw)
            total = total + np.concatenate([predict(inputs).numpy() for inputs, _ in batches])
        if not self.task.multi_label:
            return float((total.argmax(axis=1) == part.labels).mean())
        place = (-total).argsort(axis=1).argsort(axis=1)
        right = part.labels[place < part.labels.sum(axis=1, keepdims=True)].sum()
        return float(right / part.labels.sum())  # as many are named as there are: precision is recall

    def _shard(self, data: Any) -> Any:
        import het_tf

        return het_tf.workers.shard(data)

    def _seed(self) -> int:
        return self.options.seed + 1000 * self.rank


def main(argv: Sequence[str] | None = None, kind: type[Run] = Run) -> None:
    """Trains and tests, from the command line to the table at the end."""
    options, command = parse(argv), parser()
    try:
        import rich
        import tensorflow as tf
        from report import table_statistics

        import het_tf
    except ImportError as error:
        common.fail(command, str(error))
    try:
        common.check_outputs(options)
        het_tf.init()
        tf.keras.utils.set_random_seed(options.seed)
        run = kind(het_tf.data.load_graph(options.data), options)
        model = run.classifier(run.learn_links() if options.link_epochs else None)
        run.learn_classes(model)
        if options.export is not None:
            het_tf.export(model, options.export, verbose=False)  # every rank calls it, rank 0 writes
    except (ValueError, OSError, RuntimeError) as error:
        common.fail(command, str(error))
    if not run.verbose:
        return
    rich.print(table_statistics(model))
    measure = "micro-F1" if run.task.multi_label else "accuracy"
    test = run.task.test
    print(f"valid {measure} {run.score(model, run.task.valid):.4f}")
    print(f"test {measure} {run.score(model, test):.4f} ({len(test):,} nodes; class: {run.task.label})")
    sys.stdout.flush()
