"""Where do tables and their rows lie best: RecShard's and AutoShard's problems, beside what het_tf does.

    make build                                    # the plugin and the servers' module, het_tf/lib
    python benchmarks/placement.py [--sets N] [--seeds N] [--out FILE]

RecShard: placement_recshard.py. AutoShard: sets of random tables lie whole at one of four servers, which the
training client asks (pulls and pushes of a step, no cache); a server's CPU time is learned as a line, from
features of the tables. Then 40 tables are placed whole, by greedy on several costs, beside today's hashing
over all partitions, and hashing of each over 4, one a server: CPU time of the slowest server, as measured.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import placement_recshard as recshard  # noqa: E402
import placement_sets as sets  # noqa: E402
from placement_servers import EACH, HASHED, SHARDS, Places, Servers  # noqa: E402
from ps_throughput import shards  # noqa: E402

SAMPLES = (256, 1024)
POOL, MOST, PLACED = 100, 12, 40  # tables: that sets are drawn from, of a set at most, that are placed
TODAY = "hashed over 64 partitions"
Sets = list[tuple[int, list[sets.Table], float]]


def timed(plan: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a plan is, and the CPU seconds that it takes."""
    begin = time.process_time()
    return plan(*arguments), time.process_time() - begin


def run_recshard(seed: int) -> dict[str, Any]:
    tables = recshard.make_tables(seed)
    run: dict[str, Any] = {"whole": recshard.whole(tables)}
    for name, plan in (("greedy", recshard.greedy), ("milp", recshard.milp)):
        result, seconds = timed(plan, tables)
        of_whole = result["slow_share"] / run["whole"]["slow_share"]
        run[name] = result | {"slow_of_whole": of_whole, "plan_cpu_seconds": seconds}
    print(f"RecShard, seed {seed}: {run}", flush=True)
    return run


def run_plan(way: Callable[..., list[int]]) -> dict[str, float]:
    """Of 1,000 tables onto 64 shards."""
    costs = np.random.default_rng(0).lognormal(0, 1, 1000).tolist()
    placed, seconds = timed(way, costs, 64)
    loads = np.bincount(placed, weights=costs)
    return {"plan_cpu_seconds": seconds, "max_of_mean": loads.max() / loads.mean()}


def whole(shard_of: list[int]) -> Places:
    """Each table in one partition of its shard, in turns."""
    return [(shard * EACH + shard_of[:i].count(shard) % EACH,) for i, shard in enumerate(shard_of)]


def measure_sets(servers: Servers, count: int) -> Sets:
    """Random sets of tables, each whole at one server: samples of a step, tables, CPU seconds."""
    rng = np.random.default_rng(7)
    pools = {samples: sets.make_tables(POOL, 100, samples) for samples in SAMPLES}
    found: Sets = []
    for number in range(count // SHARDS):
        samples, order = SAMPLES[number % len(SAMPLES)], rng.permutation(POOL)
        counts = rng.integers(1, 1 + MOST, SHARDS)
        chosen = [[pools[samples][i] for i in order[k * MOST :][:n]] for k, n in enumerate(counts)]
        shard_of = [shard for shard, of in enumerate(chosen) for _ in of]
        seconds = servers.measure([table for of in chosen for table in of], whole(shard_of))
        found += [(samples, of, float(spent)) for of, spent in zip(chosen, seconds, strict=True)]
    return found


def learn_cost(found: Sets) -> tuple[dict[str, Any], np.ndarray]:
    """Lines on three quarters of the sets, R^2 on the rest; returns also the line on our features."""
    seconds = np.array([spent for _, _, spent in found])
    unseen = np.random.default_rng(3).permutation(len(found)) < len(found) // 4
    parts = {"all": unseen} | {str(n): unseen & (np.array([of[0] for of in found]) == n) for n in SAMPLES}
    result: dict[str, Any] = {"sets": len(found), "unseen": int(unseen.sum())}
    for name in ("papers", "ours"):
        features = np.array([sum(getattr(table, name)() for table in of) for _, of, _ in found])
        line = sets.fit(features[~unseen], seconds[~unseen])
        judged = {part: sets.r2(line, features[of], seconds[of]) for part, of in parts.items()}
        result[f"r2 of {name}"] = judged
    names = ("row", "byte", "byte of a large part", "table", "step")
    result["microseconds"] = dict(zip(names, (line * 1e6).tolist(), strict=True))
    print(f"cost: {json.dumps(result, indent=1)}", flush=True)
    return result, line


def place(servers: Servers, seed: int, samples: int, line: np.ndarray) -> dict[str, Any]:
    """Measured servers' CPU time of 40 tables, placed in each way."""
    tables = sets.make_tables(PLACED, seed, samples)
    learned = [float(line[:-1] @ table.ours()) for table in tables]
    costs = {
        "size": [table.size for table in tables],
        "rows": [table.rows for table in tables],
        "lookups": [table.per_sample * table.dim for table in tables],
        "learned, greedy": learned,
    }
    ways = {way: whole(sets.assign(cost, SHARDS)) for way, cost in costs.items()} | {
        "learned, beam": whole(sets.assign_by_beam(learned, SHARDS)),
        TODAY: [HASHED] * PLACED,
        "hashed over 4 partitions": [[s * EACH + i % EACH for s in range(SHARDS)] for i in range(PLACED)],
    }
    result: dict[str, Any] = {}
    for way, places in ways.items():
        seconds = servers.measure(tables, places)
        result[way] = {"slowest_ms": 1e3 * seconds.max(), "max_of_mean": seconds.max() / seconds.mean()}
    print(f"{samples} samples, seed {seed}: {json.dumps(result, indent=1)}", flush=True)
    return result


def medians(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each way over the seeds; the slowest server's time also over that of today's hashing."""
    result = {}
    for way in runs[0]:
        of_hashed = [run[way]["slowest_ms"] / run[TODAY]["slowest_ms"] for run in runs]
        of_way = {name: statistics.median(run[way][name] for run in runs) for name in runs[0][way]}
        result[way] = of_way | {"of_hashed": statistics.median(of_hashed)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200, help="sets of tables that are measured, default 200")
    parser.add_argument("--seeds", type=int, default=5, help="of each comparison, default 5")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/placement.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"command": "python benchmarks/placement.py", "cores": os.cpu_count()}
    result["recshard"] = [run_recshard(seed) for seed in range(arguments.seeds)]
    result["plan"] = {"greedy": run_plan(sets.assign), "beam": run_plan(sets.assign_by_beam)}
    with shards(SHARDS) as address:
        servers = Servers(address)
        result["cost"], line = learn_cost(measure_sets(servers, arguments.sets))
        seeds = range(arguments.seeds)
        result["placed"] = {n: [place(servers, seed, n, line) for seed in seeds] for n in SAMPLES}
    result["medians"] = {samples: medians(runs) for samples, runs in result["placed"].items()}
    print(f"medians: {json.dumps(result['medians'], indent=1)}")
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
