"""Does a model learn as well when its rows may be stale?

    make benchmark-tools                     # with build/release/libhet_fleet.so
    python benchmarks/accuracy/run.py [--quick] [--only PART ...] [--seeds K] [--out FILE]
    python benchmarks/report.py              # tables, and what het plan says of accuracy

N workers go in lock-step through training, each with the engine, cache and clocks that training uses, before
one store (benchmarks/accuracy/fleet.h); the dense part runs once, on the batches of all workers. Runs of one
seed have the same rows, order and initial weights, and differ in the bound alone; equal runs give equal AUCs.
The AUC is that of the store's rows after a flush, which is what a checkpoint or an export has. One core.

What is done is kept in build/accuracy until the library or the settings change, so a run may be stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

for _threads in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(_threads, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.accuracy import sets as data_of
from benchmarks.accuracy.fleet import Fleet, library_path
from benchmarks.accuracy.summary import goals, name_of, summary
from benchmarks.placing import orders
from het_tf.ext.streams.python.placement import Placement, hashes
from het_tf.python.session.native import tf

FloatArray = npt.NDArray[np.float32]
Columns = list[npt.NDArray[np.int64]]

PLACE = ROOT / "build/accuracy"
UNBOUNDED = "unbounded"
FORMAT = 5
"""Part of what is kept: another way of measuring, another number."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What runs of one seed differ in.

    Attributes:
      bound: "30": `staleness=30`, by the age of rows; "10/3": HET's, pull and push bounds of all rows.
      wire: how rows travel: float32, float16, int8 or int4.
      placed: the field that places a step's samples on the workers; "": at random.
      planned: whether lookups begin before the writes of the step before (`het_tf.lookahead`).
      on_demand: whether rows travel when another worker needs them (`shard_on_demand`), planned.
      stored: how the store keeps the rows; "int8" means "bfloat16" for tables of dim 1.
    """

    bound: str
    wire: str = "float32"
    placed: str = ""
    planned: bool = False
    on_demand: bool = False
    stored: str = "float32"


DEFAULT = Run("30", "int4")
"""What `het_tf.Cache()` gives."""
EXACT = Run("0", "int4", "C24")
BOUNDS = (Run("0"), Run("10/10"), Run("100/100"), DEFAULT, Run(UNBOUNDED))


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of the benchmark: a data set and how models are trained on it.

    Attributes:
      data: criteo_like, packages, maintainers, census or movielens.
      epochs: passes over the training rows.
      learning_rate: of the tables; None: tables have the optimizer that the model gives them.
      cache: rows that a worker may cache, of the distinct ids of each table's training rows.
      train_rows, test_rows: how many; None: all that there are.
      of_step: samples of a step, of all workers together: any number of workers makes equal steps.
      models, workers: which, and how many.
      runs: the first is what others are compared with.
      before_flush: whether the store's rows are evaluated before the flush, too.
      seeds: how many.
      dim, hidden, dense_learning_rate: of the models; Adam trains the dense weights.
      policy: of the caches.
      optimizer: of the tables, a class of het_tf.optimizers, where learning_rate is given.
      accumulator: that the optimizer begins with; None: its default.
      decay_steps: of RowWiseAdagrad, also where a model would give tables the default; None: its default.
    """

    data: str
    epochs: int
    learning_rate: float | None
    cache: float = 1.0
    train_rows: int | None = None
    test_rows: int | None = None
    of_step: int = 128
    models: tuple[str, ...] = ("wide_deep", "deepfm", "dcn")
    workers: tuple[int, ...] = (4, 8)
    runs: tuple[Run, ...] = BOUNDS
    before_flush: bool = True
    seeds: int = 3
    dim: int = 16
    hidden: tuple[int, ...] = (128, 64)
    dense_learning_rate: float = 0.001
    policy: str = "lfu"
    optimizer: str = "RowWiseAdagrad"
    accumulator: float | None = None
    decay_steps: float | None = None


