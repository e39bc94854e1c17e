"""Data sets for ranking and retrieval with one interface, and graphs.

    splits = load("census")  # movielens, gene_papers, gene_partners, criteo_like[:ROWS], criteo:PATH
    train, valid, test, description = splits
    for inputs, label in train.to_tf(batch_size=128, shuffle=True, seed=0): ...

Every part (`train`, `valid`, `test`) is an `Examples` (arrays in memory: census, movielens, gene_papers,
gene_partners) or a stream of them (`CriteoLikeStream`, `CriteoStream`), and both kinds have

    part.to_tf(batch_size, shuffle=False, seed=0, drop_remainder=False) -> tf.data.Dataset of (inputs, label)
    part.shard(index, count)       the index-th of `count` disjoint parts (one a worker)
    part.read(rows=None)           -> Examples: the first `rows` rows in memory (None: all)
    part.rows                      number of rows; None if unknown without a full pass

For your own data, `describe(source, label)` returns the description of a CSV, a Parquet file or a DataFrame,
and `tabular(source, description)` its rows as a stream.

`inputs` is a dict: one int64 `[B]` for each categorical field and each cross, one int64 `[B, L]` for each
sequence field (padded with `PADDING` = -1), and, if it has numeric columns, one float32 `[B, M]` under
the key `NUMERIC` = "numeric". Fields of dtype "string" have strings in place of int64, padded with "".
`label` is float32 `[B]`, 0 or 1; `[B, T]` for T labels.

`description` is a `Description`, enough to build a model without knowing the data set:

    description.categorical        tuple of Field: the deep part's inputs (and the first-order terms)
    description.crosses            tuple of Field: crossed features, for the wide part only
    description.sequences          tuple of Field with .length = L
    description.numeric            names of the M numeric columns, () if there are none
    description.wide               categorical + crosses
    description.histories          the sequences that share the ids of another field: its history
    description.labels             the meaning of 1 in each label, in words
    description.side(item)         the description of only the item's fields, or only the user's
    description.inputs()           {name: (shape without the batch, dtype)}, for making keras.Inputs
    description.columns            findings of `describe` in each column

    Field(name, size, crossed, length, shares, dtype)   ids are in [0, size); size None: any int64 or string

Each field has its own ids; a model that reads several fields from one table keeps them apart. Data sets:
`census()`, `movielens()`, `gene_papers()`, `gene_partners()`, `criteo(path)`,
`criteo_like(rows, seed, start)` (an `Examples`). `by_time(splits, field, count)`
cuts all parts into periods.

Graphs: `Graph` is a file of edges and draws from it, `load_graph(name)` gives a `NodeTask`, a graph with
labelled nodes (`pubmed()`, `blog_catalog()`, `debian_packages()`, `graph_like(nodes, seed)`), and its
`NodeSet.to_tf` and `link_batches` make batches for `het_tf.models.GraphSAGE`.
"""

from het_tf.zoo.data import *  # noqa: F403
from het_tf.zoo.data import __all__ as __all__
