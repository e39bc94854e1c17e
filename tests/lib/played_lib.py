"""Horovod for tests in one process: this process is one rank, the others are played."""

from __future__ import annotations

import types

import numpy as np
import tensorflow as tf


class Played(types.ModuleType):
    """Horovod of `ranks` ranks, this process being `me`; the others do as it does, unless told to differ.

    Attributes:
      reduced: Names of all tensors that were all-reduced, when traced.
      others: Called with what this rank gathers; returns what the other ranks gather.
      gives: Called with the tensor that this rank gathers; returns that of each other rank.
      extra: What the other ranks add to a sum, by a part of the name.
    """

    Average, Sum = "average", "sum"

    def __init__(self, ranks=2, me=0):
        super().__init__("horovod.tensorflow")
        self.ranks, self.me = ranks, me
        self.initialized = True
        self.reduced: list[str] = []
        self.gathered: list[str] = []
        self.others = lambda value: [value] * (ranks - 1)
        self.gives = lambda tensor: tensor
        self.extra: dict[str, np.ndarray] = {}

    def is_initialized(self):
        return self.initialized

    def size(self):
        return self.ranks

    def rank(self):
        return self.me

    def allreduce(self, tensor, op, name, ignore_name_scope=False):
        self.reduced.append(name)
        for part, value in self.extra.items():
            if part in name:
                return tensor + value
        return tensor * (1 if op == self.Average else self.ranks)

    def allgather(self, tensor, name, ignore_name_scope=False):
        self.gathered.append(name)
        of_ranks = [tensor if rank == self.me else self.gives(tensor) for rank in range(self.ranks)]
        return tf.concat(of_ranks, 0)

    def allgather_object(self, value, name=None):
        self.gathered.append(name)
        found = list(self.others(value))
        found.insert(self.me, value)
        return found

    def broadcast(self, tensor, root_rank, name):
        return tensor if self.me == root_rank else tf.zeros_like(tensor)

    def broadcast_object(self, value, root_rank, name):
        return value
