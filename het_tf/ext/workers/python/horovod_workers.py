"""Workers under Horovod: ranks of horovodrun or mpirun."""

from typing import Any

from het_tf.python.session.native import tf
from het_tf.python.session.workers import Workers

# Types that Horovod can broadcast; others, such as Keras' uint32 seeds, go as Python objects.
_DTYPES = {"uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"}


class Horovod(Workers):
    """The ranks of Horovod.

    Args:
      hvd: The module horovod.tensorflow, initialised.
    """

    kind = "Horovod"

    def __init__(self, hvd: Any) -> None:
        self.hvd = hvd

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return int(self.hvd.rank())

    @property
    def size(self) -> int:
        """Number of workers."""
        return int(self.hvd.size())

    def mean(self, gradients: list[Any], label: str) -> list[Any]:
        """As Workers.mean."""
        reduced = [
            self.hvd.allreduce(one, op=self.hvd.Average, name=f"{label}.{number}", ignore_name_scope=True)
            for number, one in enumerate(gradients)
        ]
        _keep(reduced)
        return reduced

    def sum(self, value: Any, label: str) -> Any:
        """As Workers.sum."""
        total = self.hvd.allreduce(value, op=self.hvd.Sum, name=label, ignore_name_scope=True)
        _keep([total])
        return total

    def gather(self, value: Any, label: str) -> Any:
        """As Workers.gather."""
        return self.hvd.allgather(value, name=label, ignore_name_scope=True)

    def exchange(self, payload: Any, splits: Any, label: str) -> tuple[Any, Any]:
        """As Workers.exchange."""
        received, lengths = self.hvd.alltoall(payload, splits, name=label, ignore_name_scope=True)
        return received, lengths

    def gather_objects(self, value: Any, label: str) -> list[Any]:
        """As Workers.gather_objects."""
        with tf.init_scope():
            return list(self.hvd.allgather_object(value, name=label))

    def broadcast(self, value: Any, label: str) -> Any:
        """As Workers.broadcast."""
        if tf.is_tensor(value) and value.dtype.name in _DTYPES:
            return self.hvd.broadcast(value, root_rank=0, name=label)
        value = value.numpy() if tf.is_tensor(value) else value
        return self.hvd.broadcast_object(value, root_rank=0, name=label)

    def leave(self) -> None:
        """As Workers.leave."""
        # As at every exit under Horovod. A rank that still waits for this one learns of its exit now, not
        # after rank 0 has waited for all others.
        self.hvd.shutdown()


def _keep(reduced: list[Any]) -> None:
    """Makes a graph run these all-reduces.

    Grappler removes an op without side effects if no op with side effects uses its data. An assertion
    has side effects: it takes the first number of each.
    """
    if tf.executing_eagerly() or not reduced:
        return
    values = [one.values if isinstance(one, tf.IndexedSlices) else one for one in reduced]
    tf.raw_ops.Assert(condition=True, data=[tf.reshape(value, [-1])[:1] for value in values])
