"""`load_graph`: loads a graph with labelled nodes by its name on the command line."""

from __future__ import annotations

from het_tf.zoo.data.graph.blogs import blog_catalog
from het_tf.zoo.data.graph.citations import pubmed
from het_tf.zoo.data.graph.generate import graph_like
from het_tf.zoo.data.graph.nodes import NodeTask
from het_tf.zoo.data.graph.packages import debian_packages

GRAPHS = ("pubmed", "blogcatalog", "debian", "graph_like")
GRAPH_LIKE_NODES = 100_000
CHOICES = "pubmed, blogcatalog, debian, graph_like or graph_like:NODES"


def load_graph(name: str, seed: int = 0) -> NodeTask:
    """Loads a graph for classification of its nodes.

    Args:
      name: "pubmed", "blogcatalog", "debian", "graph_like" or "graph_like:NODES" (default: 100,000).
      seed: Seed of graph_like's edges and classes; the splits of the others are fixed.

    Returns:
      Graph, labelled nodes, and features if it has any.

    Raises:
      ValueError: The data set does not exist.
      RuntimeError: The data can be neither found nor made; the message has the command that gets them.
    """
    kind, colon, argument = name.partition(":")
    if kind == "graph_like":
        digits = argument.replace("_", "") if colon else str(GRAPH_LIKE_NODES)
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"{name!r}: NODES is {argument!r}; give a number, as in graph_like:100000")
        return graph_like(int(digits), seed)
    loaders = {"pubmed": pubmed, "blogcatalog": blog_catalog, "debian": debian_packages}
    if kind not in loaders or colon:
        raise ValueError(f"there is no graph {name!r}; give {CHOICES}")
    return loaders[kind]()
