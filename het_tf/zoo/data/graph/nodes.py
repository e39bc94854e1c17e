"""Labelled nodes of a graph, and batches to train GraphSAGE models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from het_tf.inputs.python.graph.graph import Fanout, Graph
from het_tf.python.checks import whole
from het_tf.zoo.data.checks import check_shard

if TYPE_CHECKING:
    import tensorflow as tf

Int64Array = npt.NDArray[np.int64]


HOP = "hop_"
"""Prefix of the names of inputs that are nodes."""


def hop_name(number: int) -> str:
    """Name of the input with the nodes of a hop; "hop_0" is the batch."""
    return f"{HOP}{number}"


@dataclasses.dataclass(frozen=True)
class NodeSet:
    """Some nodes with their labels.

    Attributes:
      ids: int64 [N].
      labels: int64 [N], a class of each; or float32 [N, classes] of 0 and 1, if a node may have several.
    """

    ids: Int64Array
    labels: npt.NDArray[Any]

    def __post_init__(self) -> None:
        if self.ids.dtype != np.int64 or self.ids.ndim != 1 or len(self.labels) != len(self.ids):
            raise ValueError(
                f"ids is {self.ids.dtype}{list(self.ids.shape)}, labels has {len(self.labels)} rows; give "
                "ids as int64 [N], and N labels"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def rows(self) -> int:
        """The number of nodes."""
        return len(self.ids)

    def take(self, indices: npt.ArrayLike | slice) -> NodeSet:
        """Returns the nodes at `indices`: integers, a boolean mask, or a slice."""
        index: Any = indices if isinstance(indices, slice) else np.asarray(indices)
        return NodeSet(self.ids[index], self.labels[index])

    def shard(self, index: int, count: int) -> NodeSet:
        """Returns the `index`-th of `count` disjoint equal parts (the last `N % count` drop out).

        Raises:
          ValueError: index is not in [0, count).
        """
        check_shard(index, count)
        return self.take(slice(index, len(self) - len(self) % count, count))

    def to_tf(
        self,
        graph: Graph,
        batch_size: int,
        fanouts: Sequence[Fanout] = (25, 10),
        shuffle: bool = False,
        seed: int = 0,
        drop_remainder: bool = False,
    ) -> tf.data.Dataset:
        """Returns batches of nodes with their sampled neighbourhoods.

        Neighbours are drawn anew in each pass over the data set, several batches at a time, and are equal
        in all runs with the same seed.

        Args:
          graph: The graph of the neighbours.
          batch_size: Nodes of a batch; the last one may be smaller.
          fanouts: Draws of each hop, as in `Graph.sample`.
          shuffle: Whether to shuffle the nodes, differently in each pass.
          seed: Seed of order and draws.
          drop_remainder: Leaves a smaller last batch out.

        Returns:
          A tf.data.Dataset of ({"hop_0": int64 [B], "hop_1": int64 [B, f1], ...}, labels).

        Raises:
          ValueError: batch_size is not an integer of 1 or more; fanouts as in `Graph.sample`.
        """
        return self.samples(graph, fanouts, shuffle, seed).to_tf(batch_size, drop_remainder)

    def samples(
        self,
        graph: Graph,
        fanouts: Sequence[Fanout] = (25, 10),
        shuffle: bool = False,
        seed: int = 0,
        community: npt.ArrayLike | None = None,
    ) -> NodeSamples:
        """Returns the nodes with their sampled neighbourhoods, to be placed by `het_tf.workers.shard`.

            samples = task.train.samples(task.graph, shuffle=True, community=task.graph.communities())
            batches = het_tf.workers.shard(samples, by="community", batch=512)

        Every rank draws the neighbourhoods of all nodes, with one seed.

        Args:
          graph: As in `to_tf`.
          fanouts: As in `to_tf`.
          shuffle: As in `to_tf`.
          seed: As in `to_tf`.
          community: Integers [nodes of the graph]; adds the field "community" to samples.

        Raises:
          ValueError: fanouts as in `Graph.sample`; community does not have a value for each node.
        """
        graph.check_fanouts(fanouts)
        of_nodes = None if community is None else np.asarray(community, np.int64)
        if of_nodes is not None and of_nodes.shape != (graph.nodes,):
            raise ValueError(
                f"community has the shape {list(of_nodes.shape)}; give an integer for each of the "
                f"{graph.nodes:,} nodes, such as graph.communities()"
            )
        return NodeSamples(self, graph, tuple(fanouts), shuffle, seed, of_nodes)


@dataclasses.dataclass(frozen=True)
class NodeSamples:
    """Nodes and the draws of their neighbourhoods; made by `NodeSet.samples`, which explains the fields."""

    nodes: NodeSet
    graph: Graph
    fanouts: tuple[Fanout, ...]
    shuffle: bool
    seed: int
    community: Int64Array | None

    def to_tf(self, batch_size: int, drop_remainder: bool = False) -> tf.data.Dataset:
        """Returns batches like `NodeSet.to_tf`, with the field "community" if it is given."""
        import tensorflow as tf

        whole("batch_size", batch_size, what="the rows of a batch")
        fields = {} if self.community is None else {"community": self.community[self.nodes.ids]}
        nodes = tf.data.Dataset.from_tensor_slices((self.nodes.ids, fields, self.nodes.labels))
        if self.shuffle:
            nodes = nodes.shuffle(len(self.nodes), seed=self.seed, reshuffle_each_iteration=True)
        batches = nodes.batch(batch_size, drop_remainder)

        def sample(number: tf.Tensor, batch: tuple[Any, Any, Any]) -> tuple[dict[str, Any], Any]:
            ids, fields, labels = batch
            hops = self.graph.sample(ids, self.fanouts, self.seed, number)
            return {**fields, **hops_of(hops)}, labels

        return (
            tf.data.Dataset.zip((batch_numbers(self.seed), batches))
            .map(sample, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )


@dataclasses.dataclass(frozen=True)
class NodeTask:
    """A graph with classes of its nodes.

    Attributes:
      name: Name of the data set.
      graph: Its edges.
      classes: Number of classes.
      multi_label: Whether a node may have several classes; labels are then float32 [N, classes].
      train, valid, test: Disjoint sets of nodes.
      features: float32 [nodes, F], or None.
      label: The meaning of the classes, in words.
    """

    name: str
    graph: Graph
    classes: int
    multi_label: bool
    train: NodeSet
    valid: NodeSet
    test: NodeSet
    features: npt.NDArray[np.float32] | None
    label: str


def hops_of(hops: Sequence[Any]) -> dict[str, Any]:
    """Returns the inputs of a model: the nodes of each hop by name."""
    return {hop_name(number): nodes for number, nodes in enumerate(hops)}


def batch_numbers(seed: int) -> tf.data.Dataset:
    """Returns endless numbers of batches: equal in all runs, different in each pass."""
    import tensorflow as tf

    return tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)


def link_batches(
    graph: Graph,
    nodes: npt.ArrayLike,
    batch_size: int,
    fanouts: Sequence[Fanout] = (25, 10),
    negatives: int = 20,
    walk_length: int = 5,
    seed: int = 0,
    uniform: bool = False,
) -> tf.data.Dataset:
    """Returns batches for link prediction (Hamilton et al. 2017, section 3.2), to train a `LinkGraphSAGE`.

    A pair is a node u and a node that a random walk from u meets within `walk_length` steps. All pairs of a
    batch share `negatives` nodes, drawn by degree^0.75.

    Args:
      graph: The graph of the neighbours.
      nodes: Integers [N], starts of the walks; each once a pass, in a different order.
      batch_size: Pairs of a batch; a smaller last one is left out.
      fanouts: As in `Graph.sample`.
      negatives: Number of negatives that the pairs of a batch share.
      walk_length: Steps of a walk.
      seed: Seed of order and draws.
      uniform: Draw negatives uniformly from all nodes.

    Returns:
      A tf.data.Dataset of ({"hop_0": int64 [2 * B + negatives], "hop_1": ...}, float32 [B, 1 + negatives]):
      the nodes u, then their partners, then the negatives; labels are 1 in the first column and 0 in others.

    Raises:
      ValueError: A number is not an integer of 1 or more; there are fewer nodes than a batch has.
    """
    import tensorflow as tf

    whole("batch_size", batch_size, what="the rows of a batch")
    graph.check_fanouts(fanouts)
    ids = np.asarray(nodes, np.int64)
    if len(ids) < batch_size:
        raise ValueError(f"batch_size is {batch_size}, but there are {len(ids)} nodes; give a smaller one")
    starts = tf.data.Dataset.from_tensor_slices(ids).shuffle(len(ids), seed=seed)
    label = np.zeros((batch_size, 1 + negatives), np.float32)
    label[:, 0] = 1

    def sample(number: tf.Tensor, near: tf.Tensor) -> tuple[dict[str, Any], Any]:
        walk = graph.walk(near, walk_length, seed, number)
        step = tf.random.stateless_uniform(
            [batch_size], tf.stack([number, tf.cast(seed, tf.int64)]), 0, walk_length, tf.int64
        )
        partners = tf.gather(walk, step, batch_dims=1)
        others = graph.negatives(negatives, seed, number, uniform)
        hops = graph.sample(tf.concat([near, partners, others], axis=0), fanouts, seed + 1, number)
        return hops_of(hops), tf.constant(label)

    return (
        tf.data.Dataset.zip((batch_numbers(seed), starts.batch(batch_size, drop_remainder=True)))
        .map(sample, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )
