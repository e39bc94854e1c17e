"""Ends streams of unknown lengths on all ranks after as many batches as the shortest stream has.

A rank that has run out takes no step, and the others would wait in theirs: so it must announce its last
step before it. A stream is therefore read *ahead*: when a batch is handed out, `ahead` more have been
read, or the stream's end has been seen. Each step gathers the ends that the ranks have seen, 8 bytes each,
together with its gradients; the smallest is the end of all.

This is in time: a step learns of an end `ahead` batches before it, and no rank takes more than `ahead`
batches between two moments at which all its steps are done (one, or Keras' `steps_per_execution`). The
exchange belongs to the step: leaving a pass early, or looking at a single batch, does not communicate.
"""

import contextlib
import functools
import inspect
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from het_tf.python.session import collective, settings
from het_tf.python.session.native import tf

_NEVER = 2**62  # the end of a stream before it is seen
_numbers = itertools.count(1)
log = logging.getLogger("het_tf")


class _Pass:
    """The state of the process's present pass; variables, since pipelines and steps are graphs.

    Attributes:
      active: Whether steps compare ends; equal on all ranks.
      stream: The number of the stream.
      read: Number of its batches so far, including those read ahead.
      handed: Number of its batches that were handed out.
      steps: Number of steps that the ranks have compared.
      mine: Number of this rank's batches, once it has seen the end.
      end: Number of all ranks' batches, once one of them has seen its end.
    """

    @staticmethod
    @functools.cache
    def current() -> "_Pass":
        """Returns the pass of the process."""
        return _Pass()

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("/CPU:0"):
            self.active = tf.Variable(False, trainable=False)
            self.stream, self.read, self.handed, self.steps, self.mine, self.end = (
                tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(6)
            )

    def begin(self, number: int) -> None:
        """Begins a pass of a stream."""
        self.stream.assign(number)
        for zero in (self.read, self.handed, self.steps):
            zero.assign(0)
        for end in (self.mine, self.end):
            end.assign(_NEVER)

    def ended(self, ahead: int) -> None:
        """Ends the stream here."""
        words = [
            "this rank has ", self.read, " batches in a pass, and needs ", ahead, " at least (one, or "
            "steps_per_execution), or the others wait for it; check what the dataset filters"
        ]  # fmt: skip
        _require(self.read >= ahead, words)
        self.mine.assign(self.read)

    def goes_on(self, number: int, ahead: int) -> Any:
        """Whether all ranks have the next batch to hand out."""
        index = self.handed - 1
        one = [
            "a step read two datasets of het_tf.workers.until_shortest; call it on one that is zipped of both"
        ]
        _require(tf.equal(self.stream, number), one)
        words = [
            "batch ", index, " was asked for, but the ranks have taken ", self.steps, " steps: nothing may "
            "read ahead of them; put prefetch before het_tf.workers.until_shortest, and call "
            "reduce_gradients in every step"
        ]  # fmt: skip
        _require(tf.equal(self.steps, 0) | (index < self.steps + ahead), words)
        return index < self.end


def _require(condition: Any, words: list[Any]) -> None:
    text = tf.strings.join([word if isinstance(word, str) else tf.strings.as_string(word) for word in words])
    tf.debugging.Assert(condition, [text], summarize=1)


