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
    from het_tf import Cache

    return {
        "embedding_dim": options.embedding_dim,
        "hidden_units": options.hidden,
        "dropout": options.dropout,
        "table_optimizer": table_optimizer(options),
        "cache": Cache(rows=options.cache_rows, staleness=options.staleness),
        "seed": options.seed,
    }


def table_optimizer(options: argparse.Namespace) -> Any:
    """Returns the optimizer of the tables that was asked for; None: the model's own."""
    from het_tf import optimizers

    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    if options.optimizer is None and not rate:
        return None
    return optimizers.get({"name": options.optimizer or "row_wise_adagrad", **rate})


def main(
    arguments: Parser,
    build: Callable[..., Any],
    argv: Sequence[str] | None = None,
    load: Callable[..., Any] | None = None,
) -> None:
    """Trains and tests a model, from the command line to the table at the end.

    Args:
      arguments: From `parser`, with the example's own arguments.
      build: Called with a data description, the options and the arguments for the model; returns the model.
      argv: The command line; None for the process's own.
      load: Called with the name of a data set and the options; returns its splits. None: `het_tf.data.load`.
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
        check_outputs(options)
        het_tf.init()
        first = het_tf.workers.rank() == 0
        if load is None:
            splits = het_tf.data.load(options.data)
        else:
            splits = load(options.data, options)
        tf.keras.utils.set_random_seed(options.seed)
        model = build(splits.description, options, model_arguments(options))
        model.adapt(splits.train)
        train, valid = het_tf.workers.shard(splits.train), het_tf.workers.shard(splits.valid, False)
        splits = splits._replace(train=train, valid=valid)
        model = het_tf.workers.distribute(model)
        compile_model(model, dense_optimizer(options), len(splits.description.labels))
        resumed = resume(model, splits, options)
        if resumed and first:
            print(f"goes on from {resumed}")
    except (ValueError, OSError, RuntimeError) as error:
        fail(arguments, str(error))
    try:
        train_model(model, splits, options, verbose=None if first else 0)
        het_tf.flush(all_ranks=True)  # rank 0 tests what all have learned
        if options.export is not None:
            het_tf.export(model, options.export, verbose=False)  # every rank calls it, rank 0 writes
        if not first:
            return
        found, rows = evaluate(model, splits.test, options.batch_size)
    except Exception as error:
        if isinstance(error, OSError):  # a disk is full, ...
            fail(arguments, str(error))
        # What a reader of data raises inside of tf.data comes wrapped, with places of the graph or traceback.
        pattern = r"^(?:ValueError|FileNotFoundError|OSError): (.+)$|(\S+, (?:after )?line \d+: .+)$"
        said = re.search(pattern, str(error), re.MULTILINE)
        if not said:
            raise
        fail(arguments, said[1] or said[2])
    rich.print(table_statistics(model))
    for (auc, loss), label in zip(found, splits.description.labels, strict=True):
        print(f"test AUC {auc:.4f}, log loss {loss:.4f} ({rows:,} rows; label: {label})")
    if options.checkpoint is not None:
        newest = het_tf.checkpoint.latest(options.checkpoint)
        print(f"checkpoint: {newest} (het ckpt inspect {options.checkpoint} shows it)")
    if options.export is not None:
        print(f"SavedModel: {options.export} (saved_model_cli show --all --dir {options.export} shows it)")


def fail(arguments: Parser, message: str) -> NoReturn:
    """Exits with 2 and the first line of `message`."""
    print(f"{arguments.prog}: error: {(message.strip() or 'unknown').splitlines()[0]}", file=sys.stderr)
    sys.exit(2)


def check_outputs(options: argparse.Namespace) -> None:
    """Refuses before the training what could not be written after it.

    Raises:
      OSError: The checkpoints or the SavedModel cannot be written where they should be.
    """
    for name, place in (
        ("--checkpoint", options.checkpoint),
        ("--export", options.export and options.export.absolute().parent),
    ):
        if place is None:
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"cannot be made: {error.strerror}"
            raise OSError(f"{name}: {place} {why}; give another directory") from None
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(f"{name}: {place} cannot be written; give another directory")
    if options.export is not None and os.path.lexists(options.export):
        raise FileExistsError(f"--export: {options.export} exists; give another path, or remove it")


def resume(model: Any, splits: Any, options: argparse.Namespace) -> Path | None:
    """Restores the newest checkpoint of --checkpoint, if there is one, and returns its path.

    Under Horovod every rank calls it: all load a part of the rows.
    """
    import het_tf

    if options.checkpoint is None:
        return None
    path = het_tf.checkpoint.latest(options.checkpoint)
    if path is None:
        return None
    # Weights exist when the model has seen a batch; it may be any.
    model(next(iter(splits.train.to_tf(1)))[0], training=False)
    try:
        het_tf.checkpoint.restore(path, model)
    except ValueError as error:
        if "is damaged" in str(error):
            raise
        line = str(error).splitlines()[0].partition(";")[0]
        remedy = "give the arguments with which it was saved, or another directory"
        raise ValueError(f"--checkpoint: {line}; {remedy}") from None
    model.optimizer.learning_rate = options.dense_learning_rate  # restored too; the command line's holds
    return Path(path)


def train_model(model: Any, splits: Any, options: argparse.Namespace, verbose: int | None = None) -> Any:
    """Fits the model; returns Keras' History.

    Args:
      model: A model of het_tf.models, adapted and compiled.
      splits: From het_tf.data.load.
      options: From `parse`.
      verbose: Of `fit`; None: a progress bar on a terminal, else a line an epoch.
    """
    from report import scalar_logs

    import het_tf

    callbacks: list[Any] = [het_tf.callbacks.LearningRateScaling()]
    if options.checkpoint is not None:
        callbacks.append(het_tf.callbacks.Checkpoint(options.checkpoint, keep=3))  # on every rank
    if options.log_dir is not None:
        callbacks.append(het_tf.workers.on_rank_zero(scalar_logs(options.log_dir)))
    if verbose is None:
        verbose = 1 if sys.stdout.isatty() else 2
    # Keras warns at the end of the first epoch of a stream whose length it did not know.
    warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
    began = time.monotonic()
    # The mean gradient of a last batch of a few rows varies much, and AdaGrad takes a large step by it.
    full = splits.train.rows is None or splits.train.rows >= options.batch_size
    batches = splits.train.to_tf(options.batch_size, shuffle=True, seed=options.seed, drop_remainder=full)
    # Lookups begin early where tables are at a server: one that is given, or the one of a job of ranks.
    at_server = os.environ.keys() & {"HET_PS", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"}
    history = model.fit(
        het_tf.lookahead(batches, model) if at_server else batches,
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


def dense_optimizer(options: argparse.Namespace) -> Any:
    """Returns the optimizer of the dense weights."""
    import tensorflow as tf

    optimizer = tf.keras.optimizers.get(options.dense_optimizer)
    optimizer.learning_rate = options.dense_learning_rate
    return optimizer


def compile_model(model: Any, optimizer: Any, labels: int = 1) -> None:
    """Compiles a model for binary labels, with AUC (of 2,000 thresholds); the loss is the log loss.

    Both are means over the labels.
    """
    import tensorflow as tf

    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True, name="log_loss")
    several = {"multi_label": True, "num_labels": labels} if labels > 1 else {}
    auc = tf.keras.metrics.AUC(num_thresholds=2000, from_logits=True, name="auc", **several)
    model.compile(optimizer=optimizer, loss=loss, metrics=[auc])
