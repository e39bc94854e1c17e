"""Do tables learn, with no argument given, what keras.layers.Embedding learns in a model that a user writes?

    make benchmark-tools                     # with build/release/libhet_fleet.so
    python benchmarks/defaults/run.py [--data NAME ...] [--models NAME ...] [--seeds N ...]

keras       keras.layers.Embedding for every table, and Adam(0.001) for all that is trained.
het         Tables of het_tf with the optimizers that they have by default, Adam(0.001) for the rest: in one
            process, and by eight workers in lock-step at staleness 0 whose batches make up the same batch.
Both have the same passes and batches. Models of the examples begin with the same dense weights on both
sides, and Keras' tables have a row for each id.
"user_item" is two rows of 8 floats a sample and one hidden layer;

A run replaces the same one in the file of results; the others stay, so a run may be stopped and go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.accuracy import run as accuracy  # isort: skip  # first: it sets threads

import numpy as np
import tensorflow as tf
from data import load

import het_tf
from benchmarks import report
from benchmarks.accuracy.models import MODELS, Dense, parts_of

keras: Any = tf.keras
data_of = accuracy.data_of
OUT = Path(__file__).with_name("result.json")
SIDES = (("keras", 1), ("het", 1), ("het", 8))
BATCHES = (128, 1024, 4096, 16384)
PART = dataclasses.replace(accuracy.CRITEO, train_rows=1 << 16, test_rows=1 << 17, cache=1.0)
# data: passes, models
TASKS: dict[str, tuple[int, tuple[str, ...]]] = {
    "movielens": (4, ("user_item", "deepfm", "dcn")),
    "census": (7, ("wide_deep", "deepfm", "dcn")),
    "criteo_like": (1, ("dcn", "deepfm", "wide_deep")),
}


# --- models of the examples ---------------------------------------------------------------------------------


class ClickTask:
    """A model of an example on the rows of one seed."""

    def __init__(self, data: str, model: str, seed: int) -> None:
        limited = (PART.train_rows, PART.test_rows) if data == "criteo_like" else (None, None)
        self.ids = accuracy.Ids(data_of.make_data(data, seed, *limited))
        splits = self.ids.data.splits
        self.dense = Dense(model, splits, PART)
        self.dense.parts = parts_of(model, splits, PART.dim)  # with the default optimizers
        self.seed = seed

    def run(self, side: str, workers: int, batch: int, passes: int) -> list[float]:
        """Returns the test AUC after each pass."""
        self.dense.reset(self.seed)
        order = data_of.epochs_order(len(self.ids.data.train.label), passes, batch, self.seed)
        trained = self.keras(order, passes) if side == "keras" else self.het(order, passes, workers)
        return [data_of.auc(self.ids.data.test.label, logits) for logits in trained]

    def het(self, order: Any, passes: int, workers: int) -> Iterator[Any]:
        """Trains with tables of het_tf; yields the test rows' logits after each pass."""
        fleet = accuracy.make_fleet(self.dense, PART, self.ids, workers, self.seed, accuracy.Run("0"))
        for of_pass in np.split(order, passes):
            accuracy.train(self.dense, fleet, self.ids, of_pass, accuracy.Run("0"))
            fleet.flush()
            yield accuracy.evaluate(self.dense, fleet, self.ids)
        fleet.close()

    def keras(self, order: Any, passes: int) -> Iterator[Any]:
        """The same with Keras' layers under Adam, one process."""
        train, test, dense = self.ids.data.train, self.ids.data.test, self.dense
        layers, of_feature, numbers = [], [], []
        for part in dense.parts:
            columns = zip(self.ids.train(part)[0], data_of.part_ids(part, test), strict=True)
            distinct, numbered = data_of.number_ids([np.concatenate(both) for both in columns])
            begin = "uniform" if part.scale else "zeros"
            layers.append(keras.layers.Embedding(len(distinct), part.dim, embeddings_initializer=begin))
            layers[-1].build(None)
            of_feature += [layers[-1]] * len(numbered)
            numbers += numbered
        rows = len(train.label)
        weights = dense._weights + [layer.embeddings for layer in layers]
        optimizer = keras.optimizers.Adam(0.001)

        @tf.function(jit_compile=True)
        def step(ids: Any, numeric: Any, lengths: Any, label: Any) -> None:
            with tf.GradientTape() as tape:
                found = []
                for layer, one in zip(of_feature, ids, strict=True):
                    real = tf.cast(one < layer.input_dim, tf.float32)  # others are padding
                    found.append(layer(tf.minimum(one, layer.input_dim - 1)) * real[..., None])
                logits = dense._call(found, numeric, lengths, True)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
            gradients = [tf.convert_to_tensor(one) for one in tape.gradient(loss, weights)]
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

        optimizer.build(weights)
        for of_pass in np.split(order, passes):
            for at in of_pass:
                step([one[at] for one in numbers], train.numeric[at], train.lengths[at], train.label[at])
            tables = [layer.embeddings.numpy() for layer in layers]
            yield dense.predict(tables, [one[rows:] for one in numbers], test.numeric, test.lengths)


