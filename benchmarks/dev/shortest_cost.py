"""What does it cost that ranks end with the shortest of their streams?

    horovodrun -np 2 --gloo python benchmarks/shortest_cost.py [--steps N] [--batch B] [--staleness S]

Two workers share 26 tables at one server of this machine, and train two dense layers. `fit` reads one
filtered dataset in two ways, in turns: as it is, so that its length is unknown and a step compares the ends
that the ranks have seen; and with the length asserted, so that nothing is compared. Milliseconds a step, of
wall time and of this process' processor time; medians, and the fastest pass.
"""

from __future__ import annotations

import argparse
import statistics
import time

import horovod.tensorflow as hvd
import tensorflow as tf

import het_tf

FEATURES = 26
ROUNDS = 16


class Clock(tf.keras.callbacks.Callback):
    """Wall and processor time from the fifth step of a pass on: `fit` makes pipelines before."""

    def on_train_batch_end(self, batch, logs=None) -> None:
        """Notes the time."""
        if batch == 4:
            self.begin = time.perf_counter(), time.process_time()
        self.end, self.steps = (time.perf_counter(), time.process_time()), batch - 4

    def step(self) -> tuple[float, ...]:
        """Milliseconds a step."""
        return tuple(1000 * (b - a) / self.steps for a, b in zip(self.begin, self.end, strict=True))


def model(staleness: int):
    """26 tables, two dense layers."""
    inputs = {
        f"C{number}": tf.keras.Input((), dtype="int64", name=f"C{number}") for number in range(FEATURES)
    }
    tables = {name: het_tf.FeatureConfig(het_tf.TableConfig(name, 16)) for name in inputs}
    rows = het_tf.keras.EmbeddingCollection(tables, cache=het_tf.Cache(staleness=staleness))(inputs)
    hidden = tf.keras.layers.Dense(64, "relu")(tf.keras.layers.Concatenate()([*rows.values()]))
    made = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    made.compile("adam", "binary_crossentropy")
    return het_tf.horovod.distribute(made)


def main() -> None:
    """Prints the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--batch", type=int, default=128, help="samples of one worker")
    parser.add_argument("--staleness", type=int, default=100)
    given = parser.parse_args()
    hvd.init()
    het_tf.init(hvd=hvd)
    part = het_tf.data.criteo_like(given.batch * given.steps * hvd.size(), seed=1)
    ids = {f"C{number + 1}": column for number, column in enumerate(part.categorical.values())}
    columns = {f"C{n}": ids[f"C{n + 1}"][hvd.rank() :: hvd.size()] for n in range(FEATURES)}
    samples = tf.data.Dataset.from_tensor_slices((columns, part.label[hvd.rank() :: hvd.size()]))
    unknown = samples.batch(given.batch).filter(lambda *_: True).prefetch(2)
    ways = {"known": unknown.apply(tf.data.experimental.assert_cardinality(given.steps)), "unknown": unknown}
    made = model(given.staleness)
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name, dataset in ways.items():
            clock = Clock()
            made.fit(dataset, verbose=0, callbacks=[het_tf.callbacks.Broadcast(), clock])
            if turn:  # the first pass fills the caches
                times[name].append(clock.step())
    if hvd.rank() == 0:
        print(f"batch {given.batch} a worker, {hvd.size()} workers, {FEATURES} tables x 16, Adam")
        print(f"{'':16} wall: median  fastest    CPU: median  fastest")
        for name, found in times.items():
            figures = [rule(one) for one in zip(*found, strict=True) for rule in (statistics.median, min)]
            print("length {:9} {:12.2f} {:8.2f} {:14.2f} {:8.2f}".format(name, *figures))


if __name__ == "__main__":
    main()
