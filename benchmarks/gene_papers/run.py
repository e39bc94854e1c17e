"""A stream of papers about genes, by time: drift, rows that expire, sequences.

    python benchmarks/gene_papers/run.py [stream] [sequences] [--seeds 1 2 3] [--quick] [--out FILE]

stream      1.3 million pairs of a paper and a gene come in PubMed's order, in periods of equally many papers.
            Two towers are asked for the left out genes of a period (recall@100 among 46,898), and then train
            on it, once: beside models that stopped, and with limits to the table of the papers' side, `ttl`
            and `min_count`: rows, bytes, recall. (Papers with more than a hundred genes, which list genomes,
            are left out.) A `ttl` counts seconds, and the stream runs through decades in a minute: so it is
            a share of the seconds that the run of the same seed without limits took.
sequences   SASRec on the genes that papers named with a gene, beside what is popular and the gene's own past.

A run replaces the same one in the file of results.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import numpy as np
import tensorflow as tf

import het_tf
from benchmarks import report

GENES, K, BATCH, DIM = 46_898, 100, 2048, 16
RATE, TOWERS, TEMPERATURE = 0.5, 1e-3, 0.1  # as in benchmarks/models, part retrieval
PERIODS, MOST = 10, 100
STOPS = (2, 5)
"""Periods before which a model stops training."""
TTL, PROBATION = 0.1, 0.02
"""Shares of the seconds of a run: `ttl`, and `min_count_ttl` of a `min_count` of 2."""
TABLE = "genes_user/deep"


def begin(seed: int) -> None:
    tf.keras.backend.clear_session()
    het_tf.reset()
    gc.collect()
    tf.keras.utils.set_random_seed(seed)


def two_towers(description: Any, seed: int) -> Any:
    begin(seed)
    model = het_tf.models.TwoTower(
        description,
        temperature=TEMPERATURE,
        embedding_dim=DIM,
        hidden_units=(64,),
        table_optimizer=het_tf.optimizers.Adagrad(RATE, 0.1, 1e-7),
        seed=seed,
        name="genes",
    )
    model.compile(tf.keras.optimizers.Adam(TOWERS))
    return model


class Asked:
    """Recall@K of the genes that were left out, by a model as it is now or by one list for all."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.users = tf.function(
            lambda inputs: model.user_tower(inputs, training=False), reduce_retracing=True
        )

    def recalls(self, parts: list[Any]) -> list[float]:
        """Returns the recall of each part."""
        index = self.model.index(np.arange(GENES))
        return [self._recall(index, part) for part in parts]

    def _recall(self, index: Any, part: Any) -> float:
        users = np.concatenate([self.users(inputs).numpy() for inputs, _ in part.to_tf(1024)])
        found = index.search(users, K)[1]
        return float((found == part.categorical["gene"][:, None]).any(axis=1).mean())


def popular(seen: np.ndarray, part: Any, field: str = "gene", k: int = K) -> float:
    """Recall of the same k for all: those met most often."""
    return float(np.isin(part.categorical[field], np.argsort(-seen, kind="stable")[:k]).mean())


def periods_of(options: argparse.Namespace) -> list[Any]:
    splits = het_tf.data.load("gene_papers")
    columns = [part.categorical["paper"] for part in splits[:3]]
    kept = np.bincount(np.concatenate(columns)) <= MOST
    if options.quick:
        kept &= np.arange(len(kept)) % 40 == 0
    parts = [part.take(kept[column]) for part, column in zip(splits[:3], columns, strict=True)]
    return het_tf.data.by_time(het_tf.data.Splits(*parts, splits.description), "paper", PERIODS)


def stream(options: argparse.Namespace, save: Any) -> None:
    periods = periods_of(options)
    runs: list[dict[str, Any]] = []
    for seed in options.seeds:
        runs.append({"limits": "none", **drift(periods, seed), "seed": seed})
        seconds = runs[-1]["seconds"]
        print(f"stream, seed {seed}: {runs[-1]}", flush=True)
        probation = {"min_count": 2, "min_count_ttl": max(1, round(PROBATION * seconds))}
        for name, given in (("ttl", {"ttl": max(2, round(TTL * seconds))}), ("min_count", probation)):
            runs.append({"limits": name, **given, **drift(periods, seed, given), "seed": seed})
            print(f"stream, seed {seed}: {runs[-1]}", flush=True)
        save("stream", runs)


