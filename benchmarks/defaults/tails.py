"""Do tables learn rare rows: pairs with a long tail, in models that a user writes.

    python benchmarks/defaults/tails.py [--data NAME ...] [--models NAME ...] [--rules NAME ...]

keras       keras.layers.Embedding and Adam for all that is trained, at each of two rates.
het         Tables of het_tf with the rule of the column, Adam(0.001) for the rest.
Models: "mlp" is two rows of 16 floats and one hidden layer of 64, "mf" their product and a bias of each.
Passes: five, each in another order; one for data in the order of time. Data: pairs.py.

A run replaces the same one in the file of results; the others stay, so a run may be stopped and go on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # before TensorFlow

import numpy as np
import tensorflow as tf

import het_tf
from benchmarks import report
from benchmarks.accuracy.sets import auc
from benchmarks.defaults.pairs import HELD_BACK, LABELLED, Part, make_pairs

keras: Any = tf.keras
OUT = Path(__file__).with_name("tails.json")
DATA = ("packages", "genes", "movies", "interests", *HELD_BACK, LABELLED)
MODELS = ("mlp", "mf")
BATCHES = (256, 4096)
PASSES = 5
DIM, HIDDEN = 16, 64
RULES: dict[str, Callable[[], Any] | float] = {
    "keras Adam(0.001)": 0.001,
    "keras Adam(0.003)": 0.003,
    "nothing given": lambda: het_tf.python.table.optimizers.get(None),
    **{
        f"{kind}({rate}, decay_steps={steps})": lambda kind=kind, rate=rate, steps=steps: getattr(
            het_tf.optimizers, kind
        )(rate, decay_steps=steps)
        for kind, rate, steps in (
            ("RowWiseAdagrad", 0.05, 1),
            ("RowWiseAdagrad", 0.1, 1),
            ("RowWiseAdagrad", 0.02, 10),
            ("RowWiseAdagrad", 0.02, 30),
            ("RowWiseAdagrad", 0.01, 1e9),
        )
    },
}


def make_model(name: str, rule: str, sizes: tuple[int, int]) -> Any:
    """Returns the compiled model of two ids."""
    made = RULES[rule]

    def rows(size: int, dim: int) -> Any:
        if callable(made):
            return het_tf.keras.Embedding(dim, optimizer=made())
        return keras.layers.Embedding(size, dim)

    inputs = [keras.Input((), dtype="int64", name=side) for side in ("who", "what")]
    vectors = [rows(size, DIM)(ids) for size, ids in zip(sizes, inputs, strict=True)]
    if name == "mlp":
        hidden = keras.layers.Dense(HIDDEN, activation="relu")(keras.layers.Concatenate()(vectors))
        logit = keras.layers.Dense(1)(hidden)
    else:
        biases = [rows(size, 1)(ids) for size, ids in zip(sizes, inputs, strict=True)]
        logit = keras.layers.Add()([keras.layers.Dot(1)(vectors), *biases])
    model = keras.Model(inputs, logit)
    rate = 0.001 if callable(made) else made
    model.compile(keras.optimizers.Adam(rate), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def run(data: str, name: str, rule: str, batch: int, seed: int) -> list[float]:
    """Returns the test AUC after each pass."""
    keras.backend.clear_session()
    het_tf.reset()
    keras.utils.set_random_seed(seed)
    pairs = make_pairs(data, seed)
    model = make_model(name, rule, pairs.sizes)

    def ids(part: Part) -> list[Any]:
        return [part.who, part.what]

    found = []
    for number in range(1 if pairs.in_order else PASSES):
        order = np.arange(len(pairs.train.label))
        if not pairs.in_order:  # fit shuffles every pass alike after set_random_seed
            np.random.default_rng(seed * 1000 + number).shuffle(order)
        shuffled = Part(pairs.train.who[order], pairs.train.what[order], pairs.train.label[order])
        model.fit(ids(shuffled), shuffled.label, batch_size=batch, shuffle=False, verbose=0)
        logits = model.predict(ids(pairs.test), batch_size=16384, verbose=0)[:, 0]
        found.append(float(auc(pairs.test.label, logits)))
    return found


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns for each case and rule the means over seeds of the first and of the best pass."""
    cases: dict[tuple[Any, ...], list[list[float]]] = {}
    for one in runs:
        key = (one["data"], one["model"], one["batch"], one["rule"])
        cases.setdefault(key, []).append(one["values"])
    return [
        {
            **dict(zip(("data", "model", "batch", "rule"), key, strict=True)),
            "seeds": len(values),
            "first": fmean(one[0] for one in values),
            "best": fmean(max(one) for one in values),
        }
        for key, values in sorted(cases.items())
    ]


def ahead(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns how far the default is ahead of two rules on the held-back pairs, each in its best pass."""
    found = []
    best = {(one["data"], one["batch"], one["rule"]): one["best"] for one in of if one["model"] == "mlp"}
    for name, rule in (("keras", "keras Adam(0.001)"), ("before", "RowWiseAdagrad(0.05, decay_steps=1)")):
        cells = {
            (data, batch): best[data, batch, "nothing given"] - best[data, batch, rule]
            for data in HELD_BACK
            for batch in BATCHES
            if {(data, batch, rule), (data, batch, "nothing given")} <= set(best)
        }
        for batches in (BATCHES, *((batch,) for batch in BATCHES)):
            values = [value for (_, batch), value in cells.items() if batch in batches]
            if values:
                of_batch = "all" if batches == BATCHES else batches[0]
                figures = {"cells": len(values), "mean": fmean(values), "least": min(values)}
                found.append({"of": name, "batch": of_batch, **figures})
    return found


def save(path: Path, one: dict[str, Any]) -> None:
    """Puts a run into the file, in the place of the same one."""
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    names = ("data", "model", "batch", "rule", "seed")
    runs = [each for each in runs if any(each[name] != one[name] for name in names)]
    runs = sorted([*runs, one], key=lambda each: json.dumps([each[name] for name in names]))
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
    document = {"command": "python benchmarks/defaults/tails.py", "versions": versions, "runs": runs}
    cases = summary(runs)
    report.write({**document, "summary": cases, "held_back": ahead(cases)}, path)


def main() -> None:
    """Runs what is asked for, and writes each run when it is done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    for seed in options.seeds:
        for data in options.data:
            for name in options.models:
                for batch in options.batches:
                    for rule in options.rules:
                        values = run(data, name, rule, batch, seed)
                        print(
                            data, name, batch, rule, seed, *(f"{value:.4f}" for value in values), flush=True
                        )
                        case = {"data": data, "model": name, "batch": batch, "rule": rule, "seed": seed}
                        save(options.out, {**case, "values": [round(value, 5) for value in values]})


if __name__ == "__main__":
    main()