CRITEO = Part("criteo_like", 1, None, 0.1, 1 << 18, 1 << 18, workers=(8,), before_flush=False)
OF_DEFAULT = ("wide_deep", "dcn")
"""Models whose tables have the default optimizer; DeepFM has AdaGrad."""
ADAGRAD = dataclasses.replace(CRITEO, decay_steps=1, seeds=5)
"""Tables that would have the default have RowWiseAdagrad(0.05, decay_steps=1), with its bounds by age."""
PAIRS = dataclasses.replace(
    CRITEO,
    data="packages",
    epochs=2,
    train_rows=None,
    test_rows=None,
    of_step=1024,
    models=OF_DEFAULT,
)
PLACED = dataclasses.replace(DEFAULT, placed="C24")
PLANNED = tuple(dataclasses.replace(run, planned=True) for run in (DEFAULT, PLACED))
STORED = (DEFAULT, *(dataclasses.replace(DEFAULT, stored=each) for each in ("bfloat16", "int8")))
ONE_STORED = (Run("0"), *(Run("0", stored=each) for each in ("bfloat16", "int8")))
ON_DEMAND = tuple(dataclasses.replace(run, on_demand=True) for run in (EXACT, PLACED))
PARTS = {
    "criteo_like": dataclasses.replace(
        CRITEO, models=OF_DEFAULT, seeds=5, runs=(Run("0"), EXACT, Run("10/10"), DEFAULT, PLACED)
    ),
    "many": dataclasses.replace(
        CRITEO, models=OF_DEFAULT, workers=(32,), seeds=2, runs=(Run("0"), Run("0", "int4"), DEFAULT, PLACED)
    ),
    # DeepFM has AdaGrad of its own: its first steps.
    "deepfm_256": dataclasses.replace(
        ADAGRAD, models=("deepfm",), train_rows=1 << 15, runs=(Run("0"), Run("0", "int4"), DEFAULT)
    ),
    "packages": dataclasses.replace(PAIRS, seeds=8, runs=(Run("0"), Run("0", "int4"), Run("10/10"), DEFAULT)),
    # One worker is `accumulate`: more of them take successive steps on a row that they share.
    "packages_1": dataclasses.replace(PAIRS, workers=(1,), runs=(Run("0"), Run("0", "int4"))),
    "packages_32": dataclasses.replace(PAIRS, workers=(32,), runs=(Run("0"), Run("0", "int4"), DEFAULT)),
    "packages_adagrad": dataclasses.replace(PAIRS, decay_steps=1, runs=(Run("0"), DEFAULT)),
    "adagrad": dataclasses.replace(
        ADAGRAD, runs=(Run("0"), EXACT, Run("10/10"), Run("100/100"), DEFAULT, PLACED)
    ),
    "planned": dataclasses.replace(ADAGRAD, runs=(Run("0"), DEFAULT, PLACED, *PLANNED)),
    "on_demand": dataclasses.replace(ADAGRAD, runs=(Run("0"), EXACT, PLACED, *ON_DEMAND)),
    "thousand": dataclasses.replace(
        ADAGRAD, train_rows=1 << 20, of_step=1024, runs=(Run("0"), EXACT, DEFAULT, PLACED)
    ),
    "many_adagrad": dataclasses.replace(ADAGRAD, workers=(32,), runs=(Run("0"), DEFAULT, PLACED)),
    "long": dataclasses.replace(
        ADAGRAD, train_rows=1 << 20, models=("dcn",), before_flush=True, seeds=3,
        runs=(Run("0"), DEFAULT, PLACED),
    ),
    # What rounding of stored rows costs, at the default rate of tables and at a tenth of it.
    **{
        f"stored_{data}{name}": dataclasses.replace(
            part, data=data, models=("dcn",), learning_rate=rate, workers=workers, seeds=5, runs=runs
        )
        for data, part in (("criteo_like", CRITEO), ("packages", PAIRS), ("maintainers", PAIRS))
        for name, rate, workers, runs in (
            ("", None, (8,), STORED),
            ("_slow", 0.002, (8,), STORED),
            ("_1", None, (1,), ONE_STORED),
        )
    },
    "census": Part("census", 7, None, workers=(8,), decay_steps=1),
    "movielens": Part("movielens", 3, None, of_step=256, workers=(8,), decay_steps=1),
    "accumulator": dataclasses.replace(
        CRITEO, learning_rate=0.05, accumulator=0.1, decay_steps=1, models=("dcn",),
        runs=(Run("0"), Run("10/10"), Run("100/100"), DEFAULT, PLACED),
    ),
    **{
        name: dataclasses.replace(
            CRITEO, optimizer=name, learning_rate=rate, models=("dcn",),
            runs=(Run("0"), Run("10/10"), DEFAULT),
        )
        for name, rate in (("Adagrad", 0.05), ("SGD", 0.3), ("FTRL", 0.1), ("Adam", 0.001))
    },
}  # fmt: skip
QUICK = {
    "census": Part(
        "census", 1, None, train_rows=8192, models=("wide_deep",), workers=(4,), seeds=2,
        runs=(Run("0"), Run("10/10"), DEFAULT, Run(UNBOUNDED)),
    ),
    "criteo_like": Part(
        "criteo_like", 1, None, 0.1, 8192, 16384, models=("dcn",), workers=(4,), seeds=2,
        runs=(Run("0"), Run(UNBOUNDED)),
    ),
}  # fmt: skip


