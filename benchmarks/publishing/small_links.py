"""What does it save to defer small changes, and how far are the served rows from the server's?

A part of run.py. A stream of training by Adagrad: draws of ids by Zipf's law, each a step of the row
towards its own target with noise. Three followers follow it at once, each into live files of its own: all
changes each POLL seconds, all each DEFER seconds, and large ones each POLL with the others each DEFER
seconds. Once a second a sample of rows, drawn like requests by the same law, is read in each of the three
and at the server. First the ids stay the same; then NEW ids a second take the ranks of others, as new items
do in a feed.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

DIM, ROWS, EXPONENT, STEPS, SAMPLE = 16, 100_000, 1.05, 20, 4096
POLL, DEFER, PERCENT = 0.1, 5.0, 10
NEW, RANKS = 5, (10, 1000)  # ids a second, and the ranks that they take
WARM_UP = 3000  # steps


class Stream:
    """A model of one table, its training and its requests.

    Args:
      server: The parameter server's address.
      rate: Draws a second.
    """

    def __init__(self, server: str, rate: int) -> None:
        import numpy as np
        import tensorflow as tf

        import het_tf

        het_tf.init(ps=server)
        inputs = tf.keras.Input((), dtype="int64", name="id")
        layer = het_tf.keras.Embedding(
            DIM, name="zipf", optimizer=het_tf.optimizers.Adagrad(0.05),
            cache=het_tf.Cache(rows=ROWS, push_max_age=0.3),
        )  # fmt: skip
        rows = layer(inputs)
        self.model = tf.keras.Model(inputs, {"rows": rows, "score": tf.keras.layers.Dense(1)(rows)})
        self.table = het_tf.Table("zipf")
        self.rng = np.random.default_rng(1)
        self.batch = rate // STEPS
        weights = np.cumsum(np.arange(1, ROWS + 1) ** -EXPONENT)
        self.shares = weights / weights[-1]
        self.ids = np.arange(ROWS)  # by rank
        self.used = ROWS
        self.targets = self.rng.normal(size=(ROWS, DIM)).astype(np.float32)
        begin = self.targets + self.rng.normal(size=(ROWS, DIM)).astype(np.float32)
        for start in range(0, ROWS, 1 << 14):
            ids = np.arange(start, min(ROWS, start + (1 << 14)))
            self.table.assign(ids, begin[ids])

        @tf.function
        def step(ids: Any, wanted: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(layer(ids) - wanted)) / 2
            variables = layer.trainable_variables
            het_tf.apply(zip(tape.gradient(loss, variables), variables, strict=True))

        self._step = step

    def draw(self, count: int) -> Any:
        return self.ids[self.shares.searchsorted(self.rng.random(count))]

    def renew(self, count: int) -> None:
        for rank in self.rng.integers(*RANKS, count):
            self.ids[rank] = self.used
            self.used += 1

    def train(self) -> None:
        import tensorflow as tf

        ids = self.draw(self.batch)
        noise = self.rng.normal(size=(self.batch, DIM)).astype("float32")
        self._step(tf.constant(ids), tf.constant(self.targets[ids % ROWS] + noise))


def measure(server: str, directory: str, seconds: float, rate: int, answers: Any) -> None:
    """Puts the figures of the three ways into `answers`; runs in a process of its own."""
    import tensorflow as tf

    import het_tf
    from het_tf.python.following import native, target

    ways = {
        f"all, each {POLL:g} s": native.Options(poll=POLL),
        f"all, each {DEFER:g} s": native.Options(poll=DEFER),
        f"large each {POLL:g} s, others each {DEFER:g} s": native.Options(poll=POLL, defer_small=DEFER),
    }
    stream = Stream(server, rate)
    for _ in range(WARM_UP):
        stream.train()
    first = Path(directory) / "small0"
    het_tf.export(
        stream.model, str(first), format="native", verbose=False,
        follow=het_tf.Follow(server, max_age=4 * DEFER),
    )  # fmt: skip
    paths = [first] + [Path(directory) / f"small{i}" for i in range(1, len(ways))]
    for path in paths[1:]:
        shutil.copytree(first, path)
    streams = {}
    with contextlib.ExitStack() as stack:
        followers = [
            stack.enter_context(native.opened(target.read(path), server, options))
            for path, options in zip(paths, ways.values(), strict=True)
        ]
        loaded = [tf.saved_model.load(str(path)) for path in paths]
        while not all(one.status()["caught_up"] for one in followers):
            stream.train()
        for name, new in (("the same ids", 0), (f"{NEW} new ids a second", NEW)):
            rows = compare(stream, followers, loaded, seconds, new)
            streams[name] = [{"way": way, **row} for way, row in zip(ways, rows, strict=True)]
    setting = {"rows": ROWS, "exponent": EXPONENT, "rate": rate, "percent": PERCENT, "seconds": seconds}
    answers.put({"setting": setting, "streams": streams})


def compare(
    stream: Stream, followers: list[Any], loaded: list[Any], seconds: float, new: int
) -> list[dict[str, float]]:
    """Returns each follower's figures while the stream goes on with so many new ids a second."""
    import numpy as np
    import tensorflow as tf

    def bytes_and_scans(one: Any) -> Any:
        status = one.status()
        scans = sum(part["scans"] + part["large"]["scans"] for part in status["partitions"])
        return np.array([status["bytes"], scans], np.float64)

    before = [bytes_and_scans(one) for one in followers]
    distances: list[list[Any]] = [[] for _ in followers]
    begin = time.monotonic()
    for step in range(int(seconds * STEPS)):
        time.sleep(max(0.0, begin + step / STEPS - time.monotonic()))
        stream.train()
        if step % STEPS == STEPS - 1:
            ids = stream.draw(SAMPLE)
            served = [one.signatures["serving_default"](id=tf.constant(ids))["rows"] for one in loaded]
            stored = stream.table.lookup(ids, stored=True)
            for found, rows in zip(distances, served, strict=True):
                found.append(np.linalg.norm(rows - stored, axis=1) / np.linalg.norm(stored, axis=1))
            stream.renew(new)
    took = time.monotonic() - begin
    spent = [bytes_and_scans(one) - old for one, old in zip(followers, before, strict=True)]
    result = []
    for (size, scans), found in zip(spent, distances, strict=True):
        far = np.concatenate(found)
        result.append(
            {
                "bytes_s": size / took,
                "of_all": size / spent[0][0],
                "scans_s": scans / took,
                "mean": float(far.mean()),
                "p99": float(np.quantile(far, 0.99)),
                "p999": float(np.quantile(far, 0.999)),
            }
        )
    return result
