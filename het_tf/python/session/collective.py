"""What the rest needs of Horovod, by the module that `het_tf.init(hvd=hvd)` was given."""

import collections
import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from het_tf.python.session import settings
from het_tf.python.session.native import tf

# Collectives so far of a graph, by kind: their numbers are their names, equal on all ranks.
_counts: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


def required(what: str) -> Any:
    """The module horovod.tensorflow; `what`: who asks, for the message.

    Raises:
      RuntimeError: `het_tf.init(hvd=hvd)` was not called.
    """
    hvd = settings.horovod()
    if hvd is None:
        raise RuntimeError(
            f"{what} needs Horovod; begin the program with: import horovod.tensorflow as hvd; hvd.init(); "
            "het_tf.init(hvd=hvd)"
        )
    return hvd


def name(kind: str) -> str:
    """A name for a collective that is made now: its number among those of its kind in the graph.

    Horovod matches tensors by name. Names that TensorFlow derives contain those of layers, which count up
    differently where one rank has made a layer more; a number of ours does not. Eager collectives run one
    after the other and may share a name.
    """
    if tf.executing_eagerly():  # no count: workers that come later would begin with another
        return f"het_tf.{kind}"
    graph = tf.compat.v1.get_default_graph()
    counter = _counts.setdefault(graph, collections.Counter())
    counter[kind] += 1
    return f"het_tf.{kind}.{counter[kind]}"


def gather(value: Any, label: str) -> list[Any]:
    """The values of all ranks, in their order. Every rank must call it."""
    hvd = settings.horovod()
    if hvd is None or hvd.size() == 1:
        return [value]
    with tf.init_scope():
        return list(hvd.allgather_object(value, name=f"het_tf.{label}"))


@contextlib.contextmanager
def together(label: str, what: str, kind: type[Exception] = RuntimeError) -> Iterator[None]:
    """Every rank leaves it when all have come so far; an error on one of them is raised on all.

    Args:
      label: Of the collective.
      what: What is done, for the message: "rank 1 could not <what>: ...".
      kind: What the error of another rank is raised as.
    """
    failed: Exception | None = None
    try:
        yield
    except Exception as error:  # told to the others first, who would wait for this rank
        failed = error
    of_ranks = gather("" if failed is None else str(failed) or type(failed).__name__, label)
    if failed is not None:
        raise failed
    for rank, text in enumerate(of_ranks):
        if text:
            raise kind(f"rank {rank} could not {what}: {text}")


def sum_over_ranks(values: Any, label: str) -> Any:
    """The sum of an array of numbers over all ranks, as float64. Every rank must call it."""
    hvd = settings.horovod()
    tensor = tf.convert_to_tensor(values, tf.float64)
    if hvd is not None and hvd.size() > 1:
        tensor = hvd.allreduce(tensor, op=hvd.Sum, name=f"het_tf.{label}")
    return tensor.numpy()


def gather_rows(values: Any, label: str) -> Any:
    """Tensors of all ranks one after the other, in their order; the first axes may differ.

    Every rank must call it.
    """
    hvd = settings.horovod()
    tensor = tf.convert_to_tensor(values)
    if hvd is not None and hvd.size() > 1:
        tensor = hvd.allgather(tensor, name=f"het_tf.{label}")
    return tensor


def gradient_scale() -> Any:
    """What the gradients of rows are multiplied by: 1 / workers, or 1.

    A float, or in an elastic job a float32 scalar that is computed when the graph runs.
    """
    hvd = settings.horovod()
    if hvd is None or settings.current.gradient_scale == "sum":
        return 1.0
    if settings.elastic():
        return 1.0 / tf.cast(hvd.size_op(), tf.float32)
    return 1.0 / settings.workers()


def barrier() -> None:
    """Returns on a rank when every rank has called it."""
    sum_over_ranks([0.0], "barrier")