class Ids:
    """The ids of one seed's rows, by the fields that share a table: sorted out once for all models."""

    def __init__(self, data: data_of.Data) -> None:
        self.data = data
        self._train: dict[Any, tuple[Columns, int]] = {}
        self._test: dict[Any, tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int32]]]] = {}

    def train(self, part: Any) -> tuple[Columns, int]:
        """Returns the ids of a table's features, and how many of them are distinct."""
        if part.fields not in self._train:
            columns = data_of.part_ids(part, self.data.train)
            self._train[part.fields] = columns, len(data_of.number_ids(columns)[0])
        return self._train[part.fields]

    def test(self, part: Any) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int32]]]:
        """Returns a table's distinct test ids, and of each feature their numbers."""
        if part.fields not in self._test:
            self._test[part.fields] = data_of.number_ids(data_of.part_ids(part, self.data.test))
        return self._test[part.fields]


def make_fleet(dense: Any, part: Part, ids: Ids, workers: int, seed: int, run: Run) -> Fleet:
    """Returns the workers of a run, with the tables of the model and empty caches."""
    import het_tf

    tables: list[tuple[dict[str, Any], dict[str, Any], float]] = []
    features: list[tuple[int, int | None]] = []
    for number, table in enumerate(dense.parts):
        begin = (
            het_tf.initializers.RandomUniform(-table.scale, table.scale)
            if table.scale
            else het_tf.initializers.Zeros()
        )
        stored = "bfloat16" if run.stored == "int8" and table.dim == 1 else run.stored
        config = het_tf.TableConfig(table.name, table.dim, table.optimizer, begin, seed=seed, stored=stored)
        rows = max(1, round(part.cache * ids.train(table)[1]))
        options = cache_options(run, rows, part.policy, workers)
        tables.append((config.spec, options, float(table.optimizer.learning_rate)))
        features += [(number, None), *((number, data_of.PADDING) for _ in table.lists)]
    # How many partitions there are changes the number of frames, and no row.
    return Fleet(workers, tables, features, partitions=4)


def cache_options(run: Run, rows: int, policy: str, workers: int) -> dict[str, Any]:
    """Returns a table's options as the core reads them."""
    cache: dict[str, Any] = {"rows": rows, "policy": policy}
    if run.bound == UNBOUNDED:
        cache |= {"pull_bound": None, "push_bound": None}
    elif "/" in run.bound:
        pull, push = (int(bound) for bound in run.bound.split("/"))
        cache |= {"pull_bound": pull, "push_bound": push}
    else:
        cache |= {"staleness": int(run.bound), "workers": workers}
    if run.wire != "float32":
        cache["wire"] = run.wire
    return cache


def rows_of_step(fleet: Fleet, steps: int) -> dict[str, float]:
    """Returns the rows that a worker sends and fetches in a step, by class."""
    counters = [cache for worker in fleet.counters() for cache in worker]
    names = ("miss_pull", "update_pull", "bound_push", "evict_push")
    worker_steps = steps * len(fleet.counters())
    return {name: sum(cache[name] for cache in counters) / worker_steps for name in names}


