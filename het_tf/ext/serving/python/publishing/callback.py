"""`het_tf.callbacks.Publish`: versions of a model while `fit` runs."""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.serving.python.publishing.publish import (
    Directory,
    Publisher,
    Taken,
    check_arguments,
    check_server,
)
from het_tf.ext.serving.python.publishing.versions import Version
from het_tf.python.backend import keras
from het_tf.python.checks import seconds

_MOST_STEPS = 100  # from one exchange of ranks to the next: so late is a version if steps become longer


class Publish(keras.callbacks.Callback):
    """Publishes versions of the model while `fit` runs (`het_tf.publish`), and one at its end.

        model.fit(..., callbacks=[het_tf.callbacks.Publish(every=1.0)])

    A step waits for the caches' pending updates and for a copy of the dense weights; a thread of rank 0 does
    the rest. If the thread needs longer than `every`, there are fewer versions. An error of the thread ends
    `fit` on all ranks. Under Horovod every rank must have the callback. Rank 0's clock decides: it tells all
    ranks after how many steps, at most 100, the next version may be due. So the ranks exchange about one
    message a version, and where steps become longer, versions are up to 100 steps late.

    Args:
      every: Seconds from one version to the next, > 0, checked when batches end.
      trained_through: Called on rank 0 when a version is taken; returns the argument of `het_tf.publish`.
        None: the time.
      keep, directory, release: As in `het_tf.publish`.

    Raises:
      TypeError, ValueError: An argument is of another type or out of range; when `fit` begins: as in
        `het_tf.publish`.
      Further errors, while `fit` runs, as in `het_tf.publish`.
    """

    def __init__(
        self,
        every: float = 1.0,
        *,
        trained_through: Callable[[], Any] | None = None,
        keep: int = 10,
        directory: Directory = None,
        release: bool = True,
    ) -> None:
        super().__init__()
        self._every = seconds("every", every)
        if trained_through is not None and not callable(trained_through):
            raise TypeError(
                f"trained_through is {trained_through!r}; give a function that returns a JSON value"
            )
        check_arguments(keep, directory)
        self._through = trained_through
        self._keep, self._directory, self._release = keep, directory, release
        self._publisher: Publisher | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._writing: Future[Version] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks the model, as far as it has weights; later versions count their time from here."""
        self._ranks = Ranks()
        self._ranks.together("begin to publish", lambda: check_server(self.model))
        self._publisher = None
        if self.model.built:
            self._open()
        self._looked = time.monotonic()
        self._due = self._looked + self._every
        self._steps = 0  # since the ranks decided
        self._unpublished = 0  # steps
        self._next = 1  # steps from one decision to the next

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes a version if one is due."""
        self._steps += 1
        self._unpublished += 1
        if self._steps < self._next:
            return
        is_due, self._next = self._ranks.first("publish", self._decide)
        self._steps = 0
        if is_due:
            self._take()

    def on_train_end(self, logs: Any = None) -> None:
        """Publishes what was trained since the last version, and waits for it."""
        try:
            self._ranks.first("publish", self._wait)
            if self._unpublished:
                self._take()
                self._ranks.first("publish", self._wait)
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None
            if self._publisher is not None:
                self._publisher.close()

    def _open(self) -> None:
        def open_here() -> None:
            self._publisher = Publisher(self.model, self._keep, self._directory, self._release)

        self._ranks.together("begin to publish", open_here)

    def _decide(self) -> tuple[bool, int]:
        """On rank 0: whether a version is due, and after how many steps to decide again."""
        now = time.monotonic()
        step_seconds = max((now - self._looked) / self._steps, 1e-9)
        self._looked = now
        is_due = now >= self._due
        if is_due and self._writing is not None:
            if self._writing.done():
                self._wait()
            else:
                is_due = False
        if is_due:
            self._due += self._every * (1 + (now - self._due) // self._every)
        if self._ranks.size == 1:
            return is_due, 1
        wait = self._due - now if self._due > now else self._every / 10  # the thread is late
        return is_due, min(max(1, math.ceil(wait / step_seconds)), _MOST_STEPS)

    def _take(self) -> None:
        if self._publisher is None:  # a subclassed model, which its first step has built
            self._open()
        assert self._publisher is not None
        taken = self._publisher.take(self._ranks, self._through)
        self._unpublished = 0
        if taken is not None:
            self._write(taken)

    def _write(self, taken: Taken) -> None:
        assert self._publisher is not None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="het_publish")
        self._writing = self._thread.submit(self._publisher.write, taken)

    def _wait(self) -> None:
        """Waits for the thread of rank 0; raises its error."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
