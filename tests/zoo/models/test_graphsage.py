"""GraphSAGE: the formulas of the paper, its Keras twin, links, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from floats_lib import MODEL, TRAINED, assert_close
from keras_twin import to_keras

import het_tf
from het_tf.inputs.python.graph.graph import Graph
from het_tf.zoo.data.graph.nodes import NodeSet, hops_of, link_batches
from het_tf.zoo.models import GraphSAGE, LinkGraphSAGE, LinkLoss

pytestmark = pytest.mark.slow

keras = tf.keras
NODES, FANOUTS = 60, (4, 3)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Two communities of 30 nodes, even and odd ones."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 30, (300, 2)) * 2 + rng.integers(0, 2, 300)[:, None]
    return Graph.from_edges(tmp_path_factory.mktemp("graph") / "a.graph", ends, NODES)


def labelled() -> NodeSet:
    ids = np.arange(NODES)
    return NodeSet(ids, ids % 2)


def normal(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def rows_of(model: Any, ids: np.ndarray) -> np.ndarray:
    """The input of a node by the formula, independent of the model's code."""
    flat = ids.ravel()
    parts = [het_tf.Table(f"{model.name}/nodes").lookup(flat), model.features.numpy()[flat]]
    return np.concatenate(parts, axis=1).reshape(*ids.shape, -1)


@pytest.mark.parametrize("aggregator", ["mean", "gcn", "pool"])
def test_formula(fresh: np.random.Generator, graph: Graph, aggregator: str) -> None:
    features = fresh.normal(size=(NODES, 5)).astype(np.float32)
    model = GraphSAGE(
        *(NODES, 3, FANOUTS, (7, 6), aggregator),
        embedding_dim=4,
        features=features,
        name="formula",
    )
    hops = graph.sample([3, 8, 8], FANOUTS, seed=1)
    logits = model(hops_of(hops)).numpy()
    layers = []
    for step in model.steps:
        pool = None if step.pool is None else (step.pool.kernel.numpy(), step.pool.bias.numpy())
        layers.append((step.dense.kernel.numpy(), step.dense.bias.numpy(), pool))

    def sage(k: int, own: np.ndarray, others: np.ndarray) -> np.ndarray:
        kernel, bias, pool = layers[k]
        if pool is None:
            gathered = others.mean(axis=0)
        else:
            gathered = np.maximum(others @ pool[0] + pool[1], 0).max(axis=0)
        both = np.concatenate([own, gathered])
        if aggregator == "gcn":
            both = np.concatenate([own[None], others]).mean(axis=0)
        result = both @ kernel + bias
        return normal(np.maximum(result, 0) if k == 0 else result)

    zero, one, two = (rows_of(model, hop.numpy()) for hop in hops)
    for i in range(3):
        hidden = [
            sage(0, one[i, j], two[i, j * FANOUTS[1] : (j + 1) * FANOUTS[1]]) for j in range(FANOUTS[0])
        ]
        z = sage(1, sage(0, zero[i], one[i]), np.stack(hidden))
        expected = z @ model.head.kernel.numpy() + model.head.bias.numpy()
        assert_close(logits[i], expected, MODEL)


def test_sides_learn_the_same(fresh: np.random.Generator, graph: Graph) -> None:
    """One optimizer, the same rows to begin with and the same draws: the same logits after some steps."""
    logits = []
    for side in ("het", "keras"):
        optimizer = het_tf.optimizers.SGD(0.5)
        model = GraphSAGE(
            *(NODES, 2, FANOUTS, 8),
            embedding_dim=4,
            table_optimizer=optimizer,
            seed=5,
        )
        table = het_tf.Table(model.rows.collection.tables[0].name)
        begin = table.lookup(np.arange(NODES))
        if side == "keras":
            to_keras(model)
        batches = labelled().to_tf(graph, 20, FANOUTS, shuffle=True, seed=3)
        model(next(iter(batches))[0])
        model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(batches, epochs=3, verbose=0, shuffle=False)
        probe = hops_of(graph.sample(np.arange(NODES), FANOUTS))
        logits.append(model(probe, training=False).numpy())
        rows = getattr(model.rows.collection, "embeddings", None)
        trained = rows[0].embeddings.numpy() if rows else table.lookup(np.arange(NODES))
        assert np.abs(trained - begin).max() > 0.01
    assert_close(*logits, 8 * TRAINED)


