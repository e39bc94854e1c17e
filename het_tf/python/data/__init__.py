"""Data sets for ranking and retrieval, all in one shape, and graphs (public as `het_tf.data`).

    splits = load("census")       # or "movielens", "gene_papers", "criteo_like[:ROWS]", "criteo:PATH"
    train, valid, test, description = splits
    for inputs, label in train.to_tf(batch_size=128, shuffle=True, seed=0): ...

Every part (`train`, `valid`, `test`) is an `Examples` (arrays in memory: census, movielens, gene_papers) or a
stream of them (`CriteoLikeStream`, `CriteoStream`), and both kinds have

    part.to_tf(batch_size, shuffle=False, seed=0, drop_remainder=False) -> tf.data.Dataset of (inputs, label)
    part.shard(index, count)       the index-th of `count` disjoint parts (one a worker)
    part.read(rows=None)           -> Examples: the first `rows` rows in memory (None: all)
    part.rows                      number of rows, or None where only a full pass would tell

`inputs` is a dict: one int64 `[B]` for each categorical field and each cross, one int64 `[B, L]` for each
sequence field (padded with `PADDING` = -1), and, where there are numeric columns, one float32 `[B, M]` under
the key `NUMERIC` = "numeric". `label` is float32 `[B]`, 0 or 1; `[B, T]` where there are T labels.

`description` is a `Description`, enough to build a model without knowing the data set:

    description.categorical        tuple of Field: the deep part's inputs (and the first-order terms)
    description.crosses            tuple of Field: crossed features, for the wide part only
    description.sequences          tuple of Field with .length = L
    description.numeric            names of the M numeric columns, () if there are none
    description.wide               categorical + crosses
    description.histories          the sequences that share the ids of another field: its history
    description.labels             what 1 means in each label, in words
    description.side(item)         the description of the item's fields alone, or of the user's
    description.inputs()           {name: (shape without the batch, dtype)}, to make the keras.Inputs of

    Field(name, size, crossed, length, shares)   ids are in [0, size); size None: 64-bit hashes, any int64

Ids count from 0 in each field. `offsets(description)` and `shared_ids(examples, description)` move all
fields into one id space, for a model with a single table. Single data sets: `census()`, `movielens()`,
`gene_papers()`, `criteo(path)`, `criteo_like(rows, seed, start)` (an `Examples`), `oracle_logit(examples)`.

Graphs: `Graph` is a file of edges and draws from it, `load_graph(name)` gives a `NodeTask`, a graph with
labelled nodes (`pubmed()`, `blog_catalog()`, `debian_packages()`, `graph_like(nodes, seed)`), and its
`NodeSet.to_tf` and `link_batches` make batches for `het_tf.models.GraphSAGE`.
"""

from het_tf.python.data.census_income import census
from het_tf.python.data.criteo_stream import CriteoLikeStream, criteo_like, criteo_like_description
from het_tf.python.data.criteo_truth import oracle_logit
from het_tf.python.data.criteo_tsv import CriteoStream, criteo
from het_tf.python.data.examples import (
    NUMERIC,
    PADDING,
    Description,
    Examples,
    Field,
    Splits,
    offsets,
    shared_ids,
)
from het_tf.python.data.gene_papers import gene_papers
from het_tf.python.data.graph.blogs import blog_catalog
from het_tf.python.data.graph.citations import pubmed
from het_tf.python.data.graph.generate import graph_like
from het_tf.python.data.graph.graph import Graph
from het_tf.python.data.graph.load import load_graph
from het_tf.python.data.graph.nodes import NodeSet, NodeTask, link_batches
from het_tf.python.data.graph.packages import debian_packages
from het_tf.python.data.graph.writer import GraphWriter
from het_tf.python.data.load import load
from het_tf.python.data.movielens_100k import movielens

__all__ = [
    "NUMERIC",
    "PADDING",
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
    "blog_catalog",
    "census",
    "criteo",
    "criteo_like",
    "criteo_like_description",
    "debian_packages",
    "gene_papers",
    "graph_like",
    "link_batches",
    "load",
    "load_graph",
    "movielens",
    "offsets",
    "oracle_logit",
    "pubmed",
    "shared_ids",
]
