"""Workers for tests in one process: this process is one rank, the others are played."""

import numpy as np
import tensorflow as tf

from het_tf.python.session.workers import Workers, objects, packed


class Played(Workers):
    """`ranks` ranks, this process being `me`; the others do as it does, unless told to differ.

    Attributes:
      reduced: Labels of all tensors that were summed or averaged, when traced.
      gathered: Labels of what was gathered.
      others: Called with the object that this rank gathers; returns what the other ranks gather.
      gives: Called with the tensor that this rank gathers; returns that of each other rank.
      extra: What the other ranks add to a sum, by a part of the label.
    """

    def __init__(self, ranks=2, me=0):
        self.ranks, self.me = ranks, me
        self.reduced: list[str] = []
        self.gathered: list[str] = []
        self.others = lambda value: [value] * (self.ranks - 1)
        self.gives = lambda tensor: tensor
        self.extra: dict[str, np.ndarray] = {}

    @property
    def rank(self):
        return self.me

    @property
    def size(self):
        return self.ranks

    def mean(self, gradients, label):
        self.reduced += [f"{label}.{number}" for number in range(len(gradients))]
        return tf.nest.map_structure(tf.identity, gradients)  # ops, as an exchange is one

    def sum(self, value, label):
        self.reduced.append(label)
        for part, more in self.extra.items():
            if part in label:
                return value + more
        return value * self.ranks

    def gather(self, value, label):
        self.gathered.append(label)
        of_ranks = [value if rank == self.me else self.gives(value) for rank in range(self.ranks)]
        return tf.concat(of_ranks, 0)

    def gather_objects(self, value, label):
        self.gathered.append(label)
        found = list(self.others(value))
        found.insert(self.me, value)
        return objects(b"".join(packed(one, label) for one in found), self.ranks)  # as it arrives

    def broadcast(self, value, label):
        """The played rank 0 has zeros, and the objects of this one."""
        return tf.zeros_like(value) if tf.is_tensor(value) and self.me else value
