"""The command line of the examples. Imports no TensorFlow: that takes seconds, and --help should not."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

TABLE_OPTIMIZERS = ("sgd", "rmsprop", "adam", "adagrad", "row_wise_adagrad", "ftrl")
DENSE_OPTIMIZERS = ("adam", "adagrad", "sgd", "rmsprop")
DATA = "census, movielens, criteo_like, criteo_like:ROWS, or criteo:PATH (Criteo's train.txt or a .gz of it)"


@dataclasses.dataclass(frozen=True)
class Defaults:
    """Hyper-parameters of a data set: of census and movielens chosen on validation, of Criteo untuned."""

    epochs: int
    batch_size: int
    embedding_dim: int
    hidden: tuple[int, ...]
    dropout: float
    dense_learning_rate: float = 0.001


DEFAULTS = {
    "census": Defaults(7, 128, 16, (128, 64), 0.2),
    "movielens": Defaults(3, 256, 16, (128, 64), 0.3),
    "criteo_like": Defaults(1, 512, 16, (256, 128), 0.0),
    "criteo": Defaults(1, 2048, 16, (400, 400, 400), 0.0),
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Prints `message` and exits with 2."""
        print(f"{self.prog}: error: {message} (--help lists the arguments)", file=sys.stderr)
        sys.exit(2)


def number(
    kind: Callable[[str], Any], low: float, high: float = float("inf"), what: str = ""
) -> Callable[[str], Any]:
    """An argparse type: a number in [low, high]."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high or value == float("inf"):
            limit = f"from {low:g} to {high:g}" if high != float("inf") else f"of {low:g} or more"
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun} {limit}{what}")
        return value

    return parse


def number_or_none(word: str) -> Callable[[str], int | None]:
    """An argparse type: a whole number of 0 or more, or a word that means None."""

    def parse(text: str) -> int | None:
        return None if text == word else int(number(int, 0, what=f", or '{word}'")(text))

    return parse


def widths(text: str) -> tuple[int, ...]:
    """An argparse type: "128,64", or "none" for no hidden layers."""
    return (
        ()
        if text == "none"
        else tuple(number(int, 1, what=" (as in 128,64)")(part) for part in text.split(","))
    )


def data_name(text: str) -> str:
    """An argparse type: a data set whose kind is known; het_tf.data checks the rest."""
    if text.partition(":")[0] not in DEFAULTS:
        raise argparse.ArgumentTypeError(f"there is no data set {text!r}; give {DATA}")
    return text


def parser(description: str) -> Parser:
    """Returns a parser with the arguments that all examples have."""
    result = Parser(
        description=description,
        epilog="Census and movielens defaults were chosen on validation parts; those for Criteo are untuned.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
    )
    data = result.add_argument_group("data")
    data.add_argument(
        "--data", type=data_name, default="census", metavar="NAME", help=f"{DATA}; default census"
    )
    data.add_argument(
        "--batch-size", type=number(int, 1), metavar="N", help="rows of a batch; default by data set"
    )
    data.add_argument(
        "--epochs",
        type=number(int, 1),
        metavar="N",
        help="passes over the training part; default by data set",
    )
    data.add_argument(
        "--seed",
        type=number(int, 0, 2**31),
        default=1,
        metavar="N",
        help="of rows, weights and shuffling; default 1",
    )

    model = result.add_argument_group("model")
    model.add_argument(
        "--embedding-dim", type=number(int, 1, 65536), metavar="D", help="floats of a row; default 16"
    )
    model.add_argument(
        "--hidden",
        type=widths,
        metavar="W,W",
        help="widths of the hidden layers, or 'none'; default by data set",
    )
    model.add_argument(
        "--dropout",
        type=number(float, 0, 0.99),
        metavar="P",
        help="share dropped in hidden layers; default by data set",
    )

    tables = result.add_argument_group("embedding tables")
    tables.add_argument(
        "--optimizer",
        choices=TABLE_OPTIMIZERS,
        metavar="NAME",
        help=f"of the tables: {', '.join(TABLE_OPTIMIZERS)}; default: the model's, mostly row_wise_adagrad",
    )
    tables.add_argument(
        "--learning-rate", type=number(float, 0), metavar="X", help="of the tables; default: the optimizer's"
    )
    tables.add_argument(
        "--staleness",
        type=number_or_none("unbounded"),
        default=30,
        metavar="S",
        help="how many updates by others a cached row may miss, and how many own ones may be unsent, "
        "or 'unbounded'; default 30, and fewer for the rows with the most updates",
    )
    tables.add_argument(
        "--cache-rows",
        type=number_or_none("none"),
        default=100_000,
        metavar="N",
        help="rows of each table that the worker caches, or 'none' to read tables directly; default 100000",
    )

    dense = result.add_argument_group("dense weights")
    dense.add_argument("--dense-optimizer", choices=DENSE_OPTIMIZERS, default="adam", help="default adam")
    dense.add_argument("--dense-learning-rate", type=number(float, 0), metavar="X", help="default 0.001")

    output = result.add_argument_group("output")
    output.add_argument(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="write TensorBoard logs there, for example runs/wide_deep; default none",
    )
    output.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="save a checkpoint there after every epoch; if there is one, go on from the newest",
    )
    output.add_argument(
        "--export",
        type=Path,
        metavar="DIR",
        help="write the trained model there, with its tables, as a SavedModel; must not exist",
    )
    return result


def parse(arguments: Parser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line and fills in the defaults of the data set."""
    options = arguments.parse_args(argv)
    for name, value in dataclasses.asdict(DEFAULTS[options.data.partition(":")[0]]).items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    return options
