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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report  # isort: skip  # first: it finds the examples
import data
import keras
import numpy as np
import tensorflow as tf
import training

import het_tf
from benchmarks.accuracy.models import MODELS, logit_of, parts_of

OPTIMIZERS = ("adagrad", "sgd")
SIDES = ("het", "keras", "keras, own rows", "keras, as shipped")
OTHER_ROWS = 1 << 40  # an id: rows from it on begin with another draw
CROSS_BUCKETS = 1 << 14  # keras.layers.Embedding needs ids below a size: both sides get the same ones
LIMIT = 0.003
DIM = 16


def keras_optimizer(name: str, learning_rate: float, summed: bool) -> Any:
    """Returns Keras' optimizer; `summed`: it sees the sum of an id's gradients."""
    base = {"adagrad": keras.optimizers.Adagrad, "sgd": keras.optimizers.SGD}[name]
    if not summed:
        return base(learning_rate)

    class Summed(base):
        def update_step(self, gradient: Any, variable: Any, *rest: Any) -> None:
            super().update_step(tf.convert_to_tensor(gradient), variable, *rest)

    return Summed(learning_rate)


def looked_up(splits: data.Splits, parts: Any, inputs: dict[str, Any], seed: int, side: str) -> list[Any]:
    """Returns the rows [B, F, dim] of each part, of tables of het_tf or of layers of Keras."""
    ids, features = {}, {}
    for part in parts:
        begin = het_tf.initializers.RandomUniform(-part.scale, part.scale) if part.scale else "zeros"
        table = het_tf.TableConfig(f"compared/{part.name}", part.dim, part.optimizer, begin, seed=seed)
        ids[part.name] = keras.ops.stack([inputs[name] for name in part.single], axis=1)
        features[part.name] = het_tf.FeatureConfig(table)
        for name in part.lists:
            ids[f"{part.name}/{name}"] = inputs[name]
            features[f"{part.name}/{name}"] = het_tf.FeatureConfig(table, "mean", padding_id=data.PADDING)
    embed = het_tf.keras.EmbeddingCollection(features)
    found = embed(ids) if side == "het" else {}
    size = 1 + max(int(column.max()) for name, column in splits.train.columns.items() if name != "numeric")
    size = max(size, 1 + max(int(splits.test.columns[name].max()) for name in inputs if name != "numeric"))
    for part in parts if side != "het" else ():
        layer = keras.layers.Embedding(size, part.dim)
        layer.build((None,))
        first = OTHER_ROWS if side == "keras, own rows" else 0
        table = het_tf.Table(f"compared/{part.name}")
        layer.embeddings.assign(table.lookup(np.arange(first, first + size)))
        found[part.name] = layer(ids[part.name])
        for name in part.lists:
            real = keras.ops.cast(keras.ops.not_equal(inputs[name], data.PADDING), "float32")[..., None]
            total = keras.ops.sum(layer(keras.ops.maximum(inputs[name], 0)) * real, axis=1)
            found[f"{part.name}/{name}"] = total / keras.ops.maximum(keras.ops.sum(real, axis=1), 1.0)
    return [
        keras.ops.concatenate(
            [found[part.name], *(found[f"{part.name}/{name}"][:, None] for name in part.lists)], axis=1
        )
        for part in parts
    ]


def run(model_name: str, side: str, seed: int, splits: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Trains one model; returns AUC and log loss on validation, epoch by epoch, and on test."""
    keras.backend.clear_session()
    het_tf.reset()
    keras.utils.set_random_seed(seed)
    adagrad = het_tf.optimizers.Adagrad(options.learning_rate, initial_accumulator=0.1, epsilon=1e-7)
    table_optimizer = {"adagrad": adagrad, "sgd": het_tf.optimizers.SGD(options.learning_rate)}
    parts = parts_of(model_name, splits, DIM)
    parts = [
        type(part)(
            part.name, part.dim, part.single, part.lists, part.scale, table_optimizer[options.optimizer]
        )
        for part in parts
    ]
    inputs = training.inputs(splits)
    rows = looked_up(splits, parts, inputs, seed, side)
    keras.utils.set_random_seed(seed)  # the dense weights begin alike
    logit = logit_of(model_name, rows, inputs.get("numeric"), options.hidden, options.dropout)
    model = keras.Model(inputs, logit)
    model.compile(
        keras_optimizer(options.optimizer, options.learning_rate, side != "keras, as shipped"),
        keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.AUC(num_thresholds=2000, from_logits=True, name="auc")],
    )
    history = model.fit(
        splits.train.batches(options.batch_size, shuffle=True, seed=seed, drop_remainder=True),
        validation_data=splits.valid.batches(4096),
        epochs=options.epochs,
        shuffle=False,
        verbose=0,
    ).history
    auc, loss, _ = training.tested(model, splits)
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


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments, with the defaults of the data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", choices=("census", "movielens"), default="census")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--seeds", nargs="+", type=int, default=[1, 2, 3])
    add("--optimizer", choices=OPTIMIZERS, default="adagrad")
    add("--learning-rate", type=float, metavar="X", help="default 0.1 (adagrad), 0.5 (sgd)")
    add("--epochs", type=int, metavar="N", help="default: 12 (census), 5 (movielens)")
    add("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args(argv)
    for name in ("batch_size", "hidden", "dropout"):
        setattr(options, name, training.DEFAULTS[options.data][name])
    options.learning_rate = options.learning_rate or {"adagrad": 0.1, "sgd": 0.5}[options.optimizer]
    options.epochs = options.epochs or {"census": 12, "movielens": 5}[options.data]
    return options


def main() -> None:
    """Runs everything, prints a table, writes JSON."""
    options = parse()
    splits = data.load(options.data, cross_buckets=CROSS_BUCKETS)
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
    names = ("data", "optimizer", "learning_rate", "epochs", "batch_size", "hidden", "dropout")
    settings = {name: getattr(options, name) for name in names}
    settings |= {"embedding_dim": DIM, "cross_buckets": CROSS_BUCKETS}
    document = json.loads(options.out.read_text()) if options.out.exists() else {}
    document |= {"command": "python benchmarks/compare_with_keras/run.py"}
    document |= {"versions": report.versions(tf, tf.keras, np)}
    document[options.data] = {"summary": summary, "settings": settings, "runs": runs}
    document["goals"] = goals(document)
    report.finish(document, options.out, __file__)


def goals(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What the means must keep to; and on Census every seed."""
    found = []
    for name in ("census", "movielens"):
        of = document.get(name, {"summary": {}, "runs": []})
        for model, means in of["summary"].items():
            for side, gap in means["het_minus"].items():
                found.append(report.goal(f"{name}, {model}: AUC off from {side}", abs(gap), "<=", LIMIT))
        own = [run for run in of["runs"] if run["side"] == "het"] if name == "census" else []
        for model in dict.fromkeys(run["model"] for run in own):
            least = min(run["test_auc"] for run in own if run["model"] == model)
            found.append(report.goal(f"{name}, {model}: least AUC of a seed", least, ">=", 0.9))
    return found


if __name__ == "__main__":
    main()