def test_learns_communities_with_look_ahead(fresh: np.random.Generator, graph: Graph, tmp_path: Path) -> None:
    del fresh
    model = GraphSAGE(NODES, 2, FANOUTS, 16, embedding_dim=8, dropout=0.1, name="learns")
    batches = het_tf.lookahead(labelled().to_tf(graph, 20, FANOUTS, shuffle=True), model)
    model.compile(
        keras.optimizers.Adam(0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(batches, epochs=12, verbose=0, shuffle=False).history
    assert history["accuracy"][-1] > 0.95
    het_tf.export(model, tmp_path / "model", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    probe = hops_of(graph.sample([0, 1, 2], FANOUTS))
    (logits,) = served(**probe).values()
    assert_close(logits, model(probe, training=False), MODEL)
    twin = GraphSAGE.from_config({**model.get_config(), "name": None})
    assert {**twin.get_config(), "name": "learns"} == model.get_config()


def test_links_between_near_nodes(fresh: np.random.Generator, graph: Graph) -> None:
    del fresh
    model = LinkGraphSAGE(NODES, negatives=8, fanouts=FANOUTS, units=16, embedding_dim=16, name="links")
    batches = link_batches(graph, np.arange(NODES), 30, FANOUTS, negatives=8, walk_length=3, seed=2)
    assert batches.element_spec[0]["hop_0"].shape == (68,)
    model.compile(keras.optimizers.Adam(0.02), LinkLoss())
    losses = model.fit(batches, epochs=25, verbose=0, shuffle=False).history["loss"]
    assert losses[-1] < 0.85 * losses[0]
    z = model.embed(hops_of(graph.sample(np.arange(NODES), FANOUTS))).numpy()
    near = z @ z.T
    same = np.add.outer(np.arange(NODES), np.arange(NODES)) % 2 == 0
    assert near[same].mean() > near[~same].mean() + 0.3
    loss = LinkLoss()(np.array([[1.0, 0.0]], np.float32), np.array([[2.0, -1.0]], np.float32))
    assert float(loss) == pytest.approx(np.log1p(np.exp(-2.0)) + np.log1p(np.exp(-1.0)), rel=1e-5)
    labels, products = np.array([[1.0, 0, 0]], np.float32), np.array([[2.0, -1.0, 1.0]], np.float32)
    weighted = LinkLoss(weight=3.0)(labels, products)
    negative = (np.log1p(np.exp(-1.0)) + np.log1p(np.exp(1.0))) / 2
    assert float(weighted) == pytest.approx(np.log1p(np.exp(-2.0)) + 3 * negative, rel=1e-5)
    with pytest.raises(ValueError, match="weight is -1"):
        LinkLoss(-1)
    # A classifier of the rows that links have trained, which it leaves as they are.
    before = het_tf.Table("links/nodes").lookup(np.arange(NODES))
    model.rows.trainable = False
    classifier = GraphSAGE(NODES, 2, FANOUTS, 16, rows=model.rows, name="classifier")
    assert classifier.get_config()["rows"]["prefix"] == "links"
    classifier.compile(
        keras.optimizers.Adam(0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    few = labelled().take(slice(0, 20)).to_tf(graph, 20, FANOUTS, shuffle=True)
    classifier.fit(few, epochs=10, verbose=0, shuffle=False)
    assert classifier.evaluate(labelled().to_tf(graph, 60, FANOUTS), verbose=0)[1] > 0.9
    np.testing.assert_array_equal(het_tf.Table("links/nodes").lookup(np.arange(NODES)), before)


def test_bad_arguments() -> None:
    features = np.zeros((5, 2), np.float32)
    for options, message in (
        ({}, "nodes have nothing"),
        ({"features": features}, r"features has the shape \[5, 2\]; give \[60, F\]"),
        ({"embedding_dim": -1}, "embedding_dim is -1"),
        ({"embedding_dim": 4, "fanouts": ()}, r"fanouts is \(\)"),
        ({"embedding_dim": 4, "fanouts": (3, 0)}, r"fanouts is \(3, 0\)"),
        ({"embedding_dim": 4, "units": (8,)}, r"units is \(8,\), but fanouts has 2 hops"),
        ({"embedding_dim": 4, "units": 0}, "units is 0"),
        ({"embedding_dim": 4, "classes": 0}, "classes is 0"),
        ({"embedding_dim": 4, "dropout": 1.0}, "dropout is 1.0"),
        ({"embedding_dim": 4, "l2": -1.0}, "l2 is -1.0"),
        ({"embedding_dim": 4, "aggregator": "sum"}, "aggregator is 'sum'"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphSAGE(NODES, **options)
    with pytest.raises(ValueError, match="nodes is 0"):
        GraphSAGE(0, embedding_dim=4)
    with pytest.raises(ValueError, match="negatives is 0"):
        LinkGraphSAGE(NODES, 0, embedding_dim=4)


def test_batches_repeat_by_run_not_by_pass(graph: Graph) -> None:
    def passes(seed: int) -> list[np.ndarray]:
        batches = labelled().to_tf(graph, 20, FANOUTS, shuffle=True, seed=seed)
        return [np.concatenate([x["hop_2"] for x, _ in batches.as_numpy_iterator()]) for _ in range(2)]

    first, again, other = passes(1), passes(1), passes(2)
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[1]).any() and (first[0] != other[0]).any()
    parts = [labelled().shard(index, 2) for index in range(2)]
    assert sorted(np.concatenate([part.ids for part in parts])) == list(range(NODES))
    with pytest.raises(ValueError, match="batch_size is 100, but there are 60 nodes"):
        link_batches(graph, np.arange(NODES), 100)
    with pytest.raises(ValueError, match="ids is float64"):
        NodeSet(np.zeros(3), np.zeros(3))
