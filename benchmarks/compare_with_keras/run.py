"""Do tables of het_tf learn what keras.layers.Embedding learns?

    python benchmarks/compare_with_keras/run.py --data census

The same models, data, order, seeds, optimizer and learning rate; only the embedding side differs. One
optimizer trains everything: rows, wide weights and dense weights.

    het                 tables of het_tf
    keras               keras.layers.Embedding, which begins with the same rows
    keras, own rows     its rows are its own draw from the same distribution: shows what luck does
    keras, as shipped   the same, and with Keras' own treatment of ids that occur several times in a batch

het_tf applies the sum of an id's gradients once, and so does Keras 2. Keras 3 gives AdaGrad the occurrences
one by one and accumulates the sum of their squares in place of the square of their sum: another optimizer.
All but the last sum them (the gradient is made dense; rows with a gradient of 0 do not move under AdaGrad or
SGD). For SGD the two are one. AdaGrad begins at Keras' accumulator, 0.1, on both sides;
benchmarks/defaults compares the default optimizer with what a user of Keras writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "tests/lib")]

import arguments
import common

from benchmarks import report

MODELS = {"wide_deep": "WideDeep", "deepfm": "DeepFM", "dcn": "DCNv2"}
OPTIMIZERS = ("adagrad", "sgd")
SIDES = ("het", "keras", "keras, own rows", "keras, as shipped")
OTHER_ROWS = 1 << 40  # an id: rows from it on begin with another draw
CROSS_BUCKETS = 1 << 14  # keras.layers.Embedding needs ids below a size: both sides get the same ones
LIMIT = 0.003


def keras_optimizer(name: str, learning_rate: float, summed: bool) -> Any:
    """Returns Keras' optimizer; `summed`: it sees the sum of an id's gradients."""
    import tensorflow as tf

    base = {"adagrad": tf.keras.optimizers.Adagrad, "sgd": tf.keras.optimizers.SGD}[name]
    if not summed:
        return base(learning_rate)

    class Summed(base):
        def update_step(self, gradient: Any, variable: Any, *rest: Any) -> None:
            super().update_step(tf.convert_to_tensor(gradient), variable, *rest)

    return Summed(learning_rate)


def run(model_name: str, side: str, seed: int, splits: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Trains one model; returns AUC and log loss on validation, epoch by epoch, and on test."""
    import tensorflow as tf
    from keras_twin import to_keras
    from report import evaluate

    import het_tf

    tf.keras.backend.clear_session()
    het_tf.reset()
    tf.keras.utils.set_random_seed(seed)
    like_keras = {"initial_accumulator": 0.1, "epsilon": 1e-7} if options.optimizer == "adagrad" else {}
    table_optimizer = het_tf.optimizers.get(
        {"name": options.optimizer, "learning_rate": options.learning_rate, **like_keras}
    )
    model = getattr(het_tf.models, MODELS[model_name])(
        splits.description,
        embedding_dim=options.embedding_dim,
        hidden_units=options.hidden,
        dropout=options.dropout,
        table_optimizer=table_optimizer,
        linear_optimizer=table_optimizer,
        seed=seed,
    )
    if side != "het":
        to_keras(model, first=OTHER_ROWS if side == "keras, own rows" else 0)
    model.adapt(splits.train)
    common.compile_model(
        model, keras_optimizer(options.optimizer, options.learning_rate, side != "keras, as shipped")
    )
    history = model.fit(
        splits.train.to_tf(options.batch_size, shuffle=True, seed=seed, drop_remainder=True),
        validation_data=splits.valid.to_tf(4096),
        epochs=options.epochs,
        shuffle=False,
        verbose=0,
    ).history
    ((auc, loss),), _ = evaluate(model, splits.test, 4096)
    return {
        "model": model_name,
        "side": side,
        "seed": seed,
        "test_auc": auc,
        "test_log_loss": loss,
        "valid_auc": [round(value, 5) for value in history["val_auc"]],
        "valid_log_loss": [round(value, 5) for value in history["val_loss"]],
    }


