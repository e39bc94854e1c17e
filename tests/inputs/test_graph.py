"""Graphs: what a file has of its edges, draws in tf.data, and what is refused."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from het_tf.inputs.python.graph import writer as writer_lib
from het_tf.inputs.python.graph.graph import Graph
from het_tf.inputs.python.graph.writer import GraphWriter

GOLDEN = Path(__file__).parents[1] / "golden" / "graph.bin"
TRIANGLE = [[0, 1], [1, 2], [2, 0]]


def make(tmp_path: Path, edges: object, **options: object) -> Graph:
    return Graph.from_edges(tmp_path / "a.graph", edges, **options)


def test_edges_go_both_ways_once(tmp_path: Path) -> None:
    graph = make(tmp_path, [[0, 3], [3, 0], [1, 1], [3, 4], [0, 3]], nodes=6)
    assert (graph.nodes, graph.edges, graph.directed) == (6, 4, False)
    assert (graph.self_loops, graph.duplicates, graph.isolated) == (1, 2, 3)
    assert graph.degrees().tolist() == [1, 0, 0, 2, 1, 0]
    assert [graph.neighbours(node).tolist() for node in range(6)] == [[3], [], [], [0, 4], [3], []]
    with pytest.raises(ValueError, match="node is 6; give an id from 0 to 5"):
        graph.neighbours(6)


def test_communities_are_those_of_the_edges(tmp_path: Path) -> None:
    """Catches neighbours that change places for ever, popular nodes that draw all into one community, edges
    that count in one direction only, and a seed that is not used.
    """
    rng = np.random.default_rng(0)
    nodes, members = 4000, 10
    home = np.arange(nodes) % (nodes // members)
    inside = home[:, None] + nodes // members * rng.integers(0, members, (nodes, 6))
    popular = np.minimum(rng.zipf(1.5, (nodes, 2)) - 1, nodes - 1)
    ends = np.concatenate([inside, popular], axis=1)
    graph = make(tmp_path, np.stack([np.repeat(np.arange(nodes), 8), ends.ravel()], 1), nodes=nodes + 1)
    found = graph.communities()
    sizes = np.bincount(found)
    assert found[nodes] == nodes and found is graph.communities() and sizes.max() <= 4 * nodes // 256
    same = found[np.arange(nodes)[:, None]] == found[inside]
    assert same.mean() > 0.9
    stars = np.stack([np.arange(500) // 5, np.arange(100, 600)], 1)  # edges lead away from 100 nodes
    near = Graph.from_edges(tmp_path / "d.graph", stars, directed=True).communities()
    assert (near[stars[:, 0]] == near[stars[:, 1]]).mean() > 0.9
    assert Graph.from_edges(tmp_path / "e.graph", [], nodes=5).communities().tolist() == [0, 1, 2, 3, 4]
    assert (graph.communities(1) != found).any() and (np.bincount(graph.communities(1)) > 0).sum() > 300


@pytest.mark.parametrize("given", ["", "types", "weights", "types and weights"])
@pytest.mark.parametrize("directed", [False, True])
def test_files_against_a_set(tmp_path: Path, given: str, directed: bool) -> None:
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 50, (400, 2)).astype(np.uint16)
    values = {"types": rng.integers(0, 3, 400), "weights": rng.random(400, np.float32) + 0.1}
    options = {name: of for name, of in values.items() if name in given}
    graph = make(tmp_path, edges, directed=directed, **options)
    kinds = options.get("types", np.zeros(400, int))
    truth = {(a, kind, b) for (a, b), kind in zip(edges.tolist(), kinds, strict=True) if a != b}
    truth |= set() if directed else {(b, kind, a) for a, kind, b in truth}
    assert graph.edges == len(truth)
    for node in range(50):
        expected = sorted((kind, b) for a, kind, b in truth if a == node)
        assert graph.neighbours(node).tolist() == [b for _, b in expected]
        for kind in range(graph.types):
            drawn = graph.sample([node], ({kind: 2000},), seed=1)[1].numpy()[0]
            assert set(drawn.tolist()) == ({b for k, b in expected if k == kind} or {node})
    assert graph.self_loops == (edges[:, 0] == edges[:, 1]).sum()


def test_merged_edges_sum_their_weights(tmp_path: Path) -> None:
    graph = make(tmp_path, [[0, 1], [0, 2], [0, 2], [0, 1], [0, 2]], weights=[1, 2, 2, 1, 2], directed=True)
    drawn = graph.sample([0] * 1000, (20,), seed=1)[1].numpy()
    assert (drawn == 2).mean() == pytest.approx(0.75, abs=0.02)


def test_draws_are_a_function_of_seed_and_batch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graph = make(tmp_path, rng.integers(0, 300, (4000, 2)))
    nodes = rng.integers(0, 300, 64)

    def draws(threads: int) -> list[np.ndarray]:
        batches = tf.data.Dataset.range(20)
        sampled = batches.map(
            lambda batch: graph.sample(nodes, (5, 3), seed=7, batch=batch), num_parallel_calls=threads
        )
        assert sampled.element_spec[2].shape == (64, 15)
        return [np.concatenate([hop.ravel() for hop in hops]) for hops in sampled.as_numpy_iterator()]

    once, again = draws(1), draws(4)
    np.testing.assert_array_equal(once, again)
    assert len({batch.tobytes() for batch in once}) == 20
    first, one, two = (hop.numpy() for hop in graph.sample(nodes, (5, 3), seed=8, batch=0))
    np.testing.assert_array_equal(first, nodes)
    assert (np.concatenate([first, one.ravel(), two.ravel()]) != once[0]).mean() > 0.5
    for parents, children in ((first, one), (one.ravel(), two.reshape(-1, 3))):
        for parent, drawn in zip(parents, children.reshape(len(parents), -1), strict=True):
            assert set(drawn) <= set(graph.neighbours(parent))


def test_walks_and_negatives(tmp_path: Path) -> None:
    graph = make(tmp_path, TRIANGLE, directed=True, nodes=4)
    assert graph.walk([0, 1, 3], 4).numpy().tolist() == [[1, 2, 0, 1], [2, 0, 1, 2], [3, 3, 3, 3]]
    assert set(graph.negatives(200, seed=1).numpy()) == {0, 1, 2}
    uniform = np.bincount(graph.negatives(20_000, seed=1, uniform=True).numpy())
    np.testing.assert_allclose(uniform / 20_000, [0.25] * 4, atol=0.02)
    star = make(tmp_path, [(0, node) for node in range(2, 18)] + [(1, 2)], directed=True)
    drawn = star.negatives(20_000, seed=1).numpy()
    assert (drawn == 0).mean() == pytest.approx(8 / 9, abs=0.02)  # degrees 16 and 1, 16^0.75 = 8
    empty = make(tmp_path, [], nodes=2)
    assert empty.sample([0, 1], (2,))[1].numpy().tolist() == [[0, 0], [1, 1]]
    for bad in (lambda: empty.negatives(3), lambda: graph.negatives(0), lambda: graph.walk([0], 0)):
        with pytest.raises(ValueError, match=r"; give|uniform=True"):
            bad()


BAD_EDGES = [
    (np.ones((2, 2)), {}, "edges is float64, but ids of nodes are integers"),
    (np.array([["a", "b"]]), {}, "ids of nodes are integers"),
    ([[0, 1], [2, -3]], {}, "edges has the id -3 in row 1"),
    ([[0, 1], [7, 2]], {"nodes": 7}, "edges has the id 7 in row 1, but nodes is 7.*give nodes=8"),
    ([0, 1], {}, r"edges has the shape \[2\]"),
    (np.array([[0, 2**64 - 1]], np.uint64), {}, "give ids below 2"),
    ([], {}, "edges is empty and nodes is None"),
    (TRIANGLE, {"nodes": 0}, "nodes is 0"),
    (TRIANGLE, {"nodes": 3.5}, "nodes is 3.5"),
    (TRIANGLE, {"weights": [1, 2]}, "give a number for each of the 3 edges"),
    (TRIANGLE, {"weights": [1, 0, 1]}, "weights has 0 in row 1"),
    (TRIANGLE, {"weights": [1, 1, np.nan]}, "weights has nan in row 2"),
    (TRIANGLE, {"types": [1, 1, 256]}, "types has 256 in row 2"),
    (TRIANGLE, {"types": [0.5, 1, 1]}, "give an integer for each of the 3 edges"),
]


@pytest.mark.parametrize(("edges", "options", "message"), BAD_EDGES)
def test_bad_edges_are_named(tmp_path: Path, edges: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, edges, **options)
    assert not list(tmp_path.iterdir())


def test_bad_draws_are_named(tmp_path: Path) -> None:
    graph = make(tmp_path, TRIANGLE, types=[0, 1, 1])
    for fanouts in ((), 5, (5, 0), (2.5,), ({},), ({0: 0},), ({2: 1},), "25"):
        with pytest.raises(ValueError, match="fanouts is"):
            graph.sample([0], fanouts)
    with pytest.raises(ValueError, match="nodes is float32"):
        graph.sample([0.5], (1,))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"nodes has 3, which is not a node of .*0 to 2"):
        graph.sample([0, 3], (1,))


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.graph"
    with pytest.raises(FileNotFoundError, match=r"cannot open the graph .*a\.graph"):
        Graph.open(path)
    make(tmp_path, TRIANGLE)
    good = path.read_bytes()
    other = tmp_path / "other.graph"
    other.write_bytes(good[:-1])  # GraphTest in C++ has damage of every kind
    with pytest.raises(ValueError, match=f"has {len(good) - 1} bytes and should have {len(good)}"):
        Graph.open(other)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, TRIANGLE)
    real = os.pwrite

    def full(file: int, data: memoryview, offset: int) -> int:
        if offset > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data, offset)

    monkeypatch.setattr(writer_lib.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        make(tmp_path, [[0, 1]])
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["a.graph"]
    assert Graph.open(tmp_path / "a.graph").nodes == 3


def test_a_writer_is_held_to_its_word(tmp_path: Path) -> None:
    with GraphWriter(tmp_path / "a.graph", nodes=2, edges=2) as writer:
        with pytest.raises(ValueError, match="made for 2 and 2"):
            writer.append([1, 2], [1, 0, 0])
        writer.append([1], [1])
        with pytest.raises(ValueError, match="has 1 of 2 nodes and 1 of 2 edges"):
            writer.finish()
    assert not list(tmp_path.iterdir())


def test_file_bytes_change_only_with_version(tmp_path: Path) -> None:
    """Catches a file that another het_tf reads wrong. C++ reads the same bytes (golden_test.cc)."""
    with GraphWriter(tmp_path / "graph", 4, 4, weighted=True, types=3, symmetric=True) as writer:
        writer.append([2, 1], [1, 2, 0], [1.0, 3.0, 1.0], [0, 2, 0])
        writer.append([1, 0], [0], [3.0], [2])
        writer.finish(self_loops=5, duplicates=6)
    encoded, golden = (tmp_path / "graph").read_bytes(), GOLDEN.read_bytes() if GOLDEN.exists() else b""
    raised = golden[8:12] != encoded[8:12]
    if raised and "HET_GOLDEN_WRITE" in os.environ:
        GOLDEN.write_bytes(golden := encoded)
    first = next((i for i in range(len(encoded)) if golden[i : i + 1] != encoded[i : i + 1]), len(encoded))
    assert golden == encoded, (
        f"the format 'graph' has other bytes than {GOLDEN}: they differ from offset {first} on"
        f"{'' if raised else ', and the version in them is the same'}. Remedy: "
        f"{'' if raised else 'raise kVersion (graph_format.h) and _VERSION (writer.py), then '}"
        "HET_GOLDEN_WRITE=1 pytest tests/inputs/test_graph.py -k bytes"
    )
