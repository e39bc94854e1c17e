"""Checks that all ranks place samples alike, when a placed stream is made and every 32 steps of it.

A stream notes a fingerprint of its first 16, 32, ... global batches of a pass for `reduce_gradients`:
pipelines run ahead by different numbers of batches, so the ranks compare the newest note that several have.
An exchange is an all-gather of half a kilobyte. It belongs to the step, not to the pipeline, which one rank
may leave in the middle of a pass, and another not.
"""

from typing import Any

import numpy as np

from het_tf.ext.streams.python.placement import mixed
from het_tf.python.hashing import GAMMA
from het_tf.python.session import settings
from het_tf.python.session.native import tf

EVERY = 16  # global batches from one note to the next
STEPS = 32  # from one exchange to the next
_KEPT = 16  # notes: ranks may be _KEPT * EVERY batches apart
_NUMBERS = 4  # of a note: stream, its pass, global batches in it so far, fingerprint


def require_equal(of_ranks: list[dict[str, Any]]) -> None:
    """Raises RuntimeError if what the ranks say of their placement differs."""
    for what in of_ranks[0]:
        values = [one.get(what, "not there") for one in of_ranks]
        if any(value != values[0] for value in values):
            listed = ", ".join(f"{value!r} on rank {rank}" for rank, value in enumerate(values))
            raise RuntimeError(
                f"ranks place samples differently: {what} is {listed}; call het_tf.workers.shard_placed on "
                "every rank with the same arguments"
            )


class _Notes:
    """The newest notes of this process, oldest first, and its steps so far."""

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("/CPU:0"):
            self.newest = tf.Variable(tf.zeros([_KEPT, _NUMBERS], tf.int64), trainable=False)
            self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)


class Stream:
    """The fingerprints of a placed stream, for comparison.

    Attributes:
      begin: The state at the begin of a pass: pass, global batches so far, fingerprint.
    """

    _notes: _Notes | None = None
    _passes: list[Any] = []  # noqa: RUF012  a variable for each stream; pipelines do not keep theirs alive
    begin = (np.int64(0), np.int64(0), np.uint64(0))

    def __init__(self) -> None:
        Stream._notes = Stream._notes or _Notes()
        with tf.init_scope(), tf.device("/CPU:0"):
            self._pass = tf.Variable(0, dtype=tf.int64, trainable=False)
        Stream._passes.append(self._pass)
        self._number = len(Stream._passes)

    def follow(self, state: Any, hashed: Any) -> Any:
        """Returns the state after one more global batch.

        Args:
          state: The state before it.
          hashed: Hashes of the field in its samples, uint64 `[M]`.
        """
        begun, number, chain = state
        number += 1
        places = tf.bitcast(2 * tf.range(tf.size(hashed, tf.int64)) + 1, tf.uint64)
        chain = mixed(_xor(chain * GAMMA, tf.reduce_sum(hashed * places)))
        # A pass counts from its first note on: a single rank may have looked at a first batch.
        begun = tf.cond(tf.equal(number, EVERY), lambda: self._pass.assign_add(1) + 0, lambda: begun)
        note = tf.stack([tf.constant(self._number, tf.int64), begun, number, tf.bitcast(chain, tf.int64)])
        tf.cond(tf.equal(number % EVERY, 0), lambda: self._keep(note), lambda: False)
        return begun, number, chain

    @staticmethod
    def _keep(note: Any) -> Any:
        newest = Stream._notes.newest  # type: ignore[union-attr]
        newest.assign(tf.concat([newest[1:], note[None]], 0))
        return True


def _xor(one: Any, other: Any) -> Any:
    return tf.bitwise.bitwise_xor(one, other)


def compare(after: list[Any]) -> list[Any]:
    """Part of a step of every rank: every 32nd call compares the notes of the ranks' placed streams.

    Args:
      after: Tensors of the step that come first, so that no rank waits for one that raises.

    Returns:
      Tensors that must precede the next collective of the step.

    Raises:
      tf.errors.InvalidArgumentError: In the step: a rank reads another order.
    """
    if Stream._notes is None:
        return []
    notes = Stream._notes

    def exchange() -> Any:
        every = settings.workers().gather(notes.newest[None], "het_tf.placed")
        same = tf.reduce_all(tf.equal(every[:, :, None, :3], every[0, None, None, :, :3]), axis=-1)
        other = tf.not_equal(every[:, :, None, 3], every[0, None, None, :, 3])
        found = tf.where(same & other)  # rank, note of it, note of rank 0
        return tf.cond(tf.size(found) > 0, lambda: _tell(every, found[0]), lambda: False)

    with tf.control_dependencies(after), tf.device("/CPU:0"):
        due = tf.equal(notes.steps.assign_add(1) % STEPS, 0)
        return [tf.cond(due, exchange, lambda: False)]


def _tell(every: Any, found: Any) -> Any:
    rank, note = found[0], every[found[0], found[1]]
    words = [
        "ranks place samples differently: in pass ", note[1], " of placed stream ", note[0], " the first ",
        note[2], " global batches have the fingerprint ", every[0, found[2], 3], " on rank 0 and ", note[3],
        " on rank ", rank, "; all ranks must read the same samples in the same order: the same files, and the"
        " same seed of a shuffle before shard",
    ]  # fmt: skip
    text = tf.strings.join([word if isinstance(word, str) else tf.strings.as_string(word) for word in words])
    tf.debugging.Assert(False, [text], summarize=1)
    return True
