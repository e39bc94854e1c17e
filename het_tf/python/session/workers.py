"""The workers of a job, as one of them sees them.

    Workers                one process: every collective returns what it is given
      Mesh                 ext/workers/python/mesh.py: connections of our own, on arrays
        TensorMesh         ext/workers/python/mesh_tensors.py: on tensors, by ops of ext/workers/kernels
          Horovod          ext/workers/python/horovod_workers.py: Horovod averages dense gradients

All that het_tf exchanges between workers goes through these methods. Every rank must call them, in the same
order; labels are equal on all ranks, and the n-th exchange of a label meets the n-th of that label on the
other ranks. Called in a graph, they are part of it, one after the other.

What travels is arrays and JSON. No rank evaluates what another has sent.
"""

import json
from typing import Any

import numpy as np


class Workers:
    """One process; the base of what connects several.

    Attributes:
      rank: Number of this worker, from 0.
      size: Number of workers.
    """

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return 0

    @property
    def size(self) -> int:
        """Number of workers."""
        return 1

    def mean(self, gradients: list[Any], label: str) -> list[Any]:
        """Averages dense tensors and IndexedSlices over all ranks."""
        del label
        return gradients

    def sum(self, value: Any, label: str) -> Any:
        """Sums a tensor over all ranks."""
        del label
        return value

    def gather(self, value: Any, label: str) -> Any:
        """Concatenates the tensors of all ranks in their order; the first axes may differ."""
        del label
        return value

    def gather_objects(self, value: Any, label: str) -> list[Any]:
        """Returns what all ranks gave, in their order. Eager.

        Args:
          value: For JSON: tuples arrive as lists, and a dict's names as strings.
          label: Of the collective.

        Raises:
          TypeError: It is nothing for JSON.
        """
        del label
        return [value]

    def broadcast(self, value: Any, label: str) -> Any:
        """Returns rank 0's value of a tensor, or of an object as of `gather_objects`. Eager."""
        return self.gather_objects(value if self.rank == 0 else None, label)[0]

    def leave(self) -> None:
        """Tells the other ranks that this process ends."""


def packed(value: Any, label: str) -> bytes:
    """Returns a line of JSON. TypeError: the value is nothing for it."""

    def number(one: Any) -> Any:
        if isinstance(one, np.generic):
            return one.item()
        raise TypeError(f"a {type(one).__name__} is in it")

    try:
        return json.dumps(value, default=number).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise TypeError(f"collective {label} takes a value for JSON, and not this: {error}") from None


def objects(lines: bytes, size: int) -> list[Any]:
    """Returns the objects of the lines of all ranks.

    Raises:
      ValueError: A rank has sent something else.
    """
    try:
        found = [json.loads(line) for line in lines.splitlines()]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a rank has sent what is no JSON: {error}") from None
    if len(found) != size:
        raise ValueError(f"{size} ranks have sent {len(found)} lines of JSON; run one version on all")
    return found