def standard_error(differences: np.ndarray) -> float:
    """Returns that of the mean of the seeds' differences; NaN for one seed."""
    return float(np.std(differences, ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else np.nan


def parser() -> arguments.Parser:
    """The arguments."""
    result = arguments.Parser(
        description="Compares tables of het_tf with keras.layers.Embedding: the same models and optimizer.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
    )
    whole, positive = arguments.number(int, 1), arguments.number(float, 0)
    add = result.add_argument
    add("--data", choices=("census", "movielens"), default="census", help="default census")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default all")
    add("--seeds", nargs="+", type=arguments.number(int, 0, 2**31), default=[1, 2, 3], help="default 1 2 3")
    add("--optimizer", choices=OPTIMIZERS, default="adagrad", help="default adagrad")
    add("--learning-rate", type=positive, metavar="X", help="default 0.1 (adagrad), 0.5 (sgd)")
    add("--epochs", type=whole, metavar="N", help="default: 12 (census), 5 (movielens)")
    add("--batch-size", type=whole, metavar="N", help="default by data set")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path(__file__).with_name("result.json"),
        help="the JSON file",
    )
    return result


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments, with the defaults of the data set."""
    options = parser().parse_args(argv)
    defaults = arguments.DEFAULTS[options.data]
    for name in ("batch_size", "embedding_dim", "hidden", "dropout"):
        if getattr(options, name, None) is None:
            setattr(options, name, getattr(defaults, name))
    options.learning_rate = options.learning_rate or {"adagrad": 0.1, "sgd": 0.5}[options.optimizer]
    options.epochs = options.epochs or {"census": 12, "movielens": 5}[options.data]
    return options


def main() -> None:
    """Runs everything, prints a table, writes JSON."""
    options = parse()
    try:
        import tensorflow as tf

        import het_tf

        splits = het_tf.data.load(options.data, cross_buckets=CROSS_BUCKETS)
    except (ImportError, RuntimeError, ValueError) as error:
        common.fail(parser(), str(error))

    sides = SIDES if options.optimizer != "sgd" else SIDES[:3]
    runs: list[dict[str, Any]] = []
    for model in options.models:
        for side in sides:
            for seed in options.seeds:
                runs.append(run(model, side, seed, splits, options))
                print(f"{model}, {side}, seed {seed}: test AUC {runs[-1]['test_auc']:.4f}", file=sys.stderr)

    summary: dict[str, Any] = {}
    for model in options.models:
        auc = {
            side: np.array([one["test_auc"] for one in runs if (one["model"], one["side"]) == (model, side)])
            for side in sides
        }
        gaps = {side: auc["het"] - auc[side] for side in sides[1:]}  # seed by seed
        summary[model] = {
            "mean_test_auc": {side: round(float(of_side.mean()), 5) for side, of_side in auc.items()},
            "het_minus": {side: round(float(gap.mean()), 5) for side, gap in gaps.items()},
            "standard_error": {side: round(standard_error(gap), 5) for side, gap in gaps.items()},
        }
    names = (
        "data",
        "optimizer",
        "learning_rate",
        "epochs",
        "batch_size",
        "embedding_dim",
        "hidden",
        "dropout",
    )
    settings = {name: getattr(options, name) for name in names} | {"cross_buckets": CROSS_BUCKETS}
    document = json.loads(options.out.read_text()) if options.out.exists() else {}
    document |= {"command": "python benchmarks/compare_with_keras/run.py"}
    document |= {"versions": report.versions(tf, tf.keras, np)}
    document[options.data] = {"summary": summary, "settings": settings, "runs": runs}
    document["goals"] = goals(document)
    report.finish(document, options.out, __file__)


def goals(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What the means must keep to; and on Census every seed."""
    found = []
    for data in ("census", "movielens"):
        of = document.get(data, {"summary": {}, "runs": []})
        for model, means in of["summary"].items():
            for side, gap in means["het_minus"].items():
                found.append(report.goal(f"{data}, {model}: AUC off from {side}", abs(gap), "<=", LIMIT))
        own = [run for run in of["runs"] if run["side"] == "het"] if data == "census" else []
        for model in dict.fromkeys(run["model"] for run in own):
            least = min(run["test_auc"] for run in own if run["model"] == model)
            found.append(report.goal(f"{data}, {model}: least AUC of a seed", least, ">=", 0.9))
    return found


if __name__ == "__main__":
    main()
