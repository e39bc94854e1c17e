"""Training of the examples, from the command line to the figures at the end."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from arguments import Parser, parse

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if not any((Path(entry or ".") / "het_tf" / "__init__.py").is_file() for entry in sys.path):
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # a source tree that is not installed


def model_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options as keyword arguments of a model of het_tf.models."""
    from het_tf import optimizers

    table_optimizer = optimizers.get({"name": options.optimizer, "learning_rate": options.learning_rate})
    return {
        "embedding_dim": options.embedding_dim,
        "hidden_units": options.hidden,
        "dropout": options.dropout,
        "embedding": options.embedding,
        "table_optimizer": table_optimizer,
        "staleness": options.staleness,
        "cache_rows": options.cache_rows,
        "seed": options.seed,
    }


def main(arguments: Parser, build: Callable[..., Any], argv: Sequence[str] | None = None) -> None:
    """Trains and tests a model, from the command line to the table at the end.

    Args:
      arguments: From `parser`, with the example's own arguments.
      build: Called with a data description, the options and the arguments for the model; returns the model.
      argv: The command line; None for the process's own.
    """
    options = parse(arguments, argv)
    try:
        import rich
        import tensorflow as tf
        from report import evaluate, table_statistics

        import het_tf
    except ImportError as error:
        fail(arguments, str(error))

    try:
        hvd = horovod()
        het_tf.init(hvd=hvd)
        first = hvd is None or hvd.rank() == 0
        splits = het_tf.data.load(options.data, errors=options.errors)
        tf.keras.utils.set_random_seed(options.seed)
        model = build(splits.description, options, model_arguments(options))
        model.adapt(splits.train)
        if hvd is not None:
            train, valid = het_tf.horovod.shard(splits.train), het_tf.horovod.shard(splits.valid, False)
            splits = splits._replace(train=train, valid=valid)
            model = het_tf.horovod.distribute(model)
    except (ValueError, OSError, RuntimeError) as error:
        fail(arguments, str(error))
    try:
        train_model(model, splits, options, verbose=None if first else 0)
        if hvd is not None:
            het_tf.horovod.flush_all()  # rank 0 tests what all have learned
        if not first:
            return
        auc, loss, rows = evaluate(model, splits.test, options.batch_size)
    except Exception as error:
        # What a reader of data raises inside of tf.data comes wrapped, with the traceback in its text.
        found = re.search(r"^(?:ValueError|FileNotFoundError|OSError): (.+)$", str(error), re.MULTILINE)
        if not found:
            raise
        fail(arguments, found[1])
    if options.embedding == "het":
        rich.print(table_statistics(model))
    print(f"test AUC {auc:.4f}, log loss {loss:.4f} ({rows:,} rows; label: {splits.description.label})")


def horovod() -> Any:
    """Returns horovod.tensorflow, initialised, if `horovodrun` has started this process; else None."""
    if "HOROVOD_RANK" not in os.environ and "OMPI_COMM_WORLD_RANK" not in os.environ:
        return None
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd


def fail(arguments: Parser, message: str) -> NoReturn:
    """Exits with 2 and the first line of `message`."""
    print(f"{arguments.prog}: error: {(message.strip() or 'unknown').splitlines()[0]}", file=sys.stderr)
    sys.exit(2)


def train_model(model: Any, splits: Any, options: argparse.Namespace, verbose: int | None = None) -> Any:
    """Compiles and fits the model; returns Keras' History.

    Args:
      model: A model of het_tf.models, adapted.
      splits: From het_tf.data.load.
      options: From `parse`.
      verbose: Of `fit`; None: a progress bar on a terminal, else a line an epoch.
    """
    import tensorflow as tf
    from report import scalar_logs

    import het_tf

    keras = tf.keras
    optimizer = keras.optimizers.get(options.dense_optimizer)
    optimizer.learning_rate = options.dense_learning_rate
    compile_model(model, optimizer)
    callbacks = [*ranks_callbacks()]
    if options.log_dir is not None:
        callbacks.append(het_tf.horovod.on_rank_zero(scalar_logs(options.log_dir, options.embedding)))
    if verbose is None:
        verbose = 1 if sys.stdout.isatty() else 2
    # Keras warns at the end of the first epoch of a stream whose length it did not know.
    warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
    began = time.monotonic()
    # The mean gradient of a last batch of a few rows varies much, and AdaGrad takes a large step by it.
    full = splits.train.rows is None or splits.train.rows >= options.batch_size
    history = model.fit(
        splits.train.to_tf(options.batch_size, shuffle=True, seed=options.seed, drop_remainder=full),
        validation_data=splits.valid.to_tf(max(options.batch_size, 1024)),
        epochs=options.epochs,
        callbacks=callbacks,
        verbose=verbose,
        shuffle=False,  # the data set does
    )
    if verbose:
        print(f"trained for {time.monotonic() - began:.1f} s")
    if options.log_dir is not None and verbose:
        print(f"logs: tensorboard --logdir {options.log_dir}")
    return history


def ranks_callbacks() -> list[Any]:
    """Returns what a fit on several ranks needs; nothing without Horovod."""
    if horovod() is None:
        return []
    from het_tf import callbacks

    return [callbacks.Broadcast(), callbacks.MetricAverage(), callbacks.LearningRateScaling()]


def compile_model(model: Any, optimizer: Any) -> None:
    """Compiles a model for binary labels, with AUC (of 2,000 thresholds); the loss is the log loss."""
    import tensorflow as tf

    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True, name="log_loss")
    auc = tf.keras.metrics.AUC(num_thresholds=2000, from_logits=True, name="auc")
    model.compile(optimizer=optimizer, loss=loss, metrics=[auc])
