"""The collectives of het_tf, through the Horovod that `het_tf.init` has found."""

import collections
import contextlib
import importlib
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from het_tf.python.session import settings
from het_tf.python.session.native import tf

# Number of collectives of a graph so far, by kind: it makes names that are equal on all ranks.
_counts: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


def find_horovod() -> Any:
    """Returns the module horovod.tensorflow, initialised, if this process is one of its ranks; else None.

    Raises:
      RuntimeError: The process was started as a rank, but Horovod does not import or is built without MPI.
    """
    hvd = sys.modules.get("horovod.tensorflow")
    if hvd is not None and hvd.is_initialized():
        return hvd
    launched = _launched_ranks()
    if launched == 1 and not settings.is_elastic_job():
        return None
    try:
        hvd = importlib.import_module("horovod.tensorflow")
    except ImportError as error:
        raise RuntimeError(
            f"this process is one of {launched} ranks, but Horovod does not import ({error}); `python -m "
            "het_tf doctor` prints the remedy"
        ) from None
    hvd.init()
    if not settings.is_elastic_job() and hvd.size() != launched:
        raise RuntimeError(
            f"this process is one of {launched} ranks, but Horovod has found {hvd.size()}; start the program "
            "by horovodrun, or build Horovod with MPI"
        )
    return hvd


def _launched_ranks() -> int:
    """The number of ranks that horovodrun or mpirun has started; 1 without them."""
    sizes = (os.environ.get(name, "") for name in ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return next((int(size) for size in sizes if size.isdigit()), 1)


def require_init() -> None:
    """Raises RuntimeError if Horovod runs several ranks, but `het_tf.init` was not called.

    Each would train its own tables, or push unscaled gradients, without a message.
    """
    if settings.horovod() is not None:
        return
    hvd = sys.modules.get("horovod.tensorflow")
    ranks = hvd.size() if hvd is not None and hvd.is_initialized() else _launched_ranks()
    if ranks > 1:
        raise RuntimeError(
            f"Horovod runs {ranks} ranks, but het_tf was not told; call het_tf.init() before the first layer "
            "is made"
        )


def rank() -> int:
    """Returns the number of this worker, from 0; 0 without Horovod.

    Raises:
      RuntimeError: Horovod runs several ranks, but `het_tf.init` was not called.
    """
    return ranks()[0]


def ranks() -> tuple[int, int]:
    """Returns the number of this worker, and the number of workers; (0, 1) without Horovod.

    Raises:
      RuntimeError: As `require_init`.
    """
    require_init()
    hvd = settings.horovod()
    return (0, 1) if hvd is None else (hvd.rank(), hvd.size())


def name(kind: str) -> str:
    """Returns a name for a new collective: its number among those of its kind in the graph.

    Horovod matches tensors by name. TensorFlow derives names from layers' names, whose numbers differ
    if one rank has made one layer more; our numbers do not. Eager collectives run one
    after another and may share a name.
    """
    if tf.executing_eagerly():  # no count: later workers would start with another
        return f"het_tf.{kind}"
    graph = tf.compat.v1.get_default_graph()
    counter = _counts.setdefault(graph, collections.Counter())
    counter[kind] += 1
    return f"het_tf.{kind}.{counter[kind]}"


def gather(value: Any, label: str) -> list[Any]:
    """Returns the values of all ranks in their order. Every rank must call it."""
    hvd = settings.horovod()
    if hvd is None or hvd.size() == 1:
        return [value]
    with tf.init_scope():
        return list(hvd.allgather_object(value, name=f"het_tf.{label}"))


@contextlib.contextmanager
def together(label: str, what: str, kind: type[Exception] = RuntimeError) -> Iterator[None]:
    """Waits at the end until all ranks are there; raises an error of one rank on all.

    Args:
      label: Label of the collective.
      what: The action, for the message: "rank 1 could not <what>: ...".
      kind: Exception type for the error of another rank.
    """
    failed: Exception | None = None
    try:
        yield
    except Exception as error:  # tell the others first: they wait for this rank
        failed = error
    of_ranks = gather("" if failed is None else str(failed) or type(failed).__name__, label)
    if failed is not None:
        raise failed
    for rank, text in enumerate(of_ranks):
        if text:
            raise kind(f"rank {rank} could not {what}: {text}")


def sum_over_ranks(values: Any, label: str) -> Any:
    """Sums an array of numbers over all ranks, as float64. Every rank must call it."""
    hvd = settings.horovod()
    tensor = tf.convert_to_tensor(values, tf.float64)
    if hvd is not None and hvd.size() > 1:
        tensor = hvd.allreduce(tensor, op=hvd.Sum, name=f"het_tf.{label}")
    return tensor.numpy()


def gather_rows(values: Any, label: str) -> Any:
    """Concatenates the tensors of all ranks in their order; the first axes may differ.

    Every rank must call it.
    """
    hvd = settings.horovod()
    tensor = tf.convert_to_tensor(values)
    if hvd is not None and hvd.size() > 1:
        tensor = hvd.allgather(tensor, name=f"het_tf.{label}")
    return tensor


def gradient_scale() -> Any:
    """Returns the factor of the gradients of rows: 1 / workers, or 1.

    It is a float, or in an elastic job a float32 scalar that is computed when the graph runs.
    """
    hvd = settings.horovod()
    if hvd is None or settings.current.gradient_scale == "sum":
        return 1.0
    if settings.elastic():
        return 1.0 / tf.cast(hvd.size_op(), tf.float32)
    return 1.0 / settings.workers()


def barrier() -> None:
    """Returns when every rank has called it."""
    sum_over_ranks([0.0], "barrier")