def until_shortest(dataset: Any) -> Any:
    """Returns a dataset that ends on all ranks with the shortest one: for custom loops.

        batches = het_tf.workers.shard(dataset).filter(is_long).batch(128).prefetch(2)
        for x, y in het_tf.workers.until_shortest(batches):
            step(x, y)  # calls het_tf.workers.reduce_gradients

    For datasets of unknown length, as after a `filter`: without it, ranks wait forever for the one
    that has run out. `fit` of a distributed model does so itself. Rank 0 logs once which rank ended a
    pass. It keeps one more batch in memory. Each step must call
    `reduce_gradients`; `hvd.DistributedGradientTape` does not compare ends. Every rank must make the call.
    A pass without steps goes to this rank's own end.

    Args:
      dataset: A tf.data.Dataset of batches. Nothing may follow that reads ahead of the steps (`prefetch`).

    Returns:
      A tf.data.Dataset; with one rank `dataset`.

    Raises:
      ValueError: It is not a tf.data.Dataset.
      RuntimeError: `het_tf.init` was not called on every rank.
      tf.errors.InvalidArgumentError: In a pass: this rank has no batch at all, something reads ahead, or
        a step reads two such datasets.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(f"dataset is a {type(dataset).__name__}; give a tf.data.Dataset of batches")
    collective.require_init()
    if settings.workers().size == 1:
        return dataset
    _Pass.current().active.assign(True)
    return _cut(dataset, 1)


def _cut(dataset: Any, ahead: int) -> Any:
    """Returns the dataset up to the common end of the ranks."""
    state, number = _Pass.current(), next(_numbers)

    def counted(*element: Any) -> Any:
        state.read.assign_add(1)
        # One tensor for a batch of any structure: a window of it costs microseconds.
        return tf.experimental.Optional.from_value(element[0] if len(element) == 1 else element)

    def handed(batch: Any) -> Any:
        state.handed.assign_add(1)  # a map without state would be made parallel, and read ahead of the steps
        return batch.get_value()

    def act(action: Callable[[], None]) -> Any:
        """Returns an empty dataset that runs `action` when a reader reaches it."""

        def none(_: Any) -> Any:
            action()
            return batches.take(0)

        return tf.data.Dataset.range(1).flat_map(none)

    batches = dataset.map(counted)
    marked = act(lambda: state.begin(number)).concatenate(batches)
    marked = marked.concatenate(act(lambda: state.ended(ahead)))
    delayed = marked.window(ahead + 1, shift=1).flat_map(lambda window: window.take(1))
    cut = delayed.map(handed).take_while(lambda *_: state.goes_on(number, ahead))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return cut.with_options(options)


def compare(after: list[Any]) -> None:
    """Part of a step of every rank: gathers the ends while a stream of `until_shortest` is read.

    Args:
      after: Tensors of the step that come first: they depend on its batch.
    """
    state, workers = _Pass.current(), settings.workers()

    def exchange() -> Any:
        ends = workers.gather(state.mine[None], "het_tf.shortest")
        end, before = tf.reduce_min(ends), state.end + 0
        with tf.control_dependencies([before]):
            state.steps.assign_add(1)
            state.end.assign(end)
        if workers.rank == 0:
            news = (end < before) & (tf.reduce_max(ends) > end)
            tf.cond(news, lambda: tf.numpy_function(_tell, [ends], tf.bool), lambda: False)
        return True

    with tf.control_dependencies(after), tf.device("/CPU:0"):
        tf.cond(state.active, exchange, lambda: False)


_told: set[str] = set()


def _tell(ends: Any) -> bool:
    if not _told:  # only once per process: each pass may end so
        _told.add("ended")
        log.warning(
            "the data of rank %d ended first, after %d batches: all %d ranks end their pass there, and in "
            "later passes with the shortest. Others had more; het_tf.workers.shard makes equal parts",
            ends.argmin(), ends.min(), len(ends),
        )  # fmt: skip
    return True


def fits(model: Any, fit: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `fit` of a model whose ranks stop together. Every rank must call it."""
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def run(x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if settings.workers().size == 1:
            return fit(x, *args, **kwargs)
        try:
            given = signature.bind(x, *args, **kwargs).arguments
        except TypeError:  # fit raises a better error, on every rank
            return fit(x, *args, **kwargs)
        with _of_fit(x, given, _steps_per_execution(model)) as data:
            return fit(data, *args, **kwargs)

    return run


@contextlib.contextmanager
def _of_fit(x: Any, given: Mapping[str, Any], ahead: int) -> Iterator[Any]:
    weighted = given.get("class_weight") is not None
    of_ranks = collective.gather((_length(x), given.get("steps_per_epoch"), weighted, ahead), "lengths")
    lengths = {length for length, *_ in of_ranks}
    if "unknown" not in lengths:
        if any(length == "generator" and steps is None for length, steps, *_ in of_ranks):
            raise ValueError(
                f"x is a {type(x).__name__}, but the length of a generator is unknown: when one has "
                "ended, the others wait forever; give steps_per_epoch, or a tf.data.Dataset"
            )
        yield x
        return
    if lengths - {"unknown", "known"}:
        listed = ", ".join(f"{length} on rank {rank}" for rank, (length, *_) in enumerate(of_ranks))
        raise ValueError(
            f"x is a {type(x).__name__}, but a tf.data.Dataset of unknown length on another rank ({listed}); "
            "give a tf.data.Dataset on every rank"
        )
    if any(weighted for *_, weighted, _ in of_ranks):
        raise ValueError(
            "class_weight is given with a dataset of unknown length, but Keras would read ahead of the "
            "steps to apply it; give the weights of the samples in the dataset, (x, y, weights)"
        )
    active = _Pass.current().active
    active.assign(True)
    try:
        yield _cut(x, max(ahead for *_, ahead in of_ranks))
    finally:
        active.assign(False)


def _length(x: Any) -> str:
    """Classifies the data of `fit`: a dataset of known or unknown length, a generator, or other."""
    if isinstance(x, tf.data.Dataset):
        return "unknown" if int(x.cardinality()) == tf.data.UNKNOWN_CARDINALITY else "known"
    if inspect.isgenerator(x) or getattr(x, "num_batches", 0) is None:  # or a PyDataset of unknown length
        return "generator"
    return "other"


def _steps_per_execution(model: Any) -> int:
    given = getattr(model, "steps_per_execution", None)
    return 1 if given is None else int(given)