def placed(order: npt.NDArray[np.int64], ids: Ids, field: str, workers: int) -> npt.NDArray[np.int64]:
    """Returns the order in which each step's samples are those of the first worker, of the second, ...

    A step's samples stay that step's: what the dense part sees is the same set.
    """
    placement = Placement(field, workers, order.shape[1] // workers)
    values = ids.data.train.columns[field][order.ravel()]
    owners = placement.owners(hashes(tf.constant(values))).numpy()
    return np.asarray(order.ravel()[orders(placement, owners).reshape(len(order), -1)])


def train(dense: Any, fleet: Fleet, ids: Ids, order: npt.NDArray[np.int64], run: Run) -> None:
    """Takes the steps whose rows `order` names, int64 `[steps, of_step]`."""
    split = ids.data.train
    columns = [column for table in dense.parts for column in ids.train(table)[0]]
    ahead = 4 if run.on_demand else int(run.planned)

    def plan(number: int) -> None:
        if ahead > 0 and number < len(order):
            fleet.plan([column[order[number]] for column in columns], (number + 1) * run.on_demand)

    for number in range(ahead if run.on_demand else 0):
        plan(number)
    for number, step in enumerate(order):
        keys = [column[step] for column in columns]
        rows = fleet.read(keys)
        plan(number + ahead)
        gradients = dense.train(rows, split.numeric[step], split.lengths[step], split.label[step])
        fleet.write(keys, [gradient.numpy() for gradient in gradients])


def evaluate(dense: Any, fleet: Fleet, ids: Ids) -> FloatArray:
    """Returns the logits of the test rows, with the rows that the store has."""
    split = ids.data.test
    served = [fleet.serve(number, ids.test(table)[0]) for number, table in enumerate(dense.parts)]
    numbers = [column for table in dense.parts for column in ids.test(table)[1]]
    return np.asarray(dense.predict(served, numbers, split.numeric, split.lengths))


def measure(dense: Any, part: Part, ids: Ids, workers: int, seed: int) -> list[dict[str, Any]]:
    """Trains and evaluates once for each of the part's runs; returns their figures."""
    label = ids.data.test.label
    order = data_of.epochs_order(len(ids.data.train.label), part.epochs, part.of_step, seed)
    results = []
    for run in part.runs:
        begin = time.process_time()
        dense.reset(seed)
        fleet = make_fleet(dense, part, ids, workers, seed, run)
        train(dense, fleet, ids, placed(order, ids, run.placed, workers) if run.placed else order, run)
        before = data_of.auc(label, evaluate(dense, fleet, ids)) if part.before_flush else None
        fleet.flush()
        figures = {
            "auc": data_of.auc(label, evaluate(dense, fleet, ids)),
            "auc_before_flush": before,
            "largest_clock": fleet.largest_clock(),
            "rows": rows_of_step(fleet, len(order)),
            "seconds": round(time.process_time() - begin, 1),
        }
        fleet.close()
        results.append({**figures, **dataclasses.asdict(run), "steps": len(order)})
    return results


def measure_part(name: str, part: Part, version: str) -> list[dict[str, Any]]:
    """Returns the runs of a part, of which those that are kept are not done again."""
    from benchmarks.accuracy.models import Dense

    groups: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    for seed in range(1, part.seeds + 1):
        ids: Ids | None = None
        for model in part.models:
            for workers in part.workers:
                settings = {**dataclasses.asdict(part), "models": model, "workers": workers, "seeds": seed}
                key = json.dumps([settings, version], sort_keys=True)
                kept = PLACE / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
                if not kept.exists():
                    if ids is None:
                        ids = Ids(data_of.make_data(part.data, seed, part.train_rows, part.test_rows))
                    if model not in models:
                        models[model] = Dense(model, ids.data.splits, part)
                    group = {
                        "model": model,
                        "workers": workers,
                        "seed": seed,
                        "test_rows": len(ids.data.test.label),
                        "oracle_auc": ids.data.oracle_auc,
                        "runs": measure(models[model], part, ids, workers, seed),
                    }
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.with_suffix(".part").write_text(json.dumps(group))
                    kept.with_suffix(".part").rename(kept)
                groups.append(json.loads(kept.read_text()))
                aucs = ", ".join(f"{name_of(run)} {run['auc']:.4f}" for run in groups[-1]["runs"])
                print(f"{name}, {model}, {workers} workers, seed {seed}: {aucs}", flush=True)
    return groups


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small parts; less than a minute")
    parser.add_argument(
        "--only", nargs="+", metavar="PART", help=f"of {', '.join(PARTS)}; of the others the JSON is kept"
    )
    parser.add_argument("--seeds", type=int, help="of each part; default 3")
    parser.add_argument("--out", type=Path, help="the JSON file")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.only or ()) - set(QUICK if arguments.quick else PARTS)
    if unknown:
        parser.error(f"--only: there is no part {sorted(unknown)}")
    if arguments.seeds is not None and not 2 <= arguments.seeds <= 15:
        parser.error(f"--seeds is {arguments.seeds}; give 2 to 15")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and writes the JSON."""
    arguments = parse(argv)
    name = "accuracy_quick.json" if arguments.quick else "result.json"
    out = arguments.out or (PLACE if arguments.quick else Path(__file__).parent) / name
    parts = QUICK if arguments.quick else PARTS
    version = f"{hashlib.sha256(library_path().read_bytes()).hexdigest()} {FORMAT}"
    result: dict[str, Any] = {"command": "python benchmarks/accuracy/run.py", "parts": {}}
    if arguments.only and out.exists():
        result = json.loads(out.read_text())
    for name in arguments.only or parts:
        part = dataclasses.replace(parts[name], seeds=arguments.seeds or parts[name].seeds)
        groups = measure_part(name, part, version)
        result["parts"][name] = {"settings": dataclasses.asdict(part), "groups": groups}
        result["summary"] = summary(result["parts"])
        result["goals"] = goals(result["summary"])
        report.write(result, out)
    report.finish(result, out, __file__)


if __name__ == "__main__":
    main()
