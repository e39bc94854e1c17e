"""Do the models of het_tf.models learn what their Keras twins learn, and what does a step cost?

    python benchmarks/models/run.py [quality] [cpu] [retrieval] [--seeds 1 2 3] [--models NAME ...]

quality     Each model is trained twice on real data: with tables of het_tf, and with keras.layers.Embedding.
            Both begin with the same rows and weights, see the same batches, and AdaGrad of one rate trains
            all of either. (Keras 3 gives AdaGrad the occurrences of an id one by one; the twin is given
            their sum, as Keras 2 does and het_tf. What Keras ships is another optimizer.) The twin is trained
            until passes no longer raise its metric on the validation part, the other for as many passes.
            Then two more, each trained until its own metric no longer rises: the model with nothing given,
            and its twin as a user writes it, with Adam(0.001) for all.
cpu         CPU time of a training step, of all threads, in turns: tables of MovieLens' size, and of 1e7 rows
            in all (users and items; SASRec has items alone). The twin is what Keras ships.
retrieval   Two towers on pairs of papers and genes: recall@100 among 46,898 genes with the logQ correction
            and without, its twin, and how long the index and a search take. AdaGrad trains the rows of
            either side, of summed gradients as above, and Adam the towers.

A run replaces the same one in the file of results (of its model, side and seed); the others stay.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples"), str(ROOT / "tests/lib")]

import numpy as np
import tensorflow as tf
from keras_twin import sides_of, to_keras
from models_lib import twins
from report import exact_auc

import het_tf
from benchmarks import report as reports
from benchmarks.compare_with_keras.run import keras_optimizer
from benchmarks.models.cost import HUGE, RATE, SIDES, step_cost, synthetic
from het_tf.data import Description

# model: data set, arguments of load, passes at most, rows of a batch, arguments of the model
TASKS: dict[str, tuple[str, dict[str, Any], int, int, dict[str, Any]]] = {
    "DLRM": ("census", {}, 10, 128, {}),
    "XDeepFM": ("census", {}, 8, 128, {}),
    "AutoInt": ("census", {}, 8, 128, {}),
    "DIN": ("movielens", {"history": 20}, 10, 256, {"dropout": 0.2}),
    "MMoE": ("census", {"labels": 2}, 30, 256, {}),
    "PLE": ("census", {"labels": 2}, 20, 256, {}),
    "SASRec": ("movielens", {"history": 20}, 7, 256, {"embedding_dim": 32, "negatives": 4}),
}
# Passes without a rise that end a training, else 1. Recall@10 stands still for the first ones.
PATIENCE = {"SASRec": 5}
# For two towers, chosen on the valid part, see README.md.
TEMPERATURE, ROWS, TOWERS = 0.1, 0.5, 1e-3  # rates: AdaGrad's and Adam's
RETRIEVAL = ((True, SIDES), (False, ("het",)))  # logQ, sides
WRITTEN = tuple(f"{side}, written" for side in SIDES)
LIMITS = {"quality": 0.003, "movielens": 1.1, "huge": 0.1}


def positives(part: Any) -> Any:
    return part.take(part.label > 0)


def pair(name: str, description: Description, examples: Any, seed: int, **arguments: Any) -> dict[str, Any]:
    """The model and its twin, compiled."""
    tf.keras.backend.clear_session()
    het_tf.reset()
    tf.keras.utils.set_random_seed(seed)
    rate = ROWS if name == "TwoTower" else RATE
    adagrad = het_tf.optimizers.Adagrad(rate, 0.1, 1e-7)  # begins as that of Keras does
    optimizers = {"table_optimizer": adagrad}
    if name != "TwoTower":
        optimizers["linear_optimizer"] = adagrad
    made = twins(getattr(het_tf.models, name), description, examples, seed=seed, **optimizers, **arguments)
    own_loss = name in ("SASRec", "TwoTower")
    loss = None if own_loss else tf.keras.losses.BinaryCrossentropy(from_logits=True)
    for side, model in zip(SIDES, made, strict=True):
        optimizer = keras_optimizer("adagrad", rate, True)
        if name == "TwoTower":
            if side == "keras":
                rows = [one.embeddings for each in sides_of(model) for one in each.collection.embeddings]
                optimizer = Divided(optimizer, rows)
            else:
                optimizer = tf.keras.optimizers.Adam(TOWERS)
        model.compile(optimizer, loss)
    return dict(zip(SIDES, made, strict=True))


class Divided(tf.keras.optimizers.Adam):
    """Adam for the towers of a twin, another optimizer for its rows: as tables have one of their own."""

    def __init__(self, of_rows: Any, rows: list[Any]) -> None:
        super().__init__(TOWERS)
        self.of_rows, self.is_row = of_rows, {id(one) for one in rows}

    def divided(self, variables: Any, key: Any = lambda one: one) -> tuple[list[Any], list[Any]]:
        """Those that are no rows, and rows."""
        parts: tuple[list[Any], list[Any]] = ([], [])
        for one in variables:
            parts[id(key(one)) in self.is_row].append(one)
        return parts

    def build(self, variables: Any) -> None:
        """Each optimizer makes the state of its own."""
        towers, rows = self.divided(variables)
        super().build(towers)
        self.of_rows.build(rows)

    def apply_gradients(self, pairs: Any, **arguments: Any) -> Any:
        """Each optimizer steps."""
        towers, rows = self.divided(pairs, key=lambda pair: pair[1])
        self.of_rows.apply_gradients(rows)
        return super().apply_gradients(towers, **arguments)


def fit(model: Any, train: Any, batch: int, epochs: int, seed: int, callbacks: Any = ()) -> float:
    """Trains a model; returns seconds."""
    tf.keras.utils.set_random_seed(seed)
    began = time.perf_counter()
    data = train.to_tf(batch, shuffle=True, seed=seed, drop_remainder=True)
    model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return time.perf_counter() - began


def predicted(function: Any, part: Any) -> np.ndarray:
    run = tf.function(function, reduce_retracing=True)
    return np.concatenate([run(inputs).numpy() for inputs, _ in part.to_tf(2048)])


class Metric:
    """A model's AUC on a part of the data (the mean over labels), or of SASRec recall@10 among all items."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.finds = hasattr(model, "index")
        self.run = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)

    def __call__(self, part: Any) -> float:
        if not self.finds:
            logits = predicted(self.run, part)
            label = part.label.reshape(len(part), -1)
            return float(np.mean([exact_auc(label[:, t], logits[:, t]) for t in range(label.shape[1])]))
        past = self.model.past
        users = predicted(lambda inputs: self.run(inputs)["user"], part)
        found = self.model.index(np.arange(past.size)).search(users, 10)[1]
        return float((found == part.categorical[past.shares][:, None]).any(axis=1).mean())


