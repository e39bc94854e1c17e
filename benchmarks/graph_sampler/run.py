"""How many edges does the neighbour sampler draw in a second of one core?

    python benchmarks/graph_sampler/run.py [--nodes N] [--batches K] [--repeats R] [--sizes N ...]

A graph of the generator (`het_tf.data.graph_like`, 11 edges a node), batches of 512 random nodes, the paper's
fan-outs (25, 10): 140,800 draws a batch. Beside it, on the same graph and nodes: numpy, as most samplers are
written (gather offsets, draw, gather neighbours), and the limit, one `numpy.take` of as many neighbours at
places that were drawn before. Rates are for a second of processor time. Then the generator by itself, at
sizes up to a hundred million nodes (6.2 GB of disk): time, memory and draws. The exit status is 1 if the goal
is missed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import report
from het_tf.data import Graph, graph_like
from het_tf.python.data.graph.generate import write_graph_like

FANOUTS = (25, 10)
BATCH = 512
DRAWS = BATCH * (FANOUTS[0] + FANOUTS[0] * FANOUTS[1])
GOAL = 1e6
SIZES = (1_000_000, 10_000_000, 100_000_000)


def best_rate(work: int, repeats: int, run: Callable[[], object]) -> float:
    """Returns the most units of work in a second of processor time, of all threads, over `repeats` runs."""
    run()
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return work / best


def by_numpy(graph: Graph, batches: np.ndarray) -> None:
    """The same draws by numpy."""
    rng = np.random.default_rng(0)
    offsets, neighbours = graph.offsets, graph.edge_ends
    for batch in batches:
        parents = batch
        for fanout in FANOUTS:
            first = offsets[parents]
            degree = offsets[parents + 1] - first
            places = (rng.random((len(parents), fanout)) * degree[:, None]).astype(np.int64) + first[:, None]
            parents = neighbours[places].astype(np.int64).ravel()


def one_pass(graph: Graph, batches: np.ndarray, fanouts: Any = FANOUTS) -> Callable[[], object]:
    """Returns a pass of tf.data that draws len(batches) * DRAWS edges."""
    data = tf.data.Dataset.from_tensor_slices(batches).enumerate()
    data = data.map(lambda number, nodes: graph.sample(nodes, fanouts, 1, number)[-1][0, 0])
    return tf.function(lambda: data.reduce(tf.constant(0, tf.int64), lambda total, one: total + one))


def samplers(
    graph: Graph, weighted: Graph, batches: np.ndarray, places: np.ndarray
) -> dict[str, Callable[[], object]]:
    """Returns what is measured; each draws len(batches) * DRAWS edges."""
    typed = tuple({0: fanout // 2, 1: fanout - fanout // 2} for fanout in FANOUTS)
    return {
        "limit: numpy.take of drawn places": lambda: [np.take(graph.edge_ends, of) for of in places],
        "numpy": lambda: by_numpy(graph, batches),
        "het_tf": one_pass(graph, batches),
        "het_tf, by weight": one_pass(weighted, batches),
        "het_tf, by weight and type": one_pass(weighted, batches, typed),
    }


def negatives(graph: Graph, count: int) -> Callable[[], object]:
    """Returns a pass that draws `count` negatives, a thousand at a time."""
    data = tf.data.Dataset.range(count // 1000).map(lambda number: graph.negatives(1000, 1, number)[0])
    return tf.function(lambda: data.reduce(tf.constant(0, tf.int64), lambda total, one: total + one))


def weighted_copy(graph: Graph, path: Path) -> Graph:
    """The same edges with random weights and two types."""
    rng = np.random.default_rng(1)
    edges = np.stack([np.repeat(np.arange(graph.nodes), graph.degrees()), graph.edge_ends], axis=1)
    return Graph.from_edges(
        path, edges, graph.nodes, rng.random(len(edges)) + 0.1, rng.integers(0, 2, len(edges)), directed=True
    )


def measure(nodes: int, batches: int, repeats: int, folder: Path) -> dict[str, Any]:
    """Returns rates and ratios."""
    begin = time.perf_counter()
    graph = graph_like(nodes, 0, folder / "plain.graph").graph
    made = time.perf_counter() - begin
    weighted = weighted_copy(graph, folder / "weighted.graph")
    rng = np.random.default_rng(2)
    starts = rng.integers(0, nodes, (batches, BATCH))
    places = rng.integers(0, graph.edges, (batches, DRAWS))
    draws = batches * DRAWS
    rates = {
        name: best_rate(draws, repeats, run)
        for name, run in samplers(graph, weighted, starts, places).items()
    }
    rates["het_tf, negatives by degree^0.75"] = best_rate(200_000, repeats, negatives(graph, 200_000))
    numpy_rate, limit = rates["numpy"], rates["limit: numpy.take of drawn places"]
    return {
        "nodes": nodes,
        "edges": graph.edges,
        "generated_in_s": made,
        "draws_per_processor_second": rates,
        "ratio_to_numpy": {name: rate / numpy_rate for name, rate in rates.items()},
        "ratio_to_limit": {name: rate / limit for name, rate in rates.items()},
    }


def memory(name: str) -> int:
    """Returns a figure of this process, in bytes, as Linux names it."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def size(nodes: int, batches: int, repeats: int) -> dict[str, Any]:
    """Returns what it takes to make a graph of so many nodes, and how fast it is drawn from."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.graph"
        begin = time.process_time()
        write_graph_like(path, nodes, 0)
        made = time.process_time() - begin
        peak = memory("VmHWM") - before
        graph = Graph.open(path)
        starts = np.random.default_rng(2).integers(0, nodes, (batches, BATCH))
        return {
            "nodes": nodes,
            "edges": graph.edges,
            "file_bytes": path.stat().st_size,
            "made_processor_s": made,
            "made_memory_bytes": peak,
            "draws_per_processor_second": best_rate(batches * DRAWS, repeats, one_pass(graph, starts)),
        }


def apart(*of: int) -> dict[str, Any]:
    """Returns `size` of a process of its own, whose memory is counted."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(size, *of).result()


def main() -> None:
    """Measures, prints the table, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2_000_000, help="of the graph; 10,000 or more")
    parser.add_argument("--batches", type=int, default=40, help="of 512 nodes, in a pass")
    parser.add_argument("--repeats", type=int, default=5, help="passes of each; the best counts")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="*",
        default=list(SIZES),
        help="graphs to make, in nodes; default up to 1e8",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).with_name("result.json"), help="the JSON file"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(arguments.nodes, arguments.batches, arguments.repeats, Path(folder))
    sizes = [apart(nodes, arguments.batches, arguments.repeats) for nodes in arguments.sizes]
    value = figures["draws_per_processor_second"]["het_tf"] / GOAL
    result = {
        "command": f"python benchmarks/graph_sampler/run.py --nodes {arguments.nodes}",
        "machine": report.machine(),
        "versions": {"tensorflow": tf.__version__, "numpy": np.__version__},
        **figures,
        "sizes": sizes,
        "goals": [report.goal("million edges drawn in a second of one core", value, ">=", 1.0)],
    }
    report.finish(result, arguments.out, __file__)
    if value < 1.0:
        sys.exit("error: the goal is missed")


if __name__ == "__main__":
    main()