# --- models that a user writes ------------------------------------------------------------------------------


class UserItem:
    """Rows of a user and of a film, one hidden layer."""

    def __init__(self, data: str, model: str, seed: int) -> None:
        splits = load(data)
        self.train, self.test = splits.train, splits.test
        self.seed = seed

    def run(self, side: str, workers: int, batch: int, passes: int) -> list[float]:
        """Returns the test AUC after each pass."""
        made = keras.layers.Embedding if side == "keras" else het_tf.keras.Embedding
        sizes = {"user": (3000, 8), "item": (3000, 8)} if side == "keras" else {"user": (8,), "item": (8,)}
        return self.trained({name: made(*size) for name, size in sizes.items()}, batch, passes)

    def trained(self, layers: dict[str, Any], batch: int, passes: int) -> list[float]:
        """The test AUC after each pass of the model with these layers."""
        inputs = {name: keras.Input((), dtype="int64", name=name) for name in ("user", "item")}
        rows = [layers[name](ids) for name, ids in inputs.items()]
        x = keras.layers.Dense(32, activation="relu")(keras.layers.Concatenate()(rows))
        model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))
        model.compile("adam", "binary_crossentropy")
        ids, test = ({name: part.columns[name] for name in inputs} for part in (self.train, self.test))
        aucs = []
        for _ in range(passes):
            model.fit(ids, self.train.label, batch_size=batch, verbose=0)
            aucs.append(data_of.auc(self.test.label, model.predict(test, 16384, verbose=0)[:, 0]))
        return aucs


CURVES: dict[str, tuple[float, ...]] = {
    "RowWiseAdagrad": (0.002, 0.01, 0.02, 0.05, 0.1, 0.3),
    "RowWiseAdagrad, decay_steps=1": (0.01, 0.02, 0.05, 0.1, 0.3),
    "Adagrad": (0.01, 0.05, 0.1),
    "FTRL": (0.01, 0.05, 0.2),
    "Adam": (0.001, 0.003, 0.01, 0.03),
    "RMSprop": (0.001, 0.003, 0.01),
    "SGD": (0.1, 1.0, 10.0, 100.0),
}
WIDTHS = (2, 4, 8, 16, 64)