class WhileItRises(tf.keras.callbacks.Callback):
    """Ends a training when `patience` passes in a row have not raised the metric on the validation part.

    Attributes:
      valid: The metric after each pass.
      test: That of the test part after the best one.
    """

    def __init__(self, metric: Metric, valid: Any, test: Any, patience: int) -> None:
        super().__init__()
        self.metric, self.parts, self.patience = metric, (valid, test), patience
        self.valid: list[float] = []
        self.test = float("nan")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Measures."""
        self.valid.append(self.metric(self.parts[0]))
        best = int(np.argmax(self.valid))
        if best == epoch:
            self.test = self.metric(self.parts[1])
        elif epoch - best == self.patience:
            self.model.stop_training = True


def paired(name: str, models: dict[str, Any], parts: Any, seed: int) -> list[dict[str, Any]]:
    """Trains a pair, the twin first; returns both runs."""
    train, valid, test = parts
    most, batch = TASKS[name][2:4]
    runs = []
    for side in reversed(SIDES):
        metric = Metric(models[side])
        rising = WhileItRises(metric, valid, test, PATIENCE.get(name, 1))
        began = time.process_time()
        if side == "keras":
            fit(models[side], train, batch, most, seed, [rising])
            passes, value = int(np.argmax(rising.valid)) + 1, rising.test
        else:
            fit(models[side], train, batch, passes, seed)
            value = metric(test)
        cpu_seconds = time.process_time() - began
        runs.append({"side": side, "passes": passes, "value": value, "cpu_seconds": cpu_seconds})
        if side == "keras":
            runs[-1]["valid"] = rising.valid
    return runs


def quality(options: argparse.Namespace, save: Any) -> None:
    runs: list[dict[str, Any]] = []
    for name in options.models:
        data, arguments, _, _, of_model = TASKS[name]
        *parts, description = het_tf.data.load(data, cross_buckets=1 << 12, **arguments)
        if name == "SASRec":
            parts = [positives(part) for part in parts]
        for seed in options.seeds:
            models = {}
            if not options.written:
                models = pair(name, description, parts[0].take(slice(0, 64)), seed, **of_model)
            for run in [
                *(paired(name, models, parts, seed) if not options.written else []),
                *written(name, (*parts, description), seed),
            ]:
                runs.append({"model": name, "data": data, "seed": seed, **run})
                print(
                    f"{name}, {run['side']}, seed {seed}: {run['value']:.4f} after {run['passes']} passes "
                    f"({run['cpu_seconds']:.0f} s of CPU)",
                    flush=True,
                )
            save("quality", runs)


def written(name: str, data: Any, seed: int) -> list[dict[str, Any]]:
    """Trains the model with its default optimizers, and the twin that a user of Keras writes."""
    *(train, valid, test), description = data
    runs = []
    for side in SIDES:
        tf.keras.backend.clear_session()
        het_tf.reset()
        tf.keras.utils.set_random_seed(seed)
        model = getattr(het_tf.models, name)(description, seed=seed, **TASKS[name][4])
        if side == "keras":
            to_keras(model)
        model.adapt(train)
        loss = None if name == "SASRec" else tf.keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.001), loss)
        rising = WhileItRises(Metric(model), valid, test, PATIENCE.get(name, 1))
        began = time.process_time()
        fit(model, train, TASKS[name][3], TASKS[name][2], seed, [rising])
        passes = int(np.argmax(rising.valid)) + 1
        of = {"passes": passes, "value": rising.test, "cpu_seconds": time.process_time() - began}
        runs.append({"side": f"{side}, written", **of, "valid": rising.valid})
    return runs


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each model means and the mean difference of the seeds."""
    result: dict[str, Any] = {}
    for name in dict.fromkeys(run["model"] for run in runs):
        values = {
            side: np.array([one["value"] for one in runs if (one["model"], one["side"]) == (name, side)])
            for side in (*SIDES, *WRITTEN)
        }
        gap = values["het"] - values["keras"]
        result[name] = {
            "data": next(run["data"] for run in runs if run["model"] == name),
            "metric": "recall@10" if name == "SASRec" else "AUC",
            "het": float(values["het"].mean()),
            "keras": float(values["keras"].mean()),
            "difference": float(gap.mean()),
            "largest": float(np.abs(gap).max()),
            "passes": sorted(
                {one["passes"] for one in runs if one["model"] == name and one["side"] in SIDES}
            ),
            "written": {
                side: [float(np.mean(values[side])), float(np.std(values[side])), len(values[side])]
                for side in WRITTEN
                if len(values[side])
            },
        }
    return result


