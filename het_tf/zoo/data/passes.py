"""Passes over a data set that Python makes for `tf.data`, and their end before the interpreter's.

TensorFlow calls a generator of Python in threads of its own, which read ahead of the model. A thread
that asks for the interpreter while the interpreter ends waits forever, and the iterator of the data
set, which the interpreter destroys at its end, waits for that thread: the process would hang after
its last line. So a hook of `atexit` ends all passes while threads can still run Python. The hook runs
however the process ends by itself: by its last line, by an exception, by `sys.exit` or by Ctrl-C.
(A process that a signal kills ends without the interpreter's end, and cannot hang there.)
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

    TensorFlow owns it: it lets go of a pass that has ended, or whose iterator was destroyed.
    One thread at a time calls it.
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

    A thread that reads ahead asks for one element more, is told that there is none, and lets go of its pass.
    A thread that has read far enough does not ask: its pass stays, and after a fifth of a second in which
    nothing ran it counts as ended. An element that takes longer than half a minute is not waited for.
    """
    _stopped.set()
    quiet = 0
    for _ in range(_MOST):
        quiet = 0 if any(one.running for one in list(_passes)) else quiet + 1
        if not _passes or quiet > _QUIET:
            break
        time.sleep(_POLL)
    time.sleep(_POLL)  # the thread leaves what TensorFlow's own Python does after the last element
