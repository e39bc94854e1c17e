"""The workers of a job, as one of them sees them.

    Workers                one process: every collective returns what it is given
      Mesh                 ext/workers/python/mesh.py: connections of our own, on arrays
        TensorMesh         ext/workers/python/mesh_tensors.py: on tensors, by ops of ext/workers/kernels
          Horovod          ext/workers/python/horovod_workers.py: Horovod averages dense gradients

All that het_tf exchanges between workers goes through these methods. Every rank must call them, in the same
order; labels are equal on all ranks, and the n-th exchange of a label meets the n-th of that label on the
other ranks. Called in a graph, they are part of it, one after the other.
"""

import pickle
from typing import Any


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
        """Returns what all ranks gave, in their order; it must pickle. Eager."""
        del label
        return [value]

    def broadcast(self, value: Any, label: str) -> Any:
        """Returns rank 0's value of a tensor, or of an object that pickles. Eager."""
        return self.gather_objects(value if self.rank == 0 else None, label)[0]

    def leave(self) -> None:
        """Tells the other ranks that this process ends."""


def objects(packed: bytes) -> list[Any]:
    """The objects of pickles that lie one after the other."""
    import io

    file, found = io.BytesIO(packed), []
    while file.tell() < len(packed):
        found.append(pickle.load(file))
    return found