def cpu(options: argparse.Namespace, save: Any) -> None:
    runs: list[dict[str, Any]] = []
    for name in [*options.models, *(["TwoTower"] if len(options.models) > 1 else [])]:
        labels = 2 if name in ("MMoE", "PLE") else 1
        small = het_tf.data.load("movielens", history=20, labels=labels, cross_buckets=1 << 12).description
        huge = synthetic(HUGE, labels, items_alone=name == "SASRec")
        cases = {
            "movielens": step_cost(name, small, 16, 256, 40),
            "huge": step_cost(name, huge, 8, 256, 2),
        }
        for size, of in cases.items():
            of["ratio"] = of["het"] / of["keras"]
            runs.append({"model": name, "size": size, **of})
            print(
                f"{name}, {size}: het {of['het']:.1f} ms, keras {of['keras']:.1f}, {of['ratio']:.3f}",
                flush=True,
            )
        tf.keras.backend.clear_session()
        het_tf.reset()
        gc.collect()
        save("cpu", runs)


# --- retrieval ----------------------------------------------------------------------------------------------


def retrieval(options: argparse.Namespace, save: Any) -> None:
    train, _, test, description = het_tf.data.load("gene_papers")
    popular = np.argsort(-np.bincount(train.categorical["gene"], minlength=46_898))[:100]
    popularity = float(np.isin(test.categorical["gene"], popular).mean())
    runs: list[dict[str, Any]] = []
    for seed in options.seeds:
        for logq, sides in RETRIEVAL:
            arguments = {"embedding_dim": 16, "hidden_units": (64,), "temperature": TEMPERATURE}
            models = pair("TwoTower", description, train.take(slice(0, 64)), seed, logq=logq, **arguments)
            for side in sides:
                model = models.pop(side)
                seconds = fit(model, train, 2048, 1, seed)
                one = {"model": "TwoTower", "side": side, "logq": logq, "seed": seed, "seconds": seconds}
                runs.append({**one, **searched(model, test), "popularity": popularity})
                print(
                    f"TwoTower, {side}, logq {logq}, seed {seed}: recall@100 {runs[-1]['recall']:.4f} "
                    f"({seconds:.0f} s; index {runs[-1]['index_seconds']:.2f} s)",
                    flush=True,
                )
                save("retrieval", runs)
                del model
            models.clear()
            gc.collect()