def drift(periods: list[Any], seed: int, limits: dict[str, int] | None = None) -> dict[str, Any]:
    """Recall of each period before it is trained on, of the last half, and the table at the end.

    Args:
      limits: of the table of the papers' side; None: none, and the models that stop are asked, too.
    """
    model = two_towers(periods[0].description, seed)
    asked, seen, seconds = Asked(model), np.zeros(GENES, np.int64), 0.0
    asked.recalls([periods[0].test.take(slice(0, 1))])  # makes the tables
    if limits is not None:
        limit(model, limits)
    curves: dict[str, dict[int, float]] = {"follows": {}, "popular": {}}
    for number, period in enumerate(periods):
        later = [one.test for one in periods[number:]]
        if limits is None and number in STOPS:
            at = range(number, len(periods))
            curves[f"stopped {number}"] = dict(zip(at, asked.recalls(later), strict=True))
            curves[f"popular {number}"] = dict(zip(at, (popular(seen, one) for one in later), strict=True))
        began = time.monotonic()
        (curves["follows"][number],) = asked.recalls(later[:1])
        curves["popular"][number] = popular(seen, later[0])
        data = period.train.to_tf(BATCH, shuffle=True, seed=seed, drop_remainder=True)
        model.fit(data, epochs=1, shuffle=False, verbose=0)
        seconds += time.monotonic() - began
        seen += np.bincount(period.train.categorical["gene"], minlength=GENES)
    table = het_tf.Table(TABLE)
    last = [recall for number, recall in curves["follows"].items() if number >= len(periods) // 2]
    of = {"recall": float(np.mean(last)), "size": table.size, "bytes": table.bytes, "seconds": seconds}
    return {**of, "stops": list(STOPS), "periods": len(periods), "curves": curves}


def limit(model: Any, limits: dict[str, int]) -> None:
    """Declares the table of the papers' side again, with limits: the last declaration counts."""
    (part,) = model.user_tower.parts()
    initializer = het_tf.initializers.RandomUniform(-part.scale, part.scale)
    config = het_tf.TableConfig(TABLE, part.dim, part.optimizer, initializer, model.user_tower.seed, **limits)
    het_tf.keras.Embedding(config, reuse=True).build(None)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds: recall of each period, and what limits leave and lose."""

    def error(values: list[float]) -> float | None:
        return stdev(values) / len(values) ** 0.5 if len(values) > 1 else None

    free = [run for run in runs if run["limits"] == "none"]
    drift = [
        {
            "curve": curve,
            "period": int(period) + 1,
            "recall": fmean(run["curves"][curve][period] for run in free),
        }
        for curve, of in free[0]["curves"].items()
        for period in of
        if int(period) > 0
    ]
    recall = {run["seed"]: run["recall"] for run in free}
    limits = []
    for name in dict.fromkeys(run["limits"] for run in runs):
        own = [run for run in runs if run["limits"] == name]
        lost = [recall[run["seed"]] - run["recall"] for run in own]
        of = {"rows": fmean(run["size"] for run in own), "bytes": fmean(run["bytes"] for run in own)}
        of |= {"recall": fmean(run["recall"] for run in own), "error": error([run["recall"] for run in own])}
        limits.append({"limits": name, **of, "lost": fmean(lost), "lost_error": error(lost)})
    return {"drift": drift, "limits": limits}


def own_partners(seen: np.ndarray, part: Any, k: int) -> float:
    """Recall of k partners: the last ones of the gene's own history, then those met most often."""
    frequent, hits = np.argsort(-seen, kind="stable")[: 2 * k], 0
    for past, partner in zip(part.sequences["history"], part.categorical["partner"], strict=True):
        found = list(dict.fromkeys([*past[past >= 0][::-1].tolist(), *frequent.tolist()]))[:k]
        hits += int(partner in found)
    return hits / len(part)


def sequences(options: argparse.Namespace, save: Any) -> None:
    train, _, test, description = het_tf.data.load("gene_partners")
    every = 100 if options.quick else 8
    asked = test.take(np.random.default_rng(0).permutation(len(test))[: 200 if options.quick else 5000])
    seen = np.bincount(train.categorical["partner"], minlength=GENES)
    runs: list[dict[str, Any]] = []
    for seed in options.seeds:
        begin(seed)
        some = train.take(np.random.default_rng(seed).permutation(len(train))[::every])
        model = het_tf.models.SASRec(
            description, embedding_dim=32, negatives=4, dropout=0.2, seed=seed,
            table_optimizer=het_tf.optimizers.Adagrad(RATE, 0.1, 1e-7),
        )  # fmt: skip
        model.compile(tf.keras.optimizers.Adam(1e-3))
        before = time.monotonic()
        model.fit(some.to_tf(256, shuffle=True, seed=seed, drop_remainder=True), shuffle=False, verbose=0)
        seconds = time.monotonic() - before
        run = tf.function(lambda inputs, model=model: model(inputs, training=False)["user"])
        users = np.concatenate([run(inputs).numpy() for inputs, _ in asked.to_tf(len(asked) // 5)])
        found = model.index(np.arange(GENES)).search(users, K)[1] == asked.categorical["partner"][:, None]
        of = {f"recall@{k}": float(found[:, :k].any(axis=1).mean()) for k in (10, K)}
        of |= {f"own@{k}": own_partners(seen, asked, k) for k in (10, K)}
        of |= {f"popular@{k}": popular(seen, asked, "partner", k) for k in (10, K)}
        runs.append({"seed": seed, "samples": len(some), "asked": len(asked), "seconds": seconds, **of})
        print(f"sequences, seed {seed}: {runs[-1]}", flush=True)
        save("sequences", runs)


def key(run: dict[str, Any]) -> tuple[str, ...]:
    """What a run is of."""
    return tuple(str(run.get(name)) for name in ("limits", "seed"))


def main() -> None:
    """Runs the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"stream": stream, "sequences": sequences}
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(parts)}; default all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--quick", action="store_true", help="one paper of forty, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; give some of {', '.join(parts)}")

    def save(part: str, runs: list[dict[str, Any]]) -> None:
        document = json.loads(options.out.read_text()) if options.out.exists() else {}
        document["command"] = "python benchmarks/gene_papers/run.py"
        document |= {"machine": report.machine(), "versions": report.versions(tf)}
        made = {key(run) for run in runs}
        kept = [run for run in document.get(part, {}).get("runs", []) if key(run) not in made]
        document[part] = {"runs": sorted([*kept, *runs], key=key)}
        if part == "stream":
            document[part]["summary"] = summary(document[part]["runs"])
        report.write(document, options.out)

    for name, run in parts.items():
        if not options.parts or name in options.parts:
            run(options, save)
    report.finish(json.loads(options.out.read_text()), options.out, __file__)


if __name__ == "__main__":
    main()
