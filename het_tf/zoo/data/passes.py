"""Ends Python's passes over data sets for `tf.data` before the interpreter ends.

TensorFlow calls a Python generator in its own threads, which read ahead of the model. A thread
that asks for the interpreter while it ends waits forever, and the data set's iterator,
which the ending interpreter destroys, waits for that thread: the process would hang after
its last line. So a hook of `atexit` ends all passes while threads can still run Python. The hook runs
at every regular end of the process: by its last line, an exception, `sys.exit` or Ctrl-C.
(A process killed by a signal skips the interpreter's end, and cannot hang there.)
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_POLL = 0.01
_QUIET = 20
_MOST = 3000

_stopped = threading.Event()
_passes: weakref.WeakSet[Pass[Any]] = weakref.WeakSet()


class Pass(Iterator[T], Generic[T]):
    """The elements of an iterator, until the process ends.

    TensorFlow owns it, and releases a pass that has ended, or whose iterator was destroyed.
    Only one thread at a time calls it.
    """

    def __init__(self, elements: Iterator[T]) -> None:
        self._elements = elements
        self.running = False
        _passes.add(self)

    def __next__(self) -> T:
        self.running = True
        try:
            if _stopped.is_set():
                raise StopIteration
            return next(self._elements)
        finally:
            self.running = False


@atexit.register
def _stop() -> None:
    """Ends all passes; returns when no thread of TensorFlow runs their Python any more.

    A thread that reads ahead asks for one more element, gets StopIteration, and releases its pass.
    A thread that has read far enough does not ask: its pass stays, and counts as ended after a fifth of a
    second without activity. The wait for one element ends after half a minute.
    """
    _stopped.set()
    quiet = 0
    for _ in range(_MOST):
        quiet = 0 if any(one.running for one in list(_passes)) else quiet + 1
        if not _passes or quiet > _QUIET:
            break
        time.sleep(_POLL)
    time.sleep(_POLL)  # the thread leaves TensorFlow's own Python after the last element