def searched(model: Any, test: Any) -> dict[str, Any]:
    """Recall@100 of the left out genes, and the seconds of the index and of the search."""
    began = time.perf_counter()
    index = model.index(np.arange(46_898))
    indexed = time.perf_counter()
    users = predicted(lambda x: model.user_tower(x, training=False), test)
    asked = time.perf_counter()
    found = index.search(users, 100)[1]
    return {
        "recall": float((found == test.categorical["gene"][:, None]).any(axis=1).mean()),
        "index_seconds": indexed - began,
        "search_seconds": time.perf_counter() - asked,
        "queries": len(users),
    }


def key(run: dict[str, Any]) -> tuple[str, ...]:
    """What a run is of."""
    return tuple(str(run.get(name)) for name in ("model", "logq", "side", "size", "seed"))


def goals(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the goals: differences of means to the twins, and CPU times of steps over the twins' own."""
    summed = document.get("quality", {}).get("summary", {})
    off = {f"{name}: {of['metric']} off from its twin": of["difference"] for name, of in summed.items()}
    runs = [run for run in document.get("retrieval", {}).get("runs", []) if run["logq"]]
    het, twin = ([run["recall"] for run in runs if run["side"] == side] for side in SIDES)
    if het and twin:
        off["two towers: recall@100 off from its twin"] = float(np.mean(het) - np.mean(twin))
    found = [reports.goal(name, abs(gap), "<=", LIMITS["quality"]) for name, gap in off.items()]
    for run in document.get("cpu", {}).get("runs", []):
        name = f"{run['model']}, {run['size']}: CPU time of its twin"
        found.append(reports.goal(name, run["ratio"], "<=", LIMITS[run["size"]]))
    return found


def main() -> None:
    """Runs the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"quality": quality, "cpu": cpu, "retrieval": retrieval}
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; default all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--models", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--written", action="store_true", help="of quality only what a user writes")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; give some of {', '.join(parts)}")

    def save(part: str, runs: list[dict[str, Any]]) -> None:
        document = json.loads(options.out.read_text()) if options.out.exists() else {}
        document["command"] = "python benchmarks/models/run.py"
        document["machine"] = reports.machine()
        document["versions"] = reports.versions(tf, tf.keras)
        made = {key(run) for run in runs}
        kept = [run for run in document.get(part, {}).get("runs", []) if key(run) not in made]
        document[part] = {"runs": sorted([*kept, *runs], key=key)}
        if part == "quality":
            document[part]["summary"] = summary(document[part]["runs"])
        document["goals"] = goals(document)
        reports.write(document, options.out)

    for name, run in parts.items():
        if not options.parts or name in options.parts:
            run(options, save)
    reports.finish(json.loads(options.out.read_text()), options.out, __file__)


if __name__ == "__main__":
    main()
