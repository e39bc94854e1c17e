"""What two ranks do beside `shard_on_demand` at staleness 0, with a numpy twin.

What is not of the stream is refused (OnDemandPass in on_demand_pass_test.cc), or right. Defects: one rank
refuses a step and the other one waits for it; a restore leaves copies of rows from before it. Both ranks run
the same calls. Every error that is expected here must be raised on both: a rank that goes on alone waits for
the other one, and the job ends at its time limit.
"""

import numpy as np
import pytest
import ranks
import tensorflow as tf
from ranks import refused

import het_tf
from het_tf.workers import rank, size

pytestmark = [pytest.mark.slow, ranks.SERVER]
BATCH, STEPS, KEYS, DIM = 6, 12, 25, 3


class Twin:
    """A table, the samples that train it, and the rows that it must have."""

    def __init__(self, name):
        self.name = name
        rng = np.random.default_rng(len(name))
        self.ids = rng.integers(0, KEYS, STEPS * size() * BATCH)
        self.factors = rng.integers(-3, 4, len(self.ids)).astype(np.float32)
        self.layer = het_tf.keras.Embedding(
            DIM, name=name, optimizer=het_tf.optimizers.SGD(1.0), initializer="zeros",
            cache=het_tf.Cache(staleness=0),
        )  # fmt: skip
        self.layer.build(None)
        samples = tf.data.Dataset.from_tensor_slices({"id": self.ids, "factor": self.factors})
        self.batches = het_tf.workers.shard_on_demand(
            samples, by="id", batch=BATCH, lookahead=self.layer, inputs=lambda x: x["id"]
        )
        self.expected = np.zeros([KEYS, DIM], np.float32)
        self.at = 0  # the next step of the pass

    def train(self, iterator, steps):
        """Trains; each lookup must give the rows of one process."""
        for _ in range(steps):
            batch = next(iterator)
            with tf.GradientTape() as tape:
                rows = self.layer(batch["id"], training=True)
                loss = tf.reduce_sum(rows * batch["factor"][:, None])
            variables = self.layer.trainable_variables
            gradients = het_tf.workers.reduce_gradients(tape.gradient(loss, variables), variables)
            het_tf.apply(zip(gradients, variables, strict=True))
            np.testing.assert_array_equal(rows, self.expected[batch["id"].numpy()], f"step {self.at}")
            of_step = slice(self.at * size() * BATCH, (self.at + 1) * size() * BATCH)
            np.subtract.at(self.expected, self.ids[of_step], self.factors[of_step, None])
            self.at += 1

    def new_pass(self, at=0, path=None):
        """An iterator: at its beginning, or as a checkpoint of one has it."""
        self.at, iterator = at, iter(self.batches)
        if path:
            tf.train.Checkpoint(iterator=iterator).restore(path)
        return iterator

    def expect_rows(self):
        """Reads that are not of the stream: by the layer, for evaluation, and of the table."""
        everything = np.arange(KEYS)
        np.testing.assert_array_equal(self.layer(everything, training=False), self.expected)
        np.testing.assert_array_equal(het_tf.Table(self.name).lookup(everything), self.expected)


def a_checkpoint_within_a_pass():
    """It has all updates, and a restore leaves no copy from before it."""
    het_tf.init(gradient_scale="sum")
    twin = Twin("checkpoint")
    iterator = twin.new_pass()
    twin.train(iterator, 5)
    het_tf.checkpoint.save(ranks.place() / "ckpts")
    saved = twin.expected.copy()
    twin.expect_rows()
    twin.train(iterator, 4)
    het_tf.checkpoint.restore(ranks.place() / "ckpts")
    twin.expected = saved
    twin.expect_rows()
    twin.train(twin.new_pass(), STEPS)


def a_file_of_one_rank_within_a_pass():
    """Keras' files have this rank's view of the store: refused, on whichever rank."""
    het_tf.init(gradient_scale="sum")
    twin = Twin("file")
    model = tf.keras.Sequential([tf.keras.Input((), dtype="int64"), twin.layer])
    iterator = twin.new_pass()
    twin.train(iterator, 5)
    path = ranks.place() / f"{rank()}.weights.h5"
    with refused((RuntimeError, tf.errors.FailedPreconditionError), "het_tf.flush(all_ranks=True)"):
        model.save_weights(path)
    het_tf.flush(all_ranks=True)
    model.save_weights(path)
    twin.train(iterator, 2)


def iterators_of_another_process():
    """Batches that were ready have no plan after a restore. Another table is as good as another process."""
    het_tf.init(gradient_scale="sum")
    first, every, one = (Twin(f"table_{number}") for number in range(3))  # of the same samples
    iterator = first.new_pass()
    first.train(iterator, 4)
    path = tf.train.Checkpoint(iterator=iterator).write(str(ranks.place() / f"iterator{rank()}"))
    het_tf.flush(all_ranks=True)
    every.train(every.new_pass(4, path), STEPS - 4)
    het_tf.flush(all_ranks=True)
    every.expect_rows()
    iterator = one.new_pass(4, None if rank() else path)
    for _ in range(4 * rank()):
        next(iterator)
    one.train(iterator, STEPS - 4)
    het_tf.flush(all_ranks=True)
    one.expect_rows()
    one.train(one.new_pass(), STEPS)
    het_tf.flush(all_ranks=True)


CASES = (a_checkpoint_within_a_pass, a_file_of_one_rank_within_a_pass, iterators_of_another_process)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    yield from ranks.launched(tmp_path_factory.mktemp("on_demand"), *CASES)


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_are_through(job, case):
    """The assertions are in the case."""
    job.values(case.__name__)