def curves(path: Path, seed: int) -> None:
    """The user-item model at a batch of 2,048 with each optimizer and rate, and the default at each width."""
    task = UserItem("movielens", "user_item", seed)

    def measure(what: str, rate: float, dim: int, make: Callable[[], Any]) -> None:
        keras.backend.clear_session()
        het_tf.reset()
        keras.utils.set_random_seed(seed)
        values = task.trained({name: make() for name in ("user", "item")}, 2048, 4)
        run = {"data": "curves", "model": what, "rate": rate, "dim": dim, "seed": seed}
        print(*run.values(), " ".join(f"{value:.4f}" for value in values), flush=True)
        save(path, {**run, "values": values})

    measure("keras", 0.001, 8, lambda: keras.layers.Embedding(3000, 8))
    for what, rates in CURVES.items():
        name, _, steps = what.partition(", decay_steps=")
        more = {"decay_steps": float(steps)} if steps else {}
        for rate in rates:
            optimizer = type(het_tf.python.table.optimizers.get(name))(rate, **more)
            measure(what, rate, 8, lambda optimizer=optimizer: het_tf.keras.Embedding(8, optimizer=optimizer))
    for dim in WIDTHS:
        measure("width", 0.02, dim, lambda dim=dim: het_tf.keras.Embedding(dim))


OWN: dict[str, Callable[..., Any]] = {"user_item": UserItem}


def main() -> None:
    """Runs what is asked for, and writes each run when it is done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--models", nargs="+", choices=[*MODELS, *OWN], default=[*MODELS, *OWN])
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--sides", nargs="+", choices=("keras", "het"), default=("keras", "het"))
    parser.add_argument("--curves", action="store_true", help="those of docs/optimizers.md, and no more")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    for seed in options.seeds:
        if options.curves:
            curves(options.out, seed)
            continue
        for data in options.data:
            passes, models = TASKS[data]
            for name in models:
                if name in options.models:
                    run_task(options, data, name, seed, passes)


def run_task(options: argparse.Namespace, data: str, name: str, seed: int, passes: int) -> None:
    """Each side of one model, at each batch."""
    task = OWN.get(name, ClickTask)(data, name, seed)
    for batch in options.batches:
        for side, workers in SIDES if name not in OWN else SIDES[:2]:
            if side not in options.sides:
                continue
            keras.backend.clear_session()
            het_tf.reset()
            keras.utils.set_random_seed(seed)
            values = task.run(side, workers, batch, passes)
            run = {
                "data": data,
                "model": name,
                "batch": batch,
                "side": side,
                "workers": workers,
                "seed": seed,
            }
            print(*run.values(), " ".join(f"{value:.4f}" for value in values), flush=True)
            save(options.out, {**run, "values": [round(value, 5) for value in values]})


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns for each data set, model and batch the means of the best passes, and the gaps to the twins."""
    found = []
    cases = sorted({(run["data"], run["model"], run["batch"]) for run in runs if run["data"] != "curves"})
    for data, model, batch in cases:
        own = [run for run in runs if (run["data"], run["model"], run.get("batch")) == (data, model, batch)]
        best = {
            side: {run["seed"]: max(run["values"]) for run in own if (run["side"], run["workers"]) == side}
            for side in SIDES
        }
        twin = best[SIDES[0]]
        if not twin:
            continue
        one = {
            "data": data,
            "model": model,
            "batch": batch,
            "seeds": len(twin),
            "keras": fmean(twin.values()),
        }
        for name, side in (("het", SIDES[1]), ("eight", SIDES[2])):
            if best[side] and best[side].keys() <= twin.keys():
                one[name] = fmean(best[side].values())
                one[f"{name}_gap"] = fmean(value - twin[seed] for seed, value in best[side].items())
        found.append(one)
    return found


def save(path: Path, run: dict[str, Any]) -> None:
    """Puts a run into the file, in the place of the same one."""

    def key(one: dict[str, Any]) -> str:
        return json.dumps([value for name, value in one.items() if name != "values"])

    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    runs = sorted([*(one for one in runs if key(one) != key(run)), run], key=key)
    versions = {"tensorflow": tf.__version__, "keras": getattr(keras, "__version__", "")}
    document = {"command": "python benchmarks/defaults/run.py", "versions": versions, "runs": runs}
    document["summary"] = summary(runs)
    report.write(document, path)


if __name__ == "__main__":
    main()
