"""The data sets that `het_tf.data` describes."""

from het_tf.inputs.python.graph.graph import Graph
from het_tf.inputs.python.graph.writer import GraphWriter
from het_tf.zoo.data.by_time import by_time
from het_tf.zoo.data.census_income import census
from het_tf.zoo.data.criteo_stream import CriteoLikeStream, criteo_like, criteo_like_description
from het_tf.zoo.data.criteo_tsv import CriteoStream, criteo
from het_tf.zoo.data.examples import (
    NUMERIC,
    PADDING,
    Column,
    Description,
    Examples,
    Field,
    Splits,
)
from het_tf.zoo.data.gene_papers import gene_papers
from het_tf.zoo.data.gene_partners import gene_partners
from het_tf.zoo.data.graph.blogs import blog_catalog
from het_tf.zoo.data.graph.citations import pubmed
from het_tf.zoo.data.graph.generate import graph_like
from het_tf.zoo.data.graph.load import load_graph
from het_tf.zoo.data.graph.nodes import NodeSet, NodeTask, link_batches
from het_tf.zoo.data.graph.packages import debian_packages
from het_tf.zoo.data.load import load
from het_tf.zoo.data.movielens_100k import movielens
from het_tf.zoo.data.tabular import TabularStream, describe, tabular

__all__ = [
    "NUMERIC",
    "PADDING",
    "Column",
    "CriteoLikeStream",
    "CriteoStream",
    "Description",
    "Examples",
    "Field",
    "Graph",
    "GraphWriter",
    "NodeSet",
    "NodeTask",
    "Splits",
    "TabularStream",
    "blog_catalog",
    "by_time",
    "census",
    "criteo",
    "criteo_like",
    "criteo_like_description",
    "debian_packages",
    "describe",
    "gene_papers",
    "gene_partners",
    "graph_like",
    "link_batches",
    "load",
    "load_graph",
    "movielens",
    "pubmed",
    "tabular",
]
