"""What the examples share beside their data: arguments, checkpoints, and the figures at the end."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import data
import keras
import numpy as np
import tensorflow as tf

import het_tf

OPTIMIZERS = ("SGD", "RMSprop", "Adam", "Adagrad", "RowWiseAdagrad", "Ftrl")
# Epochs, batch size, hidden widths, dropout: of census and movielens chosen on validation, of Criteo untuned.
DEFAULTS: dict[str, dict[str, Any]] = {
    "census": {"epochs": 7, "batch_size": 128, "hidden": (128, 64), "dropout": 0.2},
    "movielens": {"epochs": 3, "batch_size": 256, "hidden": (128, 64), "dropout": 0.3},
    "criteo_like": {"epochs": 1, "batch_size": 512, "hidden": (256, 128), "dropout": 0.0},
    "criteo": {"epochs": 1, "batch_size": 2048, "hidden": (400, 400, 400), "dropout": 0.0},
}


# --- arguments ------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Prints `message` and exits with 2."""
        print(f"{self.prog}: error: {message} (--help lists the arguments)", file=sys.stderr)
        sys.exit(2)


def number(kind: type, low: float, high: float = float("inf"), word: str = "") -> Callable[[str], Any]:
    """An argparse type: a number in [low, high]; or a word, which means None."""

    def parse(text: str) -> Any:
        if word and text == word:
            return None
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high or value == float("inf"):
            limit = f"of {low:g} or more" if high == float("inf") else f"from {low:g} to {high:g}"
            noun = "a whole number" if kind is int else "a number"
            other = f", or {word!r}" if word else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun} {limit}{other}")
        return value

    return parse


def widths(text: str) -> tuple[int, ...]:
    """An argparse type: "128,64", or "none" for no hidden layers."""
    return () if text == "none" else tuple(number(int, 1)(part) for part in text.split(","))


def parser(description: str, **defaults: Any) -> Parser:
    """Returns a parser with the arguments of all examples; `defaults` are those of one example."""
    result = Parser(description=description.splitlines()[0])
    add = result.add_argument
    whole = number(int, 1)
    add("--epochs", type=whole, metavar="N", help="passes over the training part")
    add("--batch-size", type=whole, metavar="N", help="rows of a batch")
    add("--seed", type=number(int, 0, 2**31), default=1, metavar="N", help="default 1")
    add("--embedding-dim", type=number(int, 1, 65536), default=16, metavar="D", help="floats of a row")
    add("--hidden", type=widths, metavar="W,W", help="widths of hidden layers, or 'none'")
    add("--dropout", type=number(float, 0, 0.99), metavar="P", help="share dropped in hidden layers")
    add("--optimizer", choices=OPTIMIZERS, help="of the tables; default: the example's")
    add("--learning-rate", type=number(float, 0), metavar="X", help="of the tables; default: the optimizer's")
    add("--dense-learning-rate", type=number(float, 0), default=0.001, metavar="X", help="Adam's")
    add("--staleness", type=number(int, 0, word="unbounded"), default=30, metavar="S",
        help="updates by others that a cached row may miss, or 'unbounded'; default 30")  # fmt: skip
    add("--cache-rows", type=number(int, 0, word="none"), default=100_000, metavar="N",
        help="rows of each table that the worker caches, or 'none'; default 100000")  # fmt: skip
    add("--checkpoint", type=Path, metavar="DIR",
        help="save a checkpoint there after every epoch; if there is one, go on from the newest")  # fmt: skip
    add("--export", type=Path, metavar="DIR",
        help="write the trained model there, with its tables, as a SavedModel; must not exist")  # fmt: skip
    result.set_defaults(**defaults)
    return result


def ranking_parser(description: str) -> Parser:
    """Returns the parser of an example that ranks, on any data set of `data.load`."""
    result = parser(description)
    result.add_argument("--data", type=_data_name, default="census", metavar="NAME", help=data.DATA)
    return result


def _data_name(text: str) -> str:
    if text.partition(":")[0] not in DEFAULTS:
        raise argparse.ArgumentTypeError(f"there is no data set {text!r}; give {data.DATA}")
    return text


def run(main: Callable[[argparse.Namespace], None], arguments: Parser) -> None:
    """Runs an example: parses its arguments, and says errors of the user in one line."""
    options = arguments.parse_args()
    for name, value in DEFAULTS.get(getattr(options, "data", "").partition(":")[0], {}).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    try:
        check_outputs(options)
        het_tf.init()
        options.dense_learning_rate *= het_tf.workers.size()  # a step has the batches of all workers
        keras.utils.set_random_seed(options.seed)
        main(options)
    except (ImportError, ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        # What a reader of data raises inside of tf.data comes wrapped, with a traceback.
        found = re.search(r"^(?:ValueError|ImportError|OSError): (.+)$", str(error), re.MULTILINE)
        if not found and isinstance(error, tf.errors.OpError):
            raise
        text = found[1] if found else (str(error).strip() or "unknown").splitlines()[0]
        print(f"{arguments.prog}: error: {text}", file=sys.stderr)
        sys.exit(2)


def check_outputs(options: argparse.Namespace) -> None:
    """Refuses before the training what could not be written after it."""
    places = {
        "--checkpoint": options.checkpoint,
        "--export": options.export and options.export.absolute().parent,
    }
    for name, place in places.items():
        if place is None:
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"{name}: {place} cannot be made: {error.strerror}; give another directory"
            ) from None
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(f"{name}: {place} cannot be written; give another directory")
    if options.export is not None and os.path.lexists(options.export):
        raise FileExistsError(f"--export: {options.export} exists; give another path, or remove it")


# --- the model's inputs and tables ----------------------------------------------------------------


