"""GraphSAGE: vectors of nodes from sampled neighbourhoods, to classify nodes and to predict links."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from het_tf import Cache, optimizers
from het_tf.python.checks import is_whole, share, whole, whole_or_none
from het_tf.zoo.data.graph.nodes import hop_name
from het_tf.zoo.models.aggregators import Aggregator, SageLayer
from het_tf.zoo.models.embedding_side import config_of
from het_tf.zoo.models.node_rows import NodeRows

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class GraphSAGE(keras.Model):
    """GraphSAGE (Hamilton, Ying and Leskovec, NIPS 2017, algorithm 2) over sampled neighbourhoods.

        x_v  = [row of v; features of v]
        h^0  = x,  h^k = SageLayer_k(h^{k-1} of v, h^{k-1} of v's neighbours),  k = 1 ... hops
        z_v  = h^hops,  logits = W z_v + b

    Every hop of `fanouts` is a layer. Rows are learned floats of each node, in a table of het_tf; features
    are given. A model has one or both: only features is the paper's inductive setting, only rows
    suits graphs without features, and is the setting of HET (VLDB 2022, section 5.1).

        task = het_tf.data.load_graph("pubmed")
        model = het_tf.models.GraphSAGE(task.graph.nodes, task.classes, features=task.features)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(task.train.to_tf(task.graph, 512, model.fanouts, shuffle=True), epochs=10)

    Two models can share rows: `rows=links.rows` reads the rows that a `LinkGraphSAGE` has trained, and
    `links.rows.trainable = False` freezes them.

    Args:
      nodes: Number of nodes of the graph; ids are in [0, nodes).
      classes: Number of classes, whose logits are the output; None: the output is z.
      fanouts: Sampled neighbours of each node and hop: whole numbers as in `Graph.sample`, or for a dict of
        types the sum of its counts.
      units: Widths of the layers, one a hop; an int: the same for all.
      aggregator: "mean", "gcn" or "pool" (`SageLayer`).
      embedding_dim: Floats of a row; 0: no rows.
      features: float32 [nodes, F], kept as a weight that is not trained; None: none.
      dropout: Share of x and of the hidden vectors to drop in training, in [0, 1).
      l2: L2 of the layers' weights, as in `SageLayer`; rows have none.
      normalize: Whether to scale the vectors of every layer to length 1 (algorithm 1, line 7).
      rows: Rows of another model; then `embedding_dim`, `table_optimizer` and `cache` are ignored.
      table_optimizer: Optimizer of the table `NAME/nodes`, one of `het_tf.optimizers` or its name; None:
        `RowWiseAdagrad()`, and beside features `RowWiseAdagrad(0.003, decay_steps=1)`: with a larger rate
        rows memorise the few labelled nodes.
      cache: Cache of the table; None: `het_tf.Cache()`.
      seed: Seed of initial rows and weights.
      name: Name of the model, and prefix of its table's name. Two models of one name share it. None: the
        model has its own table, which is removed with it.

    Call arguments:
      inputs: A dict: int64 [B] "hop_0", [B, f1] "hop_1", [B, f1 * f2] "hop_2", ..., from
        `NodeSet.to_tf`.

    Returns:
      Logits, float32 [B, classes], or z, float32 [B, units of the last layer].

    Raises:
      ValueError: An argument is out of range; the message gives the legal values.
    """

    default_name = "graphsage"

    def __init__(
        self,
        nodes: int,
        classes: int | None = None,
        fanouts: Sequence[int] = (25, 10),
        units: int | Sequence[int] = 128,
        aggregator: Aggregator = "mean",
        embedding_dim: int = 0,
        features: Any = None,
        dropout: float = 0.0,
        l2: float = 0.0,
        normalize: bool = True,
        rows: NodeRows | None = None,
        table_optimizer: Any = None,
        cache: Cache | None = None,
        seed: int = 0,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or self.default_name, **kwargs)
        self._is_named = name is not None
        self.fanouts = tuple(fanouts)
        widths = (units,) * len(self.fanouts) if isinstance(units, int) else tuple(units)
        shape = None if features is None else tuple(np.shape(features))
        if rows is not None:
            embedding_dim = rows.dim
        _check(nodes, classes, self.fanouts, widths, embedding_dim, shape, dropout)
        if l2 < 0:
            raise ValueError(f"l2 is {l2}; give 0 or more")
        if table_optimizer is None and features is not None:
            table_optimizer = optimizers.RowWiseAdagrad(0.003, decay_steps=1)
        self.table_optimizer = optimizers.get(table_optimizer)
        self._arguments: dict[str, Any] = {
            "nodes": nodes,
            "classes": classes,
            "fanouts": list(self.fanouts),
            "units": list(widths),
            "aggregator": aggregator,
            "embedding_dim": embedding_dim,
            "dropout": dropout,
            "l2": l2,
            "normalize": normalize,
            "cache": config_of(cache),
            "seed": seed,
        }
        self.features = self._make_features(features)
        self.rows = rows
        self._shares = rows is not None
        if embedding_dim and rows is None:
            made = (embedding_dim, self.name, self.table_optimizer, cache)
            self.rows = NodeRows(*made, seed=seed, named=self._is_named, name="rows")
        self._make_layers(widths)
        self.build()  # all shapes are known, so weights can be broadcast before the first call

    def _make_features(self, features: Any) -> Any:
        if features is None:
            return None
        shape = np.shape(features)
        made = self.add_weight(name="features", shape=shape, initializer="zeros", trainable=False)
        made.assign(np.asarray(features, np.float32))
        return made

    def _make_layers(self, widths: tuple[int, ...]) -> None:
        of = self._arguments
        seed, dropout, classes = of["seed"], of["dropout"], of["classes"]
        self.drop = keras.layers.Dropout(dropout, seed=seed) if dropout else None
        self.steps = []
        for k, width in enumerate(widths):
            activation = None if k + 1 == len(widths) else "relu"
            options = (of["aggregator"], activation, of["normalize"], of["l2"], seed + 10 * k)
            self.steps.append(SageLayer(width, *options, name=f"sage_{k + 1}"))
        self.head = None
        if classes is not None:
            glorot = keras.initializers.GlorotUniform(seed=seed + 7)
            self.head = keras.layers.Dense(classes, kernel_initializer=glorot, name="logits")

    @property
    def hops(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(hop_name(number) for number in range(len(self.fanouts) + 1))

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights, whose shapes do not depend on the inputs."""
        width = self._arguments["embedding_dim"] + (
            0 if self.features is None else int(self.features.shape[1])
        )
        if self.rows is not None and not self.rows.built:
            self.rows.build(None)
        for step in self.steps:
            step.build([(None, width), (None, None, width)])
            width = step.units
        if self.head is not None:
            self.head.build((None, width))
        self.built = True

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        vectors = self.embed(inputs, training)
        return vectors if self.head is None else tf.cast(self.head(vectors), tf.float32)

    def embed(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """Returns the vectors z of the nodes of "hop_0", float [B, units]; arguments as in a call."""
        hidden = self._flat_inputs(inputs, training)
        for k, step in enumerate(self.steps):
            reached = zip(hidden[:-1], hidden[1:], self.fanouts, strict=False)
            hidden = [
                step([own, tf.reshape(others, [-1, fanout, int(others.shape[-1])])])
                for own, others, fanout in reached
            ]
            if self.drop is not None and k < len(self.steps) - 1:
                hidden = [self.drop(vectors, training=training) for vectors in hidden]
        return hidden[0]

    def _flat_inputs(self, inputs: Mapping[str, Any], training: Any) -> list[Any]:
        """Returns x of every hop, float [nodes of the hop, d]."""
        ids = {name: inputs[name] for name in self.hops}
        parts: list[list[Any]] = [[] for _ in self.hops]
        if self.rows is not None:
            for part, rows in zip(parts, self.rows(ids), strict=True):
                part.append(tf.reshape(rows, [-1, self._arguments["embedding_dim"]]))
        if self.features is not None:
            features = tf.convert_to_tensor(self.features)
            for part, nodes in zip(parts, ids.values(), strict=True):
                part.append(tf.gather(features, tf.reshape(nodes, [-1])))
        flat = [part[0] if len(part) == 1 else tf.concat(part, axis=-1) for part in parts]
        return flat if self.drop is None else [self.drop(x, training=training) for x in flat]

    def input_specs(self) -> dict[str, Any]:
        """The inputs of the model for `het_tf.export`: a `tf.TensorSpec` for each."""
        widths = np.cumprod(self.fanouts).tolist()
        shapes = [[None], *([None, width] for width in widths)]
        return {
            name: tf.TensorSpec(shape, tf.int64, name) for name, shape in zip(self.hops, shapes, strict=True)
        }

    # --- configuration --------------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The model's arguments. The table is named, not contained; features are only their shape."""
        return {
            "name": self.name if self._is_named else None,
            **self._arguments,
            "features": None if self.features is None else list(self.features.shape),
            "rows": self.rows.get_config() if self.rows is not None and self._shares else None,
            "table_optimizer": self.table_optimizer.get_config(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """The inverse of `get_config`; features are zeros until weights are loaded."""
        del custom_objects
        shape = config["features"]
        features = None if shape is None else np.zeros(shape, np.float32)
        rows = config.get("rows") and NodeRows.from_config(config["rows"])
        return cls(
            **{**config, "features": features, "rows": rows, "cache": Cache.from_config(config["cache"])}
        )


@keras.utils.register_keras_serializable(package="het_tf")
class LinkGraphSAGE(GraphSAGE):
    """GraphSAGE trained without labels to distinguish a node's neighbours from other nodes.

    Called on batches of `het_tf.data.link_batches`, nodes u, their partners v and Q negatives n, it returns
    products of their vectors: z_u . z_v, z_u . z_n1, ..., z_u . z_nQ. Compile it with `LinkLoss`.

    Args:
      nodes: Number of nodes of the graph.
      negatives: Q, the negatives that the pairs of a batch share.
      **kwargs: As in `GraphSAGE`, without classes.

    Call arguments:
      inputs: As in `GraphSAGE`, with 2 B + Q nodes in "hop_0".

    Returns:
      float32 [B, 1 + Q]. `embed(inputs)` gives z of any nodes.
    """

    default_name = "link_graphsage"

    def __init__(self, nodes: int, negatives: int = 20, **kwargs: Any) -> None:
        kwargs.pop("classes", None)
        super().__init__(nodes, None, **kwargs)
        self.negatives = whole("negatives", negatives, what="the number of negatives of a batch")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        vectors = self.embed(inputs, training)
        pairs = (tf.shape(vectors)[0] - self.negatives) // 2
        near, partner, other = tf.split(vectors, [pairs, pairs, self.negatives])
        positive = tf.reduce_sum(near * partner, axis=-1, keepdims=True)
        products = tf.concat([positive, tf.matmul(near, other, transpose_b=True)], axis=-1)
        return tf.cast(tf.ensure_shape(products, [None, 1 + self.negatives]), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """The model's arguments."""
        return {**super().get_config(), "negatives": self.negatives}


@keras.utils.register_keras_serializable(package="het_tf")
class LinkLoss(keras.losses.Loss):
    """The unsupervised loss of GraphSAGE (Hamilton et al. 2017, equation 1), a mean over pairs.

        -log sigmoid(z_u . z_v) - weight * mean_q log sigmoid(-z_u . z_nq)

    Args:
      weight: Weight of the negatives; None: their number, the paper's sum over them. If negatives far
        outnumber partners, vectors are pushed apart more than drawn together; 1 balances the two.
      **kwargs: As in any Keras loss.

    Call arguments:
      y_true: float [B, 1 + Q]: 1 for partners, 0 for negatives.
      y_pred: float [B, 1 + Q], the output of `LinkGraphSAGE`.
    """

    def __init__(self, weight: float | None = None, name: str = "link_loss", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        if weight is not None and weight < 0:
            raise ValueError(f"weight is {weight}; give 0 or more, or None for the number of negatives")
        self.weight = weight

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of each pair, float [B]."""
        labels = tf.cast(y_true, y_pred.dtype)
        terms = tf.nn.sigmoid_cross_entropy_with_logits(labels, y_pred)
        if self.weight is None:
            return tf.reduce_sum(terms, axis=-1)
        return terms[:, 0] + self.weight * tf.reduce_mean(terms[:, 1:], axis=-1)

    def get_config(self) -> dict[str, Any]:
        """The loss's arguments."""
        return {**super().get_config(), "weight": self.weight}


def _check(
    nodes: int,
    classes: int | None,
    fanouts: tuple[int, ...],
    units: tuple[int, ...],
    embedding_dim: int,
    features: tuple[int, ...] | None,
    dropout: float,
) -> None:
    """Raises ValueError if an argument is out of range."""
    whole("nodes", nodes, what="the nodes of the graph")
    whole_or_none("classes", classes, otherwise="None for vectors")
    if not fanouts or not all(is_whole(fanout, 1) for fanout in fanouts):
        raise ValueError(f"fanouts is {fanouts}; give the neighbours of each hop, such as (25, 10)")
    if len(units) != len(fanouts):
        raise ValueError(f"units is {units}, but fanouts has {len(fanouts)} hops; give one width a hop")
    whole("embedding_dim", embedding_dim, 0, what="the floats of a row, or 0 for no rows")
    if features is None and not embedding_dim:
        raise ValueError("embedding_dim is 0 and features is None: nodes have nothing; give one, or both")
    if features is not None and (len(features) != 2 or features[0] != nodes):
        raise ValueError(f"features has the shape {list(features)}; give [{nodes}, F], a row a node")
    share("dropout", dropout)
