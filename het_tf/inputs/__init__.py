"""Graphs: `Graph`, a file of edges that draws neighbours in tf.data, and `GraphWriter`, which writes one."""

from het_tf.inputs.python.graph.graph import Graph
from het_tf.inputs.python.graph.writer import GraphWriter

__all__ = ["Graph", "GraphWriter"]