def inputs(splits: data.Splits) -> dict[str, Any]:
    """Returns a `keras.Input` for each input of a data set."""
    single = {name: keras.Input((), dtype="int64", name=name) for name in (*splits.fields, *splits.crosses)}
    lists = {name: keras.Input((size,), dtype="int64", name=name) for name, size in splits.lists.items()}
    numeric = {"numeric": keras.Input((splits.numeric,), name="numeric")} if splits.numeric else {}
    return {**single, **lists, **numeric}


def row_optimizer(options: argparse.Namespace, default: Any = None) -> Any:
    """Returns the optimizer that the command line gives to tables, else the default."""
    if options.optimizer is None and options.learning_rate is None:
        return default
    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    return getattr(het_tf.optimizers, options.optimizer or "RowWiseAdagrad")(**rate)


def cache(options: argparse.Namespace) -> het_tf.Cache:
    """Returns the cache that the command line asks for."""
    return het_tf.Cache(rows=options.cache_rows, staleness=options.staleness)


def batches(splits: Any, options: argparse.Namespace, model: Any) -> tuple[Any, Any]:
    """Returns the training and the validation batches of this rank.

    Lookups begin early where tables are at a server: one that is given, or that of a job of ranks.
    """
    # The mean gradient of a last batch of a few rows varies much, and AdaGrad takes a large step by it.
    size = (
        min(options.batch_size, len(splits.train)) if hasattr(splits.train, "label") else options.batch_size
    )
    train = splits.train.batches(size, shuffle=True, seed=options.seed, drop_remainder=True)
    valid = splits.valid.batches(max(options.batch_size, 1024))
    train = het_tf.workers.shard(train)
    if het_tf.workers.size() > 1 or "HET_PS" in os.environ:
        train = het_tf.lookahead(train, model)
    return train, het_tf.workers.shard(valid, drop_remainder=False)


# --- training and its end -------------------------------------------------------------------------


def callbacks(options: argparse.Namespace) -> list[Any]:
    """Returns the callbacks of `fit`."""
    # Keras warns at the end of the first epoch of a stream whose length it did not know.
    warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
    return [het_tf.callbacks.Checkpoint(options.checkpoint, keep=3)] if options.checkpoint else []


def verbose() -> int:
    """Returns `fit`'s: a progress bar on a terminal, else a line an epoch; nothing beside rank 0."""
    return 0 if het_tf.workers.rank() else 1 if sys.stdout.isatty() else 2


def resume(model: Any, options: argparse.Namespace) -> None:
    """Restores the newest checkpoint, if there is one; the learning rate is the command line's."""
    path = options.checkpoint and het_tf.checkpoint.latest(options.checkpoint)
    if not path:
        return
    try:
        het_tf.checkpoint.restore(path, model)
    except ValueError as error:
        if "is damaged" in str(error):
            raise
        remedy = "give the arguments with which it was saved, or another directory"
        raise ValueError(f"--checkpoint: {str(error).partition(';')[0]}; {remedy}") from None
    model.optimizer.learning_rate = options.dense_learning_rate
    if not het_tf.workers.rank():
        print(f"goes on from {path}")


def finish(model: Any, options: argparse.Namespace) -> bool:
    """Sends all updates, and exports the model if that is asked for; returns whether this is rank 0."""
    het_tf.flush(all_ranks=True)  # rank 0 tests what all have learned
    if options.export is not None:
        het_tf.export(model, options.export, verbose=False)  # every rank calls it, rank 0 writes
    if het_tf.workers.rank():
        return False
    tables()
    if options.checkpoint is not None:
        print(f"checkpoint: {het_tf.checkpoint.latest(options.checkpoint)}")
    if options.export is not None:
        print(f"SavedModel: {options.export} (saved_model_cli show --all --dir {options.export} shows it)")
    return True


def tables() -> None:
    """Prints what the tables hold, and what their caches have moved."""
    for name in het_tf.tables():
        one = het_tf.Table(name).stats()
        line = f"{one['rows']:,} rows of {one['dim']:,} floats, {one['bytes'] / 2**20:,.2f} MiB"
        if "cache" in one:
            of = one["cache"]
            pushed = sum(of[f"{why}_push"] for why in ("bound", "age", "evict"))
            line += (
                f"; {of['hits'] / max(of['reads'], 1):.2%} found in the cache, {of['miss_pull']:,} pulled, "
            )
            line += f"{of['update_pull']:,} pulled again as too stale, {pushed:,} pushed"
        print(f"{one['table']}: {line}")


def report(model: Any, splits: data.Splits) -> None:
    """Prints AUC and log loss of the test rows."""
    auc, loss, rows = tested(model, splits)
    print(f"test AUC {auc:.4f}, log loss {loss:.4f} ({rows:,} rows; label: {splits.label})")


def tested(model: Any, splits: data.Splits) -> tuple[float, float, int]:
    """Returns AUC and log loss of the test rows, and their number."""
    predict = tf.function(lambda batch: model(batch, training=False), reduce_retracing=True)
    found = [(label.numpy(), predict(batch).numpy()[:, 0]) for batch, label in splits.test.batches(4096)]
    if not found:
        raise ValueError("there are no rows to test on; give more rows of data")
    label, logit = (np.concatenate(part).astype(np.float64) for part in zip(*found, strict=True))
    loss = (np.logaddexp(0.0, logit) - label * logit).mean()
    return exact_auc(label, logit), float(loss), len(label)


def exact_auc(label: np.ndarray, score: np.ndarray) -> float:
    """How often a row of label 1 scores above one of label 0, ties count half; NaN if a label is missing."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2.0)[place]
    positive = int((label > 0.5).sum())
    negative = len(label) - positive
    if not positive or not negative:
        return float("nan")
    return float((rank[label > 0.5].sum() - positive * (positive + 1) / 2) / (positive * negative))
