"""Several workers: shared tables are saved after all workers have sent, and restored by one."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from het_tf.python.session import settings
from het_tf.python.table import notes

_met: contextvars.ContextVar[bool] = contextvars.ContextVar("het_tf_workers_have_met", default=False)


@contextlib.contextmanager
def have_met() -> Iterator[None]:
    """While open, all workers have sent their pending updates and wait: a save sees one moment."""
    token = _met.set(True)
    try:
        yield
    finally:
        _met.reset(token)


def before_saving(layer: Any) -> None:
    """Warns if other workers may be training while this one saves."""
    if settings.workers().size > 1 and not _met.get():
        notes.warn(
            f"layer {layer.name!r}: the rows of table {notes.names(layer)} are saved from the parameter "
            "server, which lacks the pending updates of other workers, and these may go on meanwhile. "
            "Use het_tf.callbacks.Checkpoint, or het_tf.checkpoint.save on every rank"
        )


def restores(layer: Any) -> bool:
    """Whether this worker must restore the tables, which all share; on others False, with a warning."""
    rank = settings.workers().rank
    if rank == 0:
        return True
    notes.without_rows(
        layer,
        f"restored on rank {rank}",
        "Rank 0 restores them for all; have the others wait for it, or use het_tf.checkpoint.restore on "
        "every rank",
    )
    return False
